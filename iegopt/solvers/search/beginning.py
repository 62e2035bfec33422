"""How a solve under a clock begins: a plan before the relaxation where the limit is short, and the end without it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.result import Result, Status
from iegopt.solvers.search.quick import quick_plan
from iegopt.solvers.seconds import relaxation_seconds

__all__ = ["Best", "before_relaxation", "quick_start", "usable_hint"]

Ints = npt.NDArray[np.int64]
Best = tuple[int, Ints]
"""Objective in ticks and (V,) options of a feasible plan."""

_SHORT = 4.0
"""Multiple of the relaxation's time up to which a limit is short: a quick plan comes first."""


def quick_start(problem: Problem, clock: Clock, hint: Ints | None) -> Best | None:
    """The hint, where it is feasible, or a quick plan where the limit is short: the better of both."""
    first = usable_hint(problem, hint)
    if clock.limit >= _SHORT * relaxation_seconds(problem):
        return first
    quick = quick_plan(problem, clock)
    return min((plan for plan in (first, quick) if plan is not None), key=lambda plan: plan[0], default=None)


def usable_hint(problem: Problem, hint: Ints | None) -> Best | None:
    """(objective, plan) of a feasible hint."""
    if hint is None:
        return None
    plan = np.asarray(hint, dtype=np.int64)
    return (objective(problem, plan), plan) if feasible(problem, plan) else None


def before_relaxation(best: Best | None, solver: str, clock: Clock) -> Result:
    """The clock left no time to prove anything."""
    note = "best fit over a sample of sites; no bound: the time limit is too short for the relaxation"
    if best is None:
        note = "the time limit came before a plan was found or the relaxation was solved"
        return Result(Status.UNKNOWN, None, None, None, None, solver, clock.seconds, note)
    return Result(Status.FEASIBLE, best[1], best[0], None, None, solver, clock.seconds, note)
