"""The best plan and the best bound of one run, kept outside the engines and never lost.

An engine's solutions are claims: each is checked and priced again in integers before it counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.result import OPTIMALITY_GAP, Report, Result, Status, relative_gap, unheard
from iegopt.solvers.timetable import timetable

__all__ = ["NO_OPTION", "Improvement", "Incumbent", "Report", "no_option", "of_restricted", "plans_only"]

Ints = npt.NDArray[np.int64]
NO_OPTION = "no option"
"""What proves that there is no plan where a stage has no option left."""
SENTENCE = {
    Status.OPTIMAL: "proven optimal",
    Status.FEASIBLE: "stopped by a limit with a plan",
    Status.UNKNOWN: "stopped by a limit before any plan was found or infeasibility was proven",
}


@dataclass(frozen=True, eq=False)
class Improvement:
    """What is known ``seconds`` after the start of a solve: the attributes are those of ``Result``.

    ``choice`` and ``objective`` are ``None`` before there is a plan, ``bound`` before anything is proven.
    """

    seconds: float
    choice: Ints | None
    objective: int | None
    bound: int | None
    proof: str | None
    start: Ints | None = None

    @property
    def gap(self) -> float | None:
        """(objective − bound) / |objective|; ``None`` where either is missing."""
        return relative_gap(self.objective, self.bound)


class Incumbent:
    """The best feasible plan so far, starting with the hint where that is feasible."""

    def __init__(self, problem: Problem, solver: str, hint: Ints | None, report: Report = unheard) -> None:
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
        if better:
            self._report(choice, None, None, *([] if start is None else [start]))
        return True

    def raise_bound(self, bound: int, proof: str) -> None:
        """Take a proven lower bound, in ticks, if it is higher."""
        with self._lock:
            higher = self.bound is None or bound > self.bound
            if higher:
                self.bound, self.proof = bound, proof
        if higher:
            self._report(None, bound, proof)

    def take(self, choice: Ints | None, bound: int | None, proof: str | None, start: Ints | None = None) -> None:
        """Take what a run reports: this is a ``Report``."""
        if choice is not None:
            self.offer(choice, start)
        if bound is not None:
            self.raise_bound(bound, proof or self._solver)

    def improvement(self, seconds: float) -> Improvement:
        """What is known now, ``seconds`` after the start."""
        with self._lock:
            bound = self.bound
            if bound is not None and self.objective is not None:
                bound = min(bound, self.objective)
            return Improvement(seconds, self.choice, self.objective, bound, self.proof, self.start)

    def infeasible(self, proof: str, note: str, seconds: float, stats: Mapping[str, Any] | None = None) -> Result:
        """``proof`` says that there is no plan; a bug if one is at hand."""
        if self.choice is not None:
            raise InternalError(f"{self._solver} claims infeasibility of a problem that has a feasible plan")
        return Result(Status.INFEASIBLE, None, None, None, proof, self._solver, seconds, note, stats or {})

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


def plans_only(report: Report) -> Report:
    """For a run on a part of the problem: its plans are plans of the whole, its bounds hold for the part alone."""

    def pass_on(choice: Ints | None, bound: int | None, proof: str | None, start: Ints | None = None) -> None:
        if choice is not None:
            report(choice, None, None, start)

    return pass_on


def of_restricted(report: Report, kept: Ints) -> Report:
    """For a run on a restricted problem, whose option i is ``kept[i]`` of the whole and whose bounds hold for it."""

    def pass_on(choice: Ints | None, bound: int | None, proof: str | None, start: Ints | None = None) -> None:
        report(None if choice is None else kept[choice], bound, proof, start)

    return pass_on


def no_option(problem: Problem) -> str | None:
    """The sentence for a stage without any allowed option, which needs no engine; else ``None``."""
    count = np.bincount(problem.options.stage[problem.allowed], minlength=problem.V)
    empty = np.flatnonzero(count == 0)
    if not empty.size:
        return None
    return f"stage {problem.stages[int(empty[0])]} has no option that keeps its time limits and fits its devices"
