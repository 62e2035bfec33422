"""A plan carried over to a changed cluster: only the stages that lost their place move."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.explain.chosen import options_of
from iegopt.plans import Plan
from iegopt.problem.arrays import Problem
from iegopt.problem.restrict import restrict
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Params

__all__ = ["nearby"]

Ints = npt.NDArray[np.int64]

_SHARE = 0.25
"""Share of the time left that placing the stages without a place may take."""


def nearby(problem: Problem, plan: Plan, clock: Clock) -> Ints | None:
    """(V,) options: those of the plan that still are allowed, and for all other stages the best beside them.

    ``None`` where there is no such plan, or none was found in time.
    """
    mask = problem.allowed.copy()
    for v, option in enumerate(options_of(problem, plan)):
        if option is not None and mask[option]:
            mask[problem.options.of(v)] = False
            mask[option] = True
    small, kept = restrict(problem, mask)
    choice = solve(small, "auto", Params(time_limit=max(0.0, _SHARE * clock.left))).choice
    return None if choice is None else kept[choice]
