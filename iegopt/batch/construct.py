"""A plan request by request, every one where it costs least at the prices of time and memory."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.scout import Prices, Scout
from iegopt.solvers.clock import Clock

__all__ = ["PASSES", "fill", "order_by_density"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PASSES = 8
"""Times the requests that were left are tried again, where fairness lets one in only after another."""


def fill(board: Board, scout: Scout, turn: Iterable[int], prices: Prices, clock: Clock) -> None:
    """Place the requests of ``turn`` one after the other, as many as fit, while there is time."""
    left = list(turn)
    again = PASSES if board.tenancy.limited else 1
    for _ in range(again):
        before = len(left)
        left = [i for i in left if not insert(board, scout, i, prices, clock)]
        if len(left) in (0, before) or clock.left <= 0.0:
            return


def insert(board: Board, scout: Scout, i: int, prices: Prices, clock: Clock) -> bool:
    """Place request ``i`` at the best place that takes it."""
    if clock.left <= 0.0:
        return False
    for place in scout.places(board, i, prices):
        if board.place(i, place.prefill, place.decode, place.rung, place.fetch):
            return True
    return False


def order_by_density(scout: Scout, requests: Ints, prices: Prices) -> Ints:
    """Requests by utility per what they cost at best, highest first; ties by deadline."""
    model, queue = scout.model, scout.model.queue
    kind, at = model.instances.kind, model.instances
    open_ = at.open
    time, memory = np.full(model.K, np.inf), np.full(model.K, np.inf)
    np.minimum.at(time, kind[open_], prices.time[open_])
    np.minimum.at(memory, kind[open_], prices.memory[open_])
    with np.errstate(invalid="ignore"):
        step = np.maximum(queue.step_compute[requests], queue.step_read[requests])
        rung = np.clip(np.searchsorted(model.paces, queue.itl[requests] * (1 + 1e-9), side="right") - 1, 0, None)
        share = step / model.paces[rung][:, None]
        cost = time * (scout.work[requests] + share * model.policy.window) + memory * queue.kv_full[requests][:, None]
    least = np.nan_to_num(cost, nan=np.inf).min(axis=1, initial=np.inf)
    density = queue.weight[requests] / np.maximum(least, 1e-12)
    turn = np.lexsort((queue.order[requests], queue.prefill_by[requests], -density))
    return np.asarray(requests[turn])
