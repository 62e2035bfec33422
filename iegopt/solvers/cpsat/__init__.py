"""The whole problem as a CP-SAT model (OR-Tools)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.killable import run_killable
from iegopt.solvers.loads import device_loads
from iegopt.solvers.result import Params, Result
from iegopt.solvers.surcharges import allowed_of, unstatable

__all__ = ["CpSat"]

MOST_PAIRS = 500_000
MOST_TERMS = 300_000
"""Terms of memory at the moments of all starts."""


class CpSat:
    """CP-SAT; in a killable child process where there is a time limit, else in this one.

    The limit of a first call includes the start of the child, see ``iegopt.solvers.killable``.
    """

    name = "cpsat"
    exact = True
    engine = "iegopt.solvers.cpsat.solver:run"
    """What the child process runs."""

    def supports(self, problem: Problem) -> str | None:
        reason = unstatable(problem, MOST_PAIRS)
        if reason is not None or not problem.peak_memory:
            return reason
        options = [allowed_of(problem, v) for v in range(problem.V)]
        terms = problem.V * sum(len(load.options) for load in device_loads(problem, options))
        return f"{terms:,} terms of memory at all starts, more than {MOST_TERMS:,}" if terms > MOST_TERMS else None

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        if params.time_limit is not None:
            return run_killable(self.engine, problem, params, hint, solver=self.name)
        from iegopt.solvers.cpsat.solver import run

        return run(problem, params, hint)
