"""Solver ``tree``: the exact optimum of a forest whose shared limits do not bind, by messages.

The relaxation (``relaxation.py``) is solved to optimality. If its choice keeps every constraint that was left out, it
is an optimal plan and the messages are the proof; else the first constraint that it breaks is named and
only the bound is left.
"""

from __future__ import annotations

import math
import time

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import affinity_holds, why_infeasible
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.relaxation import Relaxation, relaxation, spanning_forest
from iegopt.solvers.result import Params, Result, Status
from iegopt.solvers.search.beginning import before_relaxation, quick_start

__all__ = ["TREE_PROOF", "TreeSolver", "relaxed_result"]

TREE_PROOF = "tree messages"


class TreeSolver:
    """Min-plus messages along the edges of a forest: one pass, or a quick plan where the clock ends first.

    Not ``exact``: where a shared limit binds it proves only a bound.
    """

    name = "tree"
    exact = False

    def supports(self, problem: Problem) -> str | None:
        if problem.timed:
            return "the makespan, overlaps in time and peak memory couple more than two stages"
        dropped = spanning_forest(problem).dropped
        if dropped:
            e = dropped[0]
            ends = (problem.stages[int(problem.edges.source[e])], problem.stages[int(problem.edges.target[e])])
            return f"the graph is not a forest: edge {ends[0]} → {ends[1]} closes a cycle"
        return None

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        clock = Clock(math.inf if params.time_limit is None else params.time_limit)
        first = quick_start(problem, clock, hint)
        relaxed = relaxation(problem, clock)
        if relaxed is None:
            return before_relaxation(first, self.name, clock)
        if params.log is not None:
            params.log(f"messages by {relaxed.core}")
        return relaxed_result(relaxed, self.name, clock.start)


def relaxed_result(relaxed: Relaxation, solver: str, start: float) -> Result:
    """What a relaxation proves by itself: an optimum, that a stage has no option, or a bound and what breaks.

    Parameters
    ----------
    start
        ``time.perf_counter()`` at the start of the solve.
    """
    problem, bound, choice = relaxed.problem, relaxed.bound, relaxed.choice

    def result(status: Status, plan: npt.NDArray[np.int64] | None, proof: str, note: str) -> Result:
        value = bound if plan is not None else None
        return Result(status, plan, value, bound, proof, solver, time.perf_counter() - start, note)

    if bound is None or choice is None:
        empty = [v for v in range(problem.V) if not problem.allowed[problem.options.of(v)].any()]
        note = f"no option of {problem.stages[empty[0]]} keeps its SLA and fits its devices"
        return result(Status.INFEASIBLE, None, "no option", note)
    if relaxed.forest.dropped:
        return result(Status.UNKNOWN, None, TREE_PROOF, "the graph is not a forest")
    if bound >= UNREACHABLE // 2:
        return result(Status.UNKNOWN, None, TREE_PROOF, "costs beyond 2^60 ticks")
    broken = why_infeasible(problem, choice)
    if broken is not None:
        return result(Status.UNKNOWN, None, TREE_PROOF, f"{broken} binds in the optimum without shared limits")
    for rule in problem.affinities:
        if not rule.required and rule.penalty and not affinity_holds(problem, rule, choice):
            names = ", ".join(problem.stages[v] for v in rule.stages)
            return result(Status.UNKNOWN, None, TREE_PROOF, f"the preferred affinity of {names} binds")
    return result(Status.OPTIMAL, choice, TREE_PROOF, "no shared limit binds")
