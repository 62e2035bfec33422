"""The best plan and the best bound of one run, kept outside the engines and never lost.

An engine's solutions are claims: each is checked and priced again in integers before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.result import OPTIMALITY_GAP, Result, Status, relative_gap
from iegopt.solvers.timetable import timetable

__all__ = ["Incumbent", "Report", "no_option"]

Ints = npt.NDArray[np.int64]
Report = Callable[..., None]
"""Receives (plan or ``None``, bound in ticks or ``None``, what proved the bound[, start times]) as an engine runs."""

SENTENCE = {
    Status.OPTIMAL: "proven optimal",
    Status.FEASIBLE: "stopped by a limit with a plan",
    Status.UNKNOWN: "stopped by a limit before any plan was found or infeasibility was proven",
}


class Incumbent:
    """The best feasible plan so far, starting with the hint where that is feasible."""

    def __init__(self, problem: Problem, solver: str, hint: Ints | None, report: Report | None = None) -> None:
        self._problem = problem
        self._solver = solver
        self._report = report
        self._lock = Lock()
        self.choice: Ints | None = None
        self.start: Ints | None = None
        self.objective: int | None = None
        self.bound: int | None = None
        self.proof: str | None = None
        if hint is not None and feasible(problem, hint):
            self.choice, self.objective = hint.astype(np.int64), objective(problem, hint)
            self.start = timetable(problem, hint).start if problem.no_overlap else None

    def offer(self, choice: Ints, start: Ints | None = None) -> bool:
        """Take a plan if it is feasible and better; tells whether it is feasible."""
        if not feasible(self._problem, choice, start):
            return False
        value = objective(self._problem, choice, start)
        with self._lock:
            better = self.objective is None or value < self.objective
            if better:
                self.choice, self.objective, self.start = choice, value, start
        if better and self._report is not None:
            self._report(choice, None, None, *([] if start is None else [start]))
        return True

    def raise_bound(self, bound: int, proof: str) -> None:
        """Take a proven lower bound, in ticks, if it is higher."""
        with self._lock:
            higher = self.bound is None or bound > self.bound
            if higher:
                self.bound, self.proof = bound, proof
        if higher and self._report is not None:
            self._report(None, bound, proof)

    def infeasible(self, note: str, seconds: float, stats: Mapping[str, Any] | None = None) -> Result:
        """The engine proved that there is no plan; a bug if one is at hand."""
        if self.choice is not None:
            raise InternalError(f"{self._solver} claims infeasibility of a problem that has a feasible plan")
        return Result(Status.INFEASIBLE, None, None, None, None, self._solver, seconds, note, stats or {})

    def result(self, seconds: float, stats: Mapping[str, Any] | None = None, note: str | None = None) -> Result:
        """The best plan and bound as a result: optimal where they are within the gap of a proof."""
        bound = self.bound
        if self.objective is not None and bound is not None:
            bound = min(bound, self.objective)
        gap = relative_gap(self.objective, bound)
        if self.choice is None:
            status = Status.UNKNOWN
        else:
            status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
        proof = None if bound is None else self.proof
        sentence = note or SENTENCE[status]
        return Result(
            status, self.choice, self.objective, bound, proof, self._solver, seconds, sentence, stats or {}, self.start
        )


def no_option(problem: Problem) -> str | None:
    """The sentence for a stage without any allowed option, which needs no engine; else ``None``."""
    count = np.bincount(problem.options.stage[problem.allowed], minlength=problem.V)
    empty = np.flatnonzero(count == 0)
    if not empty.size:
        return None
    return f"stage {problem.stages[int(empty[0])]} has no option that keeps its time limits and fits its devices"
