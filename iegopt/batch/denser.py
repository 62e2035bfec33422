"""A level filled request by request in place of its packing.

A blueprint sees sums of time. Under overload by requests whose limits are short it places more than single instances
have room for, and its packing, the largest first, then finds places for few.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.construct import fill, order_by_density
from iegopt.batch.outcome import worth_more
from iegopt.batch.placement import Placement
from iegopt.batch.reach import Prices
from iegopt.batch.schedule import evaluate
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["denser"]

Floats = npt.NDArray[np.float64]


def denser(
    board: Board, scout: Scout, start: Placement, level: int, cost: Floats, prices: Prices, clock: Clock
) -> Board:
    """The board, or that of ``start`` with a level's requests on it, those first that are worth most for what they
    cost (N,), whichever is worth more."""
    model = board.model
    outcome = evaluate(model, start)
    other = Board.of(model, start, outcome.objective, outcome.work)
    requests = np.flatnonzero((model.queue.priority == level) & (start.prefill < 0))
    fill(other, scout, order_by_density(model, requests, cost[requests]).tolist(), prices, clock)
    return other if worth_more(other.worth, board.worth) else board
