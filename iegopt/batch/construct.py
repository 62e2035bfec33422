"""A plan request by request, every one where it costs least at the prices of time and memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.bound import Bound
from iegopt.batch.dual import Dual
from iegopt.batch.model import BatchModel
from iegopt.batch.moving import Moving
from iegopt.batch.outcome import worth_more
from iegopt.batch.reach import Prices
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = [
    "PASSES",
    "cost_at",
    "dual_prices",
    "fill",
    "insert",
    "order_by_density",
    "place_as_planned",
    "place_cleared",
    "plain_prices",
    "planned_turn",
    "set_paces",
]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PASSES = 8
"""Times the requests that were left are tried again, where fairness lets one in only after another."""
DELAY = 1e-4
"""What a second of weighted delay counts beside utility."""


def fill(board: Board, scout: Scout, turn: Iterable[int], prices: Prices, clock: Clock) -> None:
    """Place the requests of ``turn`` one after the other: first each where it costs no more than it is worth, then
    wherever it still fits, while there is time."""
    left = list(turn)
    for dear in (False, True) if prices.work.any() else (True,):
        for _ in range(PASSES if board.tenancy.limited else 1):
            before = len(left)
            left = [i for i in left if not insert(board, scout, i, prices, clock, dear=dear)]
            if len(left) in (0, before) or clock.left <= 0.0:
                break


def insert(board: Board, scout: Scout, i: int, prices: Prices, clock: Clock, *, dear: bool = True) -> bool:
    """Place request ``i`` at the best place that takes it; only where it pays, unless it may be ``dear``."""
    if clock.left <= 0.0:
        return False
    limit = np.inf if dear else scout.model.plain["weight"][i]
    for place in scout.places(board, i, prices):
        if place.score > limit:
            return False
        if board.place(i, place.prefill, place.decode, place.rung, place.fetch):
            return True
    return False


def place_as_planned(board: Board, scout: Scout, i: int, p: int, q: int) -> bool:
    """Place request ``i`` where a plan put it, at the pace there or the slowest that it may have."""
    own, now = scout.own_rung(i), int(board.plan.pace[q])
    rungs = [now, own] if np.isfinite(board.tau[q]) else [own]
    return any(board.place(i, p, q, rung) for rung in dict.fromkeys(rungs) if scout.may(i, p, q))


def place_cleared(board: Board, scout: Scout, moving: Moving, i: int, p: int, q: int) -> bool:
    """Place request ``i`` where a plan put it, with what runs at its prefill moved away, if it is worth that."""
    worth = board.worth.copy()
    board.begin()
    moving.cleared(board, p, board.model.plain["priority"][i])
    if place_as_planned(board, scout, i, p, q) and worth_more(board.worth, worth):
        board.commit()
        return True
    board.rollback()
    return False


def set_paces(board: Board, prices: Prices) -> None:
    """Give the instances that decode already the paces that the prices wish, where all keeps its limits."""
    for j in np.flatnonzero(prices.wish >= 0).tolist():
        if np.isfinite(board.tau[j]):
            board.repace(j, int(prices.wish[j]))


def order_by_density(model: BatchModel, requests: Ints, cost: Floats) -> Ints:
    """Requests by utility per what they cost, highest first; ties by deadline, then as they arrived."""
    queue = model.queue
    density = queue.weight[requests] / np.maximum(cost, 1e-12)
    turn = np.lexsort((queue.order[requests], queue.prefill_by[requests], -density))
    return np.asarray(requests[turn])


def plain_prices(model: BatchModel, grid: Floats) -> Prices:
    """Nothing is scarce: delay alone counts."""
    J, none = model.J, np.zeros(model.J)
    return Prices(
        np.zeros((J, len(grid) + 1)), none, none, np.zeros((J, len(model.paces))), np.full(J, -1), DELAY
    )  # fmt: skip


def even_prices(model: BatchModel, grid: Floats) -> Prices:
    """A second of any instance is worth the same, and all its memory as much as its time."""
    plain, J = plain_prices(model, grid), model.J
    work = np.full_like(plain.work, 1.0 / model.policy.window)
    return Prices(
        work, np.ones(J), 1.0 / np.maximum(1.0, model.instances.free.astype(float)), plain.batch, plain.wish, DELAY
    )  # fmt: skip


def dual_prices(model: BatchModel, board: Board, dual: Dual, bound: Bound) -> Prices:
    """The prices of a bound, per instance; paces as its relaxation opens them."""
    C, G, P = dual.shape
    rows = bound.prices[: len(dual.scale)] / dual.scale
    due_a, due_b, link_a, link_b, _, _, memory = dual.split(rows)
    due = (due_a + due_b).reshape(C, G)
    work = np.zeros((C, G + 1))
    work[:, :G] = np.cumsum(due[:, ::-1], axis=1)[:, ::-1]
    of = np.maximum(dual.classes.of, 0)
    return Prices(
        work=work[of],
        share=(due * dual.grid).sum(axis=1)[of],
        memory=memory[of],
        batch=(link_a + link_b).reshape(C, P)[of],
        wish=_wished(board, dual, bound.opened),
        delay=DELAY,
    )


def _wished(board: Board, dual: Dual, opened: Floats) -> Ints:
    """A pace for every instance so that each class has about as many of each as the relaxation; those that run
    something that needs a fast one get it first."""
    wish = np.full(len(dual.classes.of), -1)
    tightest = np.searchsorted(dual.paces, board.tightest * (1.0 + 1e-9), side="right") - 1
    for c in range(dual.classes.size):
        members = np.flatnonzero(dual.classes.of == c)
        counts = np.round(np.cumsum(opened[c])).astype(int)
        turn = members[np.lexsort((members, ~np.isfinite(board.tau[members]), tightest[members]))]
        paces = np.repeat(np.arange(len(dual.paces)), np.diff(counts, prepend=0))[: len(turn)]
        wish[turn[: len(paces)]] = np.minimum(paces, np.maximum(0, tightest[turn[: len(paces)]]))
    return wish


def cost_at(scout: Scout, prices: Prices) -> Floats:
    """(N,) what each request costs at least at prices, roughly."""
    model = scout.model
    queue, at = model.queue, model.instances
    shape, here = model.K, at.open
    time, share, memory = np.full(shape, np.inf), np.full(shape, np.inf), np.full(shape, np.inf)
    np.minimum.at(time, at.kind[here], prices.work[here, 0])
    np.minimum.at(share, at.kind[here], prices.share[here])
    np.minimum.at(memory, at.kind[here], prices.memory[here])
    rung = np.clip(np.searchsorted(model.paces, queue.itl * (1 + 1e-9), side="right") - 1, 0, None)
    step = np.maximum(queue.step_compute, queue.step_read) / model.paces[rung][:, None]
    with np.errstate(invalid="ignore"):
        cost = time * scout.work + share * step + memory * queue.kv_full[:, None]
    return np.asarray(np.nan_to_num(cost, nan=np.inf).min(axis=1, initial=np.inf))


def planned_turn(scout: Scout, prefill: Ints) -> list[int]:
    """Requests of a plan: who needs the fastest pace first, so that no pace changes under who came before."""
    placed, priority = np.flatnonzero(prefill >= 0).tolist(), scout.model.plain["priority"]
    return sorted(placed, key=lambda i: (scout.own_rung(i), priority[i], i))
