"""Plans that priced bounds give: relaxed ones that happen to fit, and those of beams."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.exact.beam import beam
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.pricing import Priced

__all__ = ["offer_plans_of", "search_beam"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CELLS, _WIDE_CELLS = 200_000, 2_000_000
"""Cells of beams, and of those that are to solve a node."""
_LEAST_WIDTH, _WIDTH_PER_SECOND = 16, 200_000
"""Width of a beam at least, and per second left: so that a stage takes little of that."""
_PRICED_PLANS = 20
"""Plans of a beam that are priced in full."""


def offer_plans_of(c: Candidates, best: BestPlan) -> Callable[[Ints], None]:
    """What takes relaxed plans (P, V) of candidates where they are better than the best."""

    def take(plans: Ints) -> None:
        for plan in plans[c.cost_of(plans) < best.upper]:
            best.offer(c.option[plan])

    return take


def search_beam(
    c: Candidates,
    priced: Priced,
    column: int,
    keep: Bools,
    width: int,
    best: BestPlan,
    clock: Clock,
    wide: int = 0,
    below: int | None = None,
) -> int:
    """Offer the plans of a beam; a bound on every plan of the node, at least ``upper`` where it is solved.

    Parameters
    ----------
    column, keep (n,)
        The node: its column in ``priced`` and its options.
    width, wide
        Where the time left allows them: ``wide`` is there to solve the node, and holds until it cannot.
    below
        Look for plans below this alone, where that is less than ``upper``; the bound is then no more than this.
    """
    most = max(_LEAST_WIDTH, clock.left / lag() * _WIDTH_PER_SECOND)
    first = (int(min(wide, most)), _WIDE_CELLS) if wide else None
    upper = best.upper if below is None else min(below, best.upper)
    found = beam(c, priced, column, keep, upper, int(min(width, most)), _CELLS, clock, first)
    bound = found.bound
    for i, (plan, value) in enumerate(zip(found.plans, found.value.tolist(), strict=True)):
        if i == _PRICED_PLANS:
            return min(bound, int(value))
        if value >= best.upper or best.offer(c.option[plan]):
            break
    return bound
