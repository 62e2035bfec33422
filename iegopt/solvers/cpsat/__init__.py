"""The whole problem as a CP-SAT model (OR-Tools)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.segments import per_stage
from iegopt.solvers.killable import run_killable
from iegopt.solvers.loads import device_loads, latest_finish
from iegopt.solvers.result import Params, Result
from iegopt.solvers.surcharges import allowed_of, unstatable

__all__ = ["CpSat"]

MOST_PAIRS = 500_000
MOST_TERMS = 300_000
"""Terms of memory at the moments of all starts."""
_MOST_TICKS = 2**62
"""Sum of the bounds of all variables of time."""


class CpSat:
    """CP-SAT; in a killable child process where there is a time limit, else in this one.

    The limit of a first call includes the start of the child, see ``iegopt.solvers.killable``.
    """

    name = "cpsat"
    exact = True
    engine = "iegopt.solvers.cpsat.solver:run"
    """What the child process runs."""

    def supports(self, problem: Problem) -> str | None:
        reason = unstatable(problem, MOST_PAIRS) or _too_long(problem)
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


def _too_long(problem: Problem) -> str | None:
    """Why the moments of a problem are too far apart: CP-SAT sums the bounds of all variables in int64."""
    if not problem.V or not (problem.timed or problem.has_path_limits):
        return None
    options = problem.options
    latest = latest_finish(problem).tolist()
    if problem.timed:
        longest = per_stage(np.maximum, np.where(problem.allowed, options.time, 0), options.ptr, 0)
        latency, rate = problem.topology.slowest
        moved = float((latency + problem.edges.bytes * rate).sum()) * TICKS_PER_SECOND
        horizon = float(sum(longest.tolist())) + moved
        unit = max(1, int(np.gcd.reduce(options.time[problem.allowed], initial=0))) if moved == 0 else 1
        variables = 3 * problem.V + 2 + (problem.V + problem.E if problem.peak_memory else 0)
        total = variables * min(horizon, float(max(latest))) / unit
    else:
        total = float(sum(by for by in latest if by < NO_LIMIT))
    if total < _MOST_TICKS:
        return None
    return f"moments that add up to {total:.3g} ns over all variables, more than CP-SAT takes (2^62)"
