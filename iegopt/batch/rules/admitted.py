"""A queue routed by a rule that sends a request only where it and all others keep their limits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import Placement
from iegopt.batch.rules.scores import RULES, Score
from iegopt.batch.rules.traffic import Reach, Traffic
from iegopt.solvers.clock import Clock

__all__ = ["admit", "first_come"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

PASSES = 8
"""Times the requests that were left are tried again, where fairness lets one in only after another."""
DECODERS = 4
"""Instances tried for the decode of one that prefills only."""


def first_come(model: BatchModel, refused: bool = False) -> list[int]:
    """Requests by priority, then as they arrived; with ``refused`` those too that no router could serve in time."""
    turn = np.lexsort((model.queue.order, model.queue.priority))
    return [int(i) for i in turn if refused or not model.alone.refused[i]]


def admit(
    model: BatchModel, rule: str, *, speeds: bool = True, tries: int = 32, clock: Clock | None = None
) -> Placement:
    """Every request in turn on the first of the rule's instances that takes it; the rest waits.

    Parameters
    ----------
    rule
        One of ``RULES``.
    speeds
        Whether the router knows how fast and how large its instances are.
    tries
        Instances tried for one request, those that the load alone rules out last.
    clock
        The rest waits once it has run out.
    """
    board, traffic, score = Board(model), Traffic(model, speeds=speeds), RULES[rule]
    left = first_come(model)
    for _ in range(PASSES if board.tenancy.limited else 1):
        waiting = []
        for i in left:
            if clock is not None and clock.left <= 0.0:
                return board.plan
            if not any(_place(board, traffic, i, p) for p in _ranked(board, traffic, score, i, tries)):
                waiting.append(i)
        if len(waiting) in (0, len(left)):
            break
        left = waiting
    return board.plan


def _ranked(board: Board, traffic: Traffic, score: Score, i: int, most: int) -> Iterator[int]:
    """The rule's first instances in its order, those that look full behind all others."""
    reach = traffic.reach(i)
    figures, full = score(traffic, i, reach), _full(board, traffic, i, reach)
    for rows in (np.flatnonzero(~full), np.flatnonzero(full)):
        worth, found = figures[rows], rows
        if len(rows) > 4 * most:
            near = np.flatnonzero(worth <= np.partition(worth, most - 1)[most - 1])
            worth, found = worth[near], rows[near]
        for n in found[np.argsort(worth, kind="stable")][:most].tolist():
            yield int(reach.instance[n])
        most -= len(rows)
        if most <= 0:
            return


def _full(board: Board, traffic: Traffic, i: int, reach: Reach) -> Bools:
    """Whether what is placed leaves an instance no memory, batch or time for the request."""
    queue, at, j = board.model.plain, board.model.instances, reach.every
    count = queue["sequences"][i] if queue["output"][i] else 0
    full = np.where(reach.both, queue["kv_full"][i], queue["kv_prompt"][i]) > board.memory[j]
    full |= reach.both & (count > board.sequences[j])
    matched, _ = traffic.matched(i, reach)
    work = traffic.work[i][reach.kind] * (1.0 - matched / max(1, queue["prompt"][i]))
    by = min(queue["prefill_by"][i], queue["e2e"][i])
    before = int(np.searchsorted(board.grid, by, side="right")) - 1
    due = board.due[j, before] if before >= 0 else 0.0
    share = np.maximum(board.compute[j], board.read[j]) / board.tau[j]
    return np.asarray(full | (due + work > (1.0 - at.other[j] - share) * by))


def _place(board: Board, traffic: Traffic, i: int, p: int) -> bool:
    """Try request ``i`` on ``p``, its decode there too, or on the emptiest that decode."""
    decodes = board.model.plain["output"][i] > 0
    both = bool(board.model.instances.decodes[p]) or not decodes
    for q in [p] if both else traffic.decoders(p)[:DECODERS].tolist():
        for rung in _rungs(board, i, q):
            if board.place(i, p, q, rung):
                traffic.send(i, p, q)
                return True
    return False


def _rungs(board: Board, i: int, q: int) -> Iterator[int]:
    """Paces to try: as it is, as fast as the throughput class wants, as slow as the limits leave, one faster."""
    queue, model = board.model.plain, board.model
    now = int(board.plan.pace[q])
    if not queue["output"][i]:
        yield now
        return
    limit = min(queue["itl"][i], float(board.tightest[q]), queue["e2e"][i] / queue["output"][i]) * (1.0 + 1e-9)
    slowest = int(np.searchsorted(model.paces, limit, side="right")) - 1
    wanted = max(0, int(np.searchsorted(model.paces, model.policy.reference_pace * (1.0 + 1e-9), side="right")) - 1)
    busy = bool(np.isfinite(board.tau[q]))
    first = [now] if busy and 0 <= now <= slowest else []
    for rung in dict.fromkeys([*first, min(slowest, wanted), slowest, slowest - 1]):
        if rung >= 0:
            yield rung
