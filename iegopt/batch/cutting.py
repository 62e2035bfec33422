"""Cutting planes on a level's dual, in a box around the best prices so far: where a subgradient method gets near, they
find the exact optimum of the relaxation in a dozen steps, and where nothing is scarce they see in a few that no prices
help, which the other method never knows.

Every answer of the dual says what each group of items adds at least at any other prices; the least of the sum, a linear
programme, gives the next prices. The box grows where they keep what it promised and shrinks where not.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.batch.bound import Bound, descend, first_prices
from iegopt.batch.dual import Dual, Priced
from iegopt.solvers.clock import Clock

__all__ = ["bounded", "cut"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

FIRST_BOX = 0.01
"""Half the first box's width, relative to the bound."""
PROMISED = 0.1
"""Part of the promised gain from which the box moves."""
CLOSE = 2e-5
"""Relative gain that is not worth another step."""
HELPS = 1e-3
"""Relative gain that shows that something is scarce."""
STEPS = 100
"""Of the subgradient method, where something is."""


def bounded(dual: Dual, target: float, clock: Clock, *, start: Floats | None = None) -> Bound:
    """A bound near the relaxation's own: that of no prices where none help, else the best of subgradients, then cuts.

    Parameters
    ----------
    target
        What a plan has: no bound is below it.
    start
        Prices that may be near.
    """
    none = np.zeros(dual.size)
    none[len(dual.scale) :] = 1.0
    whole = Bound(dual.at(none).value, none, 1, np.zeros(dual.shape[::2]))
    look = cut(dual, whole, clock, enough=HELPS)
    if clock.left <= 0.0 or whole.value - look.value < HELPS * max(1.0, abs(whole.value)):
        return look
    offered = [look.prices, first_prices(dual, clock), *([] if start is None else [start])]
    near = min(offered, key=lambda prices: dual.at(prices).value)
    found = cut(dual, descend(dual, target, clock, start=near, steps=STEPS), clock)
    return found if found.value < look.value else look


def cut(dual: Dual, bound: Bound, clock: Clock, *, steps: int = 25, enough: float = np.inf) -> Bound:
    """A better bound from one that is near; it ends where it is relatively better by ``enough``."""
    centre, found = bound.prices, dual.at(bound.prices)
    best, box = found.value, FIRST_BOX * max(1.0, abs(found.value))
    goal = best - enough * max(1.0, abs(best))
    cuts, opened, asked = [found], bound.opened, bound.steps
    while asked < bound.steps + steps and best > goal and clock.left > 0.0:
        master = _Master(dual, cuts, centre, box)
        master.run(clock.left)
        if master.prices is None:
            break
        found, asked = dual.at(master.prices), asked + 1
        cuts.append(found)
        promised = best - master.value
        gained, opened = best - found.value, master.opened
        if gained > PROMISED * promised:
            best, centre = found.value, master.prices
            box *= 1.5 if gained > 0.5 * promised else 1.0
        else:
            box *= 0.6
        if promised < CLOSE * max(1.0, abs(best)):
            break
    return Bound(best, centre, asked, opened)


class _Master:
    """min  static·u + Σ θ_k + Σ n_c η_c     θ_k ≥ gain − use·u of every cut,  η_c ≥ pull_{c,τ}·u,  u in the box."""

    def __init__(self, dual: Dual, cuts: list[Priced], centre: Floats, box: float) -> None:
        self.dual, self.cuts, self.low, self.high = dual, cuts, np.maximum(0.0, centre - box), centre + box
        self.prices: Floats | None = None
        self.value, self.opened = -np.inf, np.zeros(dual.shape[::2])

    def run(self, limit: float) -> None:
        """Solve it; ``prices`` stay ``None`` where that is not done in time."""
        import highspy

        dual, (C, _, P) = self.dual, self.dual.shape
        R, K = dual.size, dual.groups

        class Quiet(highspy.Highs):
            """HiGHS prints a banner on stdout while it is made, unless it is told not to before its callbacks are."""

            def enableCallbacks(self) -> None:
                self.silent()
                super().enableCallbacks()  # type: ignore[no-untyped-call]

        highs: Any = Quiet()  # type: ignore[no-untyped-call]
        for name, value in (("threads", 1), ("time_limit", max(0.05, limit))):
            highs.setOptionValue(name, value)
        programme: Any = highspy.HighsLp()
        pulls = np.hstack([-dual.pull.reshape(C * P, R), np.zeros((C * P, K)), np.repeat(np.eye(C), P, axis=0)])
        uses = [np.hstack([found.use, np.eye(K), np.zeros((K, C))]) for found in self.cuts]
        rows = np.vstack([pulls, *uses])
        least = np.concatenate([np.zeros(C * P), *(found.gain for found in self.cuts)])
        at = np.nonzero(rows)
        none = np.full(K + C, np.inf)
        programme.num_col_, programme.num_row_ = R + K + C, len(least)
        programme.col_cost_ = np.concatenate([dual.static, np.ones(K), dual.count])
        programme.col_lower_ = np.concatenate([self.low, -none[:K], np.zeros(C)])
        programme.col_upper_ = np.concatenate([self.high, none])
        programme.row_lower_, programme.row_upper_ = least, np.full(len(least), np.inf)
        programme.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        programme.a_matrix_.start_ = np.concatenate([[0], np.cumsum(np.bincount(at[0], minlength=len(least)))])
        programme.a_matrix_.index_, programme.a_matrix_.value_ = at[1].astype(np.int32), rows[at]
        highs.passModel(programme)
        highs.run()
        if highs.getModelStatus() != highspy.HighsModelStatus.kOptimal:
            return
        solution = highs.getSolution()
        self.prices = np.maximum(0.0, np.array(solution.col_value[:R]))
        self.value = float(highs.getInfo().objective_function_value)
        self.opened = np.maximum(0.0, np.array(solution.row_dual[: C * P])).reshape(C, P)
