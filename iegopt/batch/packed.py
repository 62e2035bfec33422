"""A plan after blueprints, level by level: each is drawn of what the levels above have left."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy.typing as npt

from iegopt.batch.blueprint import drawn
from iegopt.batch.board import Board
from iegopt.batch.bound_rows import Classes, Items
from iegopt.batch.construct import fill, order_by_density, plain_prices, set_paces
from iegopt.batch.dealing import whole_instances
from iegopt.batch.denser import denser
from iegopt.batch.first import FirstPlan
from iegopt.batch.leavings import Leavings
from iegopt.batch.packing import Packing
from iegopt.batch.placement import Placement
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["packed"]

Floats = npt.NDArray[np.float64]

PACKING = 0.8
"""Part of the time for the blueprints and what follows them; the rest is for what they have not come to."""
MISSED = 0.05
"""Part of what a blueprint places of a level for which its packing finds no room, from which it may be misleading."""


def packed(scout: Scout, classes: Classes, items: Items, levels: list[int], cost: Floats, whole: Clock) -> Placement:
    """Fill a board; what time is up for is placed as in a first plan.

    Parameters
    ----------
    items
        The queue's.
    cost (N,)
        What each request takes, in any unit.
    """
    model, clock = scout.model, whole.slice(PACKING * whole.left)
    board, leavings = Board(model), Leavings(model)
    plain = plain_prices(model, board.grid)
    for n, level in enumerate(levels, start=1):
        blueprint = drawn(board, classes, items, clock)
        if blueprint is None:
            break
        start = board.plan.copy()
        claims = whole_instances(board, scout, blueprint) if n == 1 else {}
        packing = Packing(board, scout, classes, blueprint, leavings, claims)
        prices = replace(plain, wish=packing.wish)
        set_paces(board, prices)
        packing.claim(clock)
        left = packing.fill(level, clock)
        turn = order_by_density(model, left, cost[left]).tolist()
        part = clock.slice(clock.left / (1 + len(levels) - n))
        fill(board, scout, turn, prices, part)
        if packing.missed > MISSED:
            filled, board = board, denser(board, scout, start, level, cost, plain, part)
            leavings = leavings if board is filled else Leavings.of(model, board.plan)
    if clock.left <= 0.0:
        FirstPlan(board, scout).fill(cost, whole)
    return board.plan
