"""toulbar2 (pytoulbar2): the problem as a cost function network of dense tables.

Options and state of the engine are global and ``Solve`` can be called once: one process a run. It tells of a
plan only at its end, and overshoots its limit, which is in whole seconds of processor time: where its process is
killed, what it had found is lost. With a hint, the hint's value is the initial upper bound.
"""

from __future__ import annotations

import math
import time

import numpy as np
import numpy.typing as npt

from iegopt.bench.engine import not_additive
from iegopt.bench.peers.tables import Tables, too_many_pairs
from iegopt.problem.arrays import Problem
from iegopt.solvers.evaluate import objective
from iegopt.solvers.incumbent import NO_OPTION, Incumbent, Report, no_option
from iegopt.solvers.result import Params, Result

__all__ = ["Toulbar2"]

MOST_PAIRS = 60_000_000
"""20 stages on 1,024 sites take 230 MB."""
_TOP = 2**60


class Toulbar2:
    """Hybrid best-first branch and bound with soft local consistency, one thread."""

    packages: tuple[str, ...] = ("pytoulbar2",)
    fresh: bool = True

    def supports(self, problem: Problem) -> str | None:
        reason = not_additive(problem)
        if reason is not None:
            return reason
        return too_many_pairs(problem, MOST_PAIRS)

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None, report: Report) -> Result:
        from pytoulbar2 import CFN

        began = time.perf_counter()
        best = Incumbent(problem, "toulbar2", hint, report)
        empty = no_option(problem)
        if empty is not None:
            return best.infeasible(NO_OPTION, empty, time.perf_counter() - began)
        tables = Tables.of(problem)
        worst = sum(int(row.max()) for row in tables.unary) + sum(int(pair.cost.max()) for pair in tables.pairs)
        top = worst + 1 if best.objective is None else -(-best.objective // tables.unit)
        if worst >= _TOP:
            return best.result(time.perf_counter() - began, note=f"costs of {worst:,} are beyond its integers")
        network = CFN(ubinit=top, seed=params.seed + 1)
        for v, own in enumerate(tables.options):
            network.AddVariable(f"v{v}", range(len(own)))
            network.AddFunction([v], tables.unary[v].tolist())
        for pair in tables.pairs:
            cost = np.where(pair.forbidden, worst + 1, pair.cost)
            network.AddFunctions(np.array([[pair.u, pair.v]]), cost[None].astype(np.float64))
        for load in tables.loads:
            network.AddGeneralizedLinearConstraint([*load.terms], "<=", load.capacity)
        limit = 0
        if params.time_limit is not None:
            left = params.time_limit - (time.perf_counter() - began)
            if left <= 0:
                return best.result(time.perf_counter() - began, note="the limit came while the tables were built")
            limit = max(1, math.floor(left))
        solved = network.Solve(timeLimit=limit)
        seconds = time.perf_counter() - began
        complete = not network.Option.limited
        if solved is not None:
            best.offer(tables.choice([int(i) for i in solved[0]]))
        elif complete and best.choice is None:
            return best.infeasible("toulbar2", "toulbar2 proved that no placement keeps every constraint", seconds)
        bound = network.GetDDualBound()
        if complete and best.choice is not None:
            best.raise_bound(objective(problem, best.choice), "toulbar2")
        elif math.isfinite(bound):
            best.raise_bound(math.floor(bound) * tables.unit, "toulbar2")
        return best.result(seconds, {"nodes": network.GetNbNodes()})
