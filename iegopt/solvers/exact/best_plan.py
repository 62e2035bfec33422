"""The best plan of a search, and the value that a better one has to stay below."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.grain import grain_of
from iegopt.solvers.result import Report, unheard

__all__ = ["BestPlan"]

Ints = npt.NDArray[np.int64]


class BestPlan:
    """Mutable; ``value`` and ``plan`` are ``None`` before there is a plan.

    Parameters
    ----------
    best
        (objective, plan) to beat, or ``None``.
    above
        Ticks above the objective of any plan.
    report
        Receives every better plan.
    """

    def __init__(self, problem: Problem, best: tuple[int, Ints] | None, above: int, report: Report = unheard) -> None:
        self.problem = problem
        self.value: int | None = None if best is None else best[0]
        self.plan: Ints | None = None if best is None else best[1]
        self._above = above
        self._grain = grain_of(problem)
        self._report = report
        self._seen: set[bytes] = set()

    @property
    def upper(self) -> int:
        """What every better plan is below: one above that of the next best, or of any plan."""
        return self._above if self.value is None else self.value + 1 - self._grain

    def offer(self, plan: Ints) -> bool:
        """Take a plan (V,) of the problem's options where it is feasible and better."""
        seen = plan.tobytes()
        if seen in self._seen:
            return False
        self._seen.add(seen)
        value = objective(self.problem, plan)
        if value >= self.upper or not feasible(self.problem, plan):
            return False
        self._report(plan, None, None)
        return self.take((value, plan))

    def take(self, best: tuple[int, Ints]) -> bool:
        """Take a feasible (objective, plan) where it is better."""
        better = best[0] < self.upper
        if better:
            self.value, self.plan = best
        return better
