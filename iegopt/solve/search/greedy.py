"""Solver ``greedy``: best fit with the relaxation's look-ahead, then repair.

Stages are placed one after another, each on the option that costs least now plus what the messages of
the relaxation say its children will cost, among those that keep every hard constraint. Two orders are
tried: parents before children (then, with slack memory, the plan is the relaxation's own), and the largest memory
first (best-fit decreasing). Where no option fits, the least violation is taken and ``repair`` follows.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solve.evaluate import feasible, objective
from iegopt.solve.exact.relaxation import Relaxation, relaxation
from iegopt.solve.exact.tree import relaxed_result
from iegopt.solve.result import Params, Result, Status
from iegopt.solve.clock import Clock
from iegopt.solve.search.outcome import outcome
from iegopt.solve.search.repair import repair
from iegopt.solve.search.state import State

__all__ = ["GreedySolver", "construct", "first_plans", "usable_hint"]

Ints = npt.NDArray[np.int64]


class GreedySolver:
    """The best of a few constructions; proves nothing beyond the relaxation."""

    name = "greedy"
    exact = False

    def supports(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        clock = Clock(params.time_limit if params.time_limit is not None else 1.0)
        relaxed = relaxation(problem)
        proven = relaxed_result(relaxed, self.name, clock.start)
        if proven.status is not Status.UNKNOWN:
            return proven
        best = usable_hint(problem, hint)
        for state in first_plans(relaxed, clock, random.Random(params.seed), params.check):
            if best is None or state.value < best[0]:
                best = state.value, state.plan()
        return outcome(relaxed, best, self.name, clock, "best of the constructions")


def first_plans(relaxed: Relaxation, clock: Clock, rng: random.Random, check: bool) -> Iterator[State]:
    """Feasible plans by construction and repair, until the clock ends."""
    problem = relaxed.problem
    by_memory = sorted(range(problem.V), key=lambda v: -_least_share(problem, v))
    for order in (relaxed.forest.order, by_memory):
        if clock.left <= 0:
            return
        state = construct(relaxed, order, clock, check)
        if state is not None and repair(state, clock.slice(max(0.2, clock.left / 4)), rng):
            yield state


def construct(
    relaxed: Relaxation, order: tuple[int, ...] | list[int], clock: Clock, check: bool = False
) -> State | None:
    """Place the stages in an order, each where it is cheapest among what fits, else least in the way.

    ``None`` where the clock ends first.
    """
    problem, forest = relaxed.problem, relaxed.forest
    state = State(problem, relaxed.messages, check)
    costs = problem.options.cost
    for v in order:
        if clock.left <= 0:
            return None
        offers = state.offers(v)
        score = offers.cost.astype(np.float64)
        parent = forest.parent[v]
        if parent < 0 or state.choice[parent] >= 0:
            score += relaxed.upward[v] - costs[problem.options.of(v)]
        score[offers.violation > offers.violation.min()] = np.inf
        state.place(v, state.ptr[v] + int(score.argmin()))
    return state


def usable_hint(problem: Problem, hint: Ints | None) -> tuple[int, Ints] | None:
    """(objective, plan) of a feasible hint."""
    if hint is None:
        return None
    plan = np.asarray(hint, dtype=np.int64)
    return (objective(problem, plan), plan) if feasible(problem, plan) else None


def _least_share(problem: Problem, stage: int) -> int:
    span = problem.options.of(stage)
    share = problem.options.share[span] * problem.topology.width[problem.options.site[span]]
    return int(share[problem.allowed[span]].min())
