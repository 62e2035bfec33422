"""What a solver is: two methods and a name. ``iegopt.solvers.api.SOLVERS`` is the table of them."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.result import Params, Result

__all__ = ["Solver"]


class Solver(Protocol):
    """A solver in one file: put an instance into ``SOLVERS`` and every test runs on it."""

    name: str
    exact: bool
    """Whether, given time, it proves optimality or infeasibility of every problem it supports."""

    def supports(self, problem: Problem) -> str | None:
        """``None`` where the solver can state the problem, else the reason why it cannot."""

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        """Solve; ``hint`` is (V,) option indices of a plan to start from, never lost if feasible."""
