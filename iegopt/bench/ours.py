"""The solvers of ``SOLVERS`` as engines; those with an engine behind them run it in the process they are run in."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.api import SOLVERS, solve
from iegopt.solvers.incumbent import Report
from iegopt.solvers.result import Params, Result
from iegopt.solvers.worker import resolve

__all__ = ["Ours"]

_IN_PROCESS = {
    "cpsat": "iegopt.solvers.cpsat.solver:run",
    "milp": "iegopt.solvers.milp.solver:run_highs",
    "milp-cbc": "iegopt.solvers.milp.solver:run_cbc",
}
"""What the solver would run in a killable child of its own; the benchmark has already given it one."""


class Ours:
    """A solver of the table under its own name."""

    packages: tuple[str, ...] = ()
    fresh: bool = False

    def __init__(self, name: str) -> None:
        self.name = name

    def supports(self, problem: Problem) -> str | None:
        return SOLVERS[self.name].supports(problem)

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None, report: Report) -> Result:
        if self.name in _IN_PROCESS:
            run: Callable[..., Result] = resolve(_IN_PROCESS[self.name])
            return run(problem, params, hint, report)
        return solve(problem, self.name, dataclasses.replace(params, report=report), hint)
