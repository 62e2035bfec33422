"""The whole problem as a CP-SAT model (OR-Tools)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.killable import run_killable
from iegopt.solvers.result import Params, Result
from iegopt.solvers.surcharges import unstatable

__all__ = ["CpSat"]

MOST_PAIRS = 500_000


class CpSat:
    """CP-SAT; in a killable child process where there is a time limit, else in this one."""

    name = "cpsat"
    exact = True

    def supports(self, problem: Problem) -> str | None:
        return unstatable(problem, MOST_PAIRS)

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        if params.time_limit is not None:
            return run_killable("iegopt.solvers.cpsat.solver:run", problem, params, hint, solver=self.name)
        from iegopt.solvers.cpsat.solver import run

        return run(problem, params, hint)
