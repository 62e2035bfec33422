"""The additive model as a mixed-integer programme, through PuLP to HiGHS or CBC."""

from __future__ import annotations

from typing import Literal

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.killable import run_killable
from iegopt.solvers.milp.backends import Engine, missing
from iegopt.solvers.result import Params, Result
from iegopt.solvers.surcharges import unstatable

__all__ = ["Milp"]

MOST_PAIRS = 200_000
MOST_TERMS = 2_000_000


class Milp:
    """MILP with one of two engines, in a killable child process: HiGHS prints a banner that no option stops.

    PuLP builds its model in Python: some 2 µs a coefficient, hence ``MOST_TERMS``.
    """

    exact = True

    def __init__(self, name: Literal["milp", "milp-cbc"]) -> None:
        self.name: str = name
        self._engine: Engine = "HiGHS" if name == "milp" else "CBC"
        self.engine = "iegopt.solvers.milp.solver:" + ("run_highs" if name == "milp" else "run_cbc")

    def supports(self, problem: Problem) -> str | None:
        reason = missing(self._engine)
        if reason is not None:
            return reason
        if problem.timed:
            return "start times, overlaps and the makespan have no rows in the additive programme"
        count = np.bincount(problem.options.stage[problem.allowed], minlength=problem.V)
        terms = 10 * int(count[problem.edges.source].sum() + count[problem.edges.target].sum())
        if problem.topology.pair_latency is None and terms > MOST_TERMS:
            return f"about {terms:,} coefficients, more than PuLP builds in reasonable time ({MOST_TERMS:,})"
        return unstatable(problem, MOST_PAIRS)

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        return run_killable(self.engine, problem, params, hint, solver=self.name)
