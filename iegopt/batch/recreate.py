"""Ruin and recreate: part of a plan is taken off and planned anew in another order, at other paces, with other running
stages moved or put aside (after Schrimpf et al., Record breaking optimization results using the ruin and recreate
principle, Journal of Computational Physics 159, 2000).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.construct import insert
from iegopt.batch.model import BatchModel
from iegopt.batch.moving import Moving
from iegopt.batch.placement import KEEP, MIGRATE, PREEMPT, Placement
from iegopt.batch.reach import Prices
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["recreated", "trials"]

Floats = npt.NDArray[np.float64]

MOST, WORK = 120, 3000
"""Trials at most, and trials times requests: a trial takes about a quarter of a millisecond a request."""
FEW, ALL = 3, 0.3
"""Instances that are emptied, and how often all are."""
STIRRED = 0.4
"""How often a running stage there is moved, or put aside where it may be."""
NOISE = 0.7
"""Standard deviation of the logarithm that the order by utility for the cost is disturbed by."""


def trials(model: BatchModel) -> int:
    """How often a plan of the model is worth recreating; none where that would take long."""
    return min(MOST, WORK // max(1, model.N))


def recreated(
    scout: Scout, moving: Moving, best: Placement, cost: Floats, prices: Prices, rng: np.random.Generator, clock: Clock
) -> Board:
    """A board of ``best`` with a few instances emptied and all that is not placed inserted anew.

    Parameters
    ----------
    cost (N,)
        What each request takes, in any unit.
    """
    model = scout.model
    board, emptied = Board(model), np.ones(model.J, dtype=bool)
    if rng.random() >= ALL:
        emptied[:] = False
        emptied[rng.permutation(model.J)[:FEW]] = True
    _run(board, moving, best, emptied, rng)
    p, q = best.prefill, best.decode
    kept = np.flatnonzero((p >= 0) & ~emptied[p] & ~emptied[q])
    for i in kept[np.argsort(model.queue.itl[kept], kind="stable")].tolist():
        board.place(i, int(p[i]), int(q[i]), int(best.pace[q[i]]), int(best.fetch[i]))
    wish = np.where(emptied, rng.integers(-1, len(model.paces), model.J), prices.wish)
    rest = np.flatnonzero((board.plan.prefill < 0) & np.isfinite(cost) & ~model.alone.hopeless)
    worth = np.log(np.maximum(model.queue.weight[rest], 1e-12) / np.maximum(cost[rest], 1e-12))
    worth += NOISE * rng.standard_normal(len(rest))
    for i in rest[np.lexsort((-worth, model.queue.priority[rest]))].tolist():
        insert(board, scout, i, replace(prices, wish=wish), clock)
    return board


def _run(
    board: Board, moving: Moving, best: Placement, emptied: npt.NDArray[np.bool_], rng: np.random.Generator
) -> None:
    """Running stages as the plan has them, those of emptied instances some other way."""
    model, running = board.model, board.model.running
    config = model.policy.preemption_config
    first = int(model.queue.priority.min(initial=np.iinfo(np.int64).max))
    for r in range(model.R):
        at = int(running.instance[r])
        action = int(best.action[r])
        if emptied[at]:
            action = KEEP
            if rng.random() < STIRRED and not moving.moved(board, r, at):
                may = config.enabled and running.preempted[r] < config.max_preempt_per_request
                action = PREEMPT if may and running.priority[r] - config.min_priority_gap >= first else KEEP
        if action == PREEMPT:
            board.preempt(r)
        elif action == MIGRATE and not moving.take(board, r, at, int(best.to[r])):
            moving.moved(board, r, at)
