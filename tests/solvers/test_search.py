"""Heuristics: every move is priced exactly, feasible plans are found where they exist, and no hint is lost."""

from __future__ import annotations

import random

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.restrict import restrict
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective, why_infeasible
from iegopt.solvers.exact.messages import Messages
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.result import Params, Status
from iegopt.solvers.search.greedy import construct
from iegopt.solvers.search.moves import Gather, Shift, Swap, best_shift, cheapest_by_site, gathers, swaps
from iegopt.solvers.search.repair import repair
from iegopt.solvers.search.state import State
from tests.solvers.random_problems import random_problem


def some_plan(problem: Problem, rng: random.Random) -> list[int]:
    """Random allowed options."""
    spans = [problem.options.of(v) for v in range(problem.V)]
    return [rng.choice([o for o in range(span.start, span.stop) if problem.allowed[o]]) for span in spans]


SOLVABLE = [seed for seed in range(80) if Brute().solve(random_problem(seed), Params(), None).choice is not None]


@pytest.mark.parametrize("seed", SOLVABLE[:40])
def test_offers_are_what_a_move_does(seed: int) -> None:
    problem, rng = random_problem(seed), random.Random(seed)
    state = State(problem, Messages(problem), check=True)
    state.adopt(some_plan(problem, rng))
    for _ in range(6):
        v = rng.randrange(problem.V)
        offers = state.offers(v)
        before, now = state.value, state.choice[v]
        good = feasible(problem, state.plan())
        for i in np.flatnonzero(np.isfinite(offers.violation)).tolist():
            assert state.place(v, state.ptr[v] + i) == offers.cost[i]
            reason = why_infeasible(problem, state.plan())
            assert (state.violation() == 0) == (reason is None)
            assert bool(state.culprits()) == (reason is not None)
            if good:
                assert (offers.violation[i] <= 0) == (reason is None)
            state.place(v, now)
        assert state.value == before == objective(problem, state.plan())
        state.adopt(some_plan(problem, rng))


@pytest.mark.parametrize("seed", SOLVABLE[:30])
def test_deltas_of_moves(seed: int) -> None:
    problem, rng = random_problem(seed), random.Random(seed)
    state = State(problem, Messages(problem))
    state.adopt(some_plan(problem, rng))
    moves: list[Shift | Swap | Gather] = []
    for v in range(problem.V):
        shift = best_shift(state, v)
        moves += [shift] if shift else []
        moves += swaps(state, v, lambda w: cheapest_by_site(problem, w))
        for w in state.neighbours(v):
            moves += gathers(state, (v, w))
    for move in moves:
        plan, value, load = state.plan(), state.value, state.memory.load.copy()
        delta, supported, violation = move.delta(state), move.supports(state), state.violation()
        assert (state.plan() == plan).all()
        assert (state.memory.load == load).all()
        assert move.apply(state) == delta
        assert objective(problem, state.plan()) == value + delta
        if supported:
            assert state.violation() <= violation
        state.adopt(plan)


@pytest.mark.parametrize("seed", range(60))
def test_local_finds_plans_and_claims_no_more(seed: int) -> None:
    problem = random_problem(seed)
    truth = Brute().solve(problem, Params(), None)
    for name in ("greedy", "local"):
        result = solve(problem, name, Params(time_limit=0.05, seed=seed, check=True))
        if truth.objective is None:
            assert result.choice is None
        else:
            assert result.status is not Status.INFEASIBLE
            assert result.bound is not None
            assert result.bound <= truth.objective
            if name == "local":
                assert result.objective is not None, "no plan found"
                assert result.objective <= 1.2 * truth.objective


@pytest.mark.parametrize("family", ["chain", "layered"])
def test_tight_packings_are_repaired(family: str) -> None:
    problem = generate(family, 50, 32, "tight", 0)  # type: ignore[arg-type]
    relaxed, clock = relaxation(problem), Clock(10.0)
    state = construct(relaxed, relaxed.forest.order, clock)
    assert state is not None
    assert repair(state, clock, random.Random(0))
    assert feasible(problem, state.plan())


def test_local_keeps_a_hint() -> None:
    problem = generate("layered", 12, 32, "tight", 0)
    good = solve(problem, "local", Params(time_limit=0.3))
    again = solve(problem, "local", Params(time_limit=0.001), good.choice)
    assert good.objective is not None
    assert again.objective is not None
    assert again.objective <= good.objective


def test_restricted_problem_keeps_values() -> None:
    problem = random_problem(11, extensions=True, stages=3)
    rng = np.random.default_rng(0)
    mask = rng.random(len(problem.allowed)) < 0.7
    mask[problem.options.ptr[:-1]] = True
    small, kept = restrict(problem, mask)
    assert kept.tolist() == np.flatnonzero(mask).tolist()
    for _ in range(20):
        choice = np.array([rng.integers(small.options.ptr[v], small.options.ptr[v + 1]) for v in range(small.V)])
        assert objective(small, choice) == objective(problem, kept[choice])
        assert why_infeasible(small, choice) == why_infeasible(problem, kept[choice])
