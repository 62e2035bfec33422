"""A gap closed from below in parts: the lower half of it, half of what is left, then all of it.

A part is searched as if a plan were known at its upper end. Options whose min-marginals are above that are left out,
and a beam drops partial plans above it: both leave far fewer than the best known plan does, where that is not optimal
yet. A plan that is found then is proven optimal at once; where there is none, the end of the part is a bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.branching import propagate
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.in_time import in_time
from iegopt.solvers.exact.priced_plans import offer_plans_of, search_beam
from iegopt.solvers.exact.pricing import Priced, Pricing, split_rows

__all__ = ["SOLVING_WIDTH", "search_by_parts"]

Bools = npt.NDArray[np.bool_]

SOLVING_WIDTH = 20_000
"""Partial plans up to which a beam that is to solve a node is not cut."""
_PARTS, _PART_WIDTH = 2, 8_000
"""Parts before the whole, and partial plans up to which their beams are not cut."""
_ALIKE = 0.8
"""Share of the options that the whole of a gap leaves from which on a part of it is not worth a look of its own."""
_STEPS, _WIDTH = (4, 2), 256
"""Steps of prices of the first part and of each that follows, and width of a beam once it is cut."""


def search_by_parts(
    c: Candidates,
    priced: Priced,
    keep: Bools,
    bound: int,
    length: float,
    best: BestPlan,
    clock: Clock,
    late: Callable[[float], bool],
) -> int:
    """Offer the plans found, part by part as long as each is solved; a bound on every plan of a node.

    Parameters
    ----------
    priced, keep (n,)
        The node, alone in ``priced``, and its options.
    bound
        Ticks that are known to bound it.
    length
        Of the steps of prices, in parts of Polyak's.
    late
        Whether time is up in so many seconds.
    """
    price, toll = priced.price, priced.toll
    for part in range(_PARTS + 1):
        upper = best.upper
        if bound >= upper:
            break
        end = upper if part == _PARTS else bound + max(1, (upper - bound) // 2)
        left = _left(c, priced, keep, end)
        if end < upper and left is not None and left.sum() > _ALIKE * (keep & (priced.marginals[:, 0] < upper)).sum():
            end, left = upper, _left(c, priced, keep, upper)
        if left is None:
            bound = end
            continue
        few = c.restrict(left, reorder=True)
        every = np.ones(len(few.option), dtype=np.bool_)
        pricing = Pricing(few, every[:, None], price, split_rows(c, priced.split, left, few), toll)
        steps = _STEPS[min(part, 1)]
        target = _Target(end, best)
        again = pricing.run(target, steps, length, offer_plans_of(few, best), late, patient=False)
        price, toll = again.price, again.toll
        found = min(end, int(again.bound[0]))
        if found < end and not late(0.0):
            wide = SOLVING_WIDTH if end == upper else _PART_WIDTH
            found = search_beam(few, again, 0, every, _WIDTH, best, clock, wide, end)
        bound = max(bound, found)
        if found < end or bound >= best.upper or late(0.0):
            break
    return bound


@dataclass(frozen=True, eq=False)
class _Target:
    """The end of a part, or a better plan that was found since."""

    end: int
    best: BestPlan

    def __call__(self) -> int:
        return min(self.end, self.best.upper)


def _left(c: Candidates, priced: Priced, keep: Bools, end: int) -> Bools | None:
    """The options (n,) that a plan below an end can use."""
    return propagate(c, in_time(c, (keep & (priced.marginals[:, 0] < end))[:, None])[:, 0])
