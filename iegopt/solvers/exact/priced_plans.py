"""Plans that priced bounds give: relaxed ones that happen to fit, and those of beams."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.beam import beam
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pricing import Priced

__all__ = ["offer_plans_of", "search_beams"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_CELLS = 200_000
"""Cells of a beam."""
_PRICED_PLANS = 20
"""Plans of a beam that are priced in full."""


def offer_plans_of(c: Candidates, best: BestPlan) -> Callable[[Ints], None]:
    """What takes a relaxed plan (V,) of candidates where it is better than the best."""

    def take(plan: Ints) -> None:
        if c.cost_of(plan[None, :])[0] < best.upper:
            best.offer(c.option[plan])

    return take


def search_beams(
    c: Candidates,
    priced: Priced,
    column: int,
    keep: Bools,
    widths: Sequence[int],
    best: BestPlan,
    late: Callable[[], bool],
) -> int:
    """Offer the plans of beams, ever wider; a bound on every plan of the node, at least ``upper`` where it is solved.

    Parameters
    ----------
    column, keep (n,)
        The node: its column in ``priced`` and its options.
    late
        Whether time is up.
    """
    bound = -UNREACHABLE
    for width in widths:
        found = beam(c, priced, column, keep, best.upper, width, _CELLS)
        without = found.bound
        for i, (plan, value) in enumerate(zip(found.plans, found.value.tolist(), strict=True)):
            if i == _PRICED_PLANS:
                without = min(without, value)
            if i == _PRICED_PLANS or value >= best.upper or best.offer(c.option[plan]):
                break
        bound = max(bound, without)
        if bound >= best.upper or late():
            break
    return bound
