"""Solver ``greedy``: best fit with the relaxation's look-ahead, then repair.

Stages are placed one after another, each on the option that costs least now plus what the messages of
the relaxation say its children will cost, among those that keep every hard constraint. Two orders are
tried: parents before children (then, with slack memory, the plan is the relaxation's own), and the largest memory
first (best-fit decreasing). Where no option fits, the least violation is taken and ``repair`` follows.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.exact.relaxation import Relaxation, relaxation
from iegopt.solvers.exact.tree import relaxed_result
from iegopt.solvers.result import Params, Result, Status, unheard
from iegopt.solvers.search.beginning import Best, before_relaxation, quick_start, usable_hint
from iegopt.solvers.search.outcome import outcome, relaxation_proof
from iegopt.solvers.search.quick import quick_plan
from iegopt.solvers.search.repair import repair
from iegopt.solvers.search.state import State
from iegopt.solvers.timed.solve import solve_timed

__all__ = ["GreedySolver", "backtrack_fitting", "construct", "first_plans", "plan_without_time"]

Ints = npt.NDArray[np.int64]
_STAGE_NEEDS = 3e-5
"""Seconds a stage that a construction takes at least, as measured on one core of a server."""
_TIME_FOR_A_START = 0.5
"""Seconds of time limit below which no plan is made that is not an answer itself."""
_START_SHARE, _START_MOST = 0.1, 1.0
"""Of the time limit, and seconds at most, for such a plan."""


class GreedySolver:
    """The best of a few constructions; proves nothing beyond the relaxation."""

    name = "greedy"
    exact = False

    def supports(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        clock = Clock(params.time_limit if params.time_limit is not None else 1.0)
        if problem.timed:
            hint = plan_without_time(problem, params, hint)
            return solve_timed(problem, params, hint, self.name, clock, search=False, engine=False)
        best = quick_start(problem, clock, hint)
        relaxed = relaxation(problem, clock)
        if relaxed is None:
            return before_relaxation(best, self.name, clock)
        proven = relaxed_result(relaxed, self.name, clock.start)
        if proven.status is not Status.UNKNOWN:
            return proven
        for plan in first_plans(relaxed, clock, random.Random(params.seed), params.check):
            best = plan if best is None else min(best, plan, key=lambda each: each[0])
            params.report(best[1], relaxed.bound, relaxation_proof(relaxed))
        return outcome(relaxed, best, self.name, clock, "best of the constructions")


def plan_without_time(problem: Problem, params: Params, hint: Ints | None) -> Ints | None:
    """A plan for a problem in which time counts: the hint, else one made as if memory were a sum and nothing else did.

    None where the time limit is too short for a plan that is only a start.
    """
    if hint is not None or (params.time_limit is not None and params.time_limit < _TIME_FOR_A_START):
        return hint
    plain = dataclasses.replace(problem, makespan_weight=0.0, no_overlap=False, peak_memory=False)
    limit = _START_MOST if params.time_limit is None else min(_START_MOST, _START_SHARE * params.time_limit)
    return GreedySolver().solve(plain, dataclasses.replace(params, time_limit=limit, report=unheard), None).choice


def first_plans(relaxed: Relaxation, clock: Clock, rng: random.Random, check: bool) -> Iterator[Best]:
    """Feasible (objective, plan) by construction and repair, the quickest first, until the clock ends."""
    problem = relaxed.problem
    quick = backtrack_fitting(relaxed, clock)
    if quick is None:  # repair takes longer, or all of a short time
        found = quick_plan(problem, clock)
        quick = None if found is None else usable_hint(problem, found[1])
    if quick is not None:
        yield quick
    for largest_first in (False, True):
        if clock.left <= lag() * _STAGE_NEEDS * problem.V:
            return
        by_memory = sorted(range(problem.V), key=lambda v: -_least_share(problem, v)) if largest_first else None
        state = construct(relaxed, by_memory or relaxed.forest.order, clock, check)
        if state is not None and repair(state, clock.slice(max(0.2, clock.left / 4)), rng):
            yield state.value, state.plan()


def backtrack_fitting(relaxed: Relaxation, clock: Clock) -> Best | None:
    """Along the forest, every stage on the best option that still fits: parents before children, no second thought.

    ``None`` where a stage fits nowhere, the plan breaks another constraint, or the clock ends first. Shared weights are
    charged every time, which is safe.
    """
    if relaxed.compiled is None:
        return usable_hint(relaxed.problem, _fitting(relaxed, clock))
    return usable_hint(relaxed.problem, relaxed.compiled.choose_fitting() if clock.left > 0 else None)


def _fitting(relaxed: Relaxation, clock: Clock) -> Ints | None:
    problem, messages, forest = relaxed.problem, relaxed.messages, relaxed.forest
    options, topology = problem.options, problem.topology
    free = problem.capacity.copy()
    plan = np.zeros(problem.V, dtype=np.int64)
    for v in forest.order:
        if clock.left <= 0:
            return None
        span, parent, edge = options.of(v), forest.parent[v], forest.edge[v]
        score = relaxed.upward[v]
        if parent >= 0:
            score = score + messages.row(edge, int(plan[parent]), messages.source[edge] == parent)
        need = options.share[span] + np.where(options.weight_key[span] >= 0, options.weight_share[span], 0)
        fits = (need <= topology.tightest(free)[options.site[span]]) & problem.allowed[span]
        best = int(np.where(fits, score, np.iinfo(np.int64).max).argmin())
        if not fits[best]:
            return None
        plan[v] = span.start + best
        free[topology.devices_of(int(options.site[plan[v]]))] -= need[best]
    return plan


def construct(
    relaxed: Relaxation, order: tuple[int, ...] | list[int], clock: Clock, check: bool = False
) -> State | None:
    """Place the stages in an order, each where it is cheapest among what fits, else least in the way.

    ``None`` where the clock ends first, or would within the next stage.
    """
    problem, forest = relaxed.problem, relaxed.forest
    state = State(problem, relaxed.messages, check)
    costs = problem.options.cost
    begun = clock.seconds
    for v in order:
        now = clock.seconds
        if clock.limit - now <= now - begun:
            return None
        begun = now
        offers = state.offers(v)
        score = offers.cost.astype(np.float64)
        parent = forest.parent[v]
        if parent < 0 or state.choice[parent] >= 0:
            score += relaxed.upward[v] - costs[problem.options.of(v)]
        score[offers.violation > offers.violation.min()] = np.inf
        state.place(v, state.ptr[v] + int(score.argmin()))
    return state


def _least_share(problem: Problem, stage: int) -> int:
    span = problem.options.of(stage)
    share = problem.options.share[span] * problem.topology.width[problem.options.site[span]]
    return int(share[problem.allowed[span]].min())
