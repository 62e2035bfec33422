"""Tabu search: every shift and swap is priced exactly, and what cannot be stated is refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iegopt.bench.public import gqap
from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import device_load, feasible, objective
from iegopt.solvers.grain import grain_of, next_value
from iegopt.solvers.result import Params, Status
from iegopt.solvers.search.tables import MoveTables, untabled
from iegopt.solvers.search.tabu import TabuSearch, tabu_reason
from tests.conftest import shared_dir
from tests.solvers.random_problems import random_problem


def plain(seed: int, **switches: object) -> Problem:
    return random_problem(seed, affinity=False, deadline=False, extensions=False, sla=False, **switches)


def overload(problem: Problem, choice: np.ndarray) -> float:
    over = np.maximum(0, device_load(problem, choice) - problem.capacity)
    return float((over / np.maximum(problem.capacity, 1)).sum())


@pytest.mark.parametrize("seed", range(40))
def test_shifts_are_what_a_move_does(seed: int) -> None:
    """Gangs, overlap, any links: objective and overload of every option of every stage."""
    problem = plain(seed)
    rng = np.random.default_rng(seed)
    tables = MoveTables(problem, check=True)
    ptr = problem.options.ptr
    choice = rng.integers(ptr[:-1], ptr[1:])
    tables.start(choice)
    for _ in range(4):
        value, over = objective(problem, choice), overload(problem, choice)
        assert (tables.value, tables.feasible) == (value, over == 0)
        delta, added = tables.shifts()
        for option, v in enumerate(tables.stage.tolist()):
            other = choice.copy()
            other[v] = option
            assert objective(problem, other) == value + delta[option]
            assert overload(problem, other) == pytest.approx(over + added[option], abs=1e-9 * (1 + over))
        v = int(rng.integers(problem.V))
        choice[v] = rng.integers(ptr[v], ptr[v + 1])
        tables.move(v, int(choice[v]))


@pytest.mark.parametrize("seed", range(40))
def test_swaps_are_what_two_moves_do(seed: int) -> None:
    problem = plain(seed, gangs=False)
    rng = np.random.default_rng(seed)
    tables = MoveTables(problem, check=True)
    ptr, site = problem.options.ptr, problem.options.site
    choice = rng.integers(ptr[:-1], ptr[1:])
    tables.start(choice)
    value, over = tables.value, overload(problem, choice)
    first, second, delta, added = tables.swaps()
    assert len(first) == problem.V * (problem.V - 1) // 2
    for number, (a, b) in enumerate(zip(first.tolist(), second.tolist(), strict=True)):
        v, w = tables.swapped(number)
        if a < 0:
            apart = site[choice[v]] != site[choice[w]]
            offers = [set(site[ptr[x] : ptr[x + 1]][problem.allowed[ptr[x] : ptr[x + 1]]].tolist()) for x in (v, w)]
            assert not (apart and site[choice[w]] in offers[0] and site[choice[v]] in offers[1])
            continue
        other = choice.copy()
        other[[v, w]] = a, b
        assert (site[a], site[b]) == (site[choice[w]], site[choice[v]])
        assert objective(problem, other) == value + delta[number]
        assert overload(problem, other) == pytest.approx(over + added[number], abs=1e-9 * (1 + over))


def test_a_wrong_delta_is_caught_in_check_mode() -> None:
    problem = plain(3)
    tables = MoveTables(problem, check=True)
    tables.start(problem.options.ptr[:-1])
    tables.potential[problem.options.ptr[1] - 1] += 1
    with pytest.raises(InternalError, match="by deltas"):
        tables.move(0, int(problem.options.ptr[1] - 1))


@pytest.mark.parametrize("seed", range(40))
def test_tabu_search_finds_the_optimum_of_small_problems(seed: int) -> None:
    problem = plain(seed)
    truth = Brute().solve(problem, Params(), None)
    if truth.objective is None or not problem.allowed.any():
        return
    search = TabuSearch(problem, problem.allowed, None, seed, check=True)
    search.run(Clock(2.0), truth.objective)
    assert search.best is not None
    value, plan = search.best
    assert feasible(problem, plan)
    assert value == objective(problem, plan) == truth.objective


def test_tabu_search_keeps_to_its_options_and_never_loses_a_plan() -> None:
    problem = generate("layered", 12, 32, "tight", 0)
    good = solve(problem, "greedy", Params(time_limit=0.5))
    assert good.choice is not None
    assert good.objective is not None
    mask = np.zeros(len(problem.allowed), dtype=np.bool_)
    for v in range(problem.V):
        mask[np.flatnonzero(problem.allowed[problem.options.of(v)])[:8] + problem.options.ptr[v]] = True
    search = TabuSearch(problem, mask, (good.objective, good.choice), 0)
    search.run(Clock(0.3))
    assert search.steps > 0
    assert search.best is not None
    assert search.best[0] <= good.objective
    assert search.best[1] is good.choice or mask[search.best[1]].all()


def test_what_the_tables_cannot_state_is_refused() -> None:
    problem = plain(1)
    assert untabled(problem) is None
    assert untabled(dataclasses.replace(problem, deadline=10**12)) == "limits along paths"
    assert untabled(dataclasses.replace(problem, budget=10**12)) == "a budget of time"
    assert untabled(dataclasses.replace(problem, no_overlap=True)) == "start times, overlaps and the makespan"
    with_rules = next(p for p in (random_problem(seed, affinity=True) for seed in range(99)) if not p.has_path_limits)
    assert untabled(with_rules) is not None
    large = generate("chain", 10, 1024, "tight", 0)
    reason = tabu_reason(large, large.allowed)
    assert reason is not None
    assert "options, more than" in reason
    with pytest.raises(ValueError, match="options, more than"):
        TabuSearch(large, large.allowed, None, 0)


@pytest.mark.parametrize(("unit", "known"), [(1, 1), (7, 7), (10**9, 10**9)])
def test_the_grain_divides_every_plan(unit: int, known: int) -> None:
    plainest = generate("chain", 4, 4, "slack", 0)
    cost = np.arange(len(plainest.options.cost)) * unit
    edges = dataclasses.replace(plainest.edges, weight=np.zeros(plainest.E))
    problem = dataclasses.replace(plainest, options=dataclasses.replace(plainest.options, cost=cost), edges=edges)
    assert grain_of(problem) == known
    assert next_value(problem, 3 * unit) == 3 * unit
    assert next_value(problem, 2 * unit + 1) == (3 * unit if unit > 1 else 3)


@pytest.mark.parametrize("name", ["20-15-55", "30-08-55", "40-10-65"])
def test_gqap_values_are_reached(name: str) -> None:
    file = shared_dir() / "data" / "gqap_cordeau" / f"{name}.txt"
    known = gqap.published(file)
    assert known is not None
    problem = gqap.load(file)
    search = TabuSearch(problem, problem.allowed, None, 0)
    search.run(Clock(20.0), known.ticks)
    assert search.best is not None
    assert search.best[0] == known.ticks
    result = solve(problem, "auto", Params(time_limit=3.0), search.best[1])
    assert result.objective == known.ticks
    assert result.status is Status.FEASIBLE


@pytest.mark.parametrize(("seed", "known"), [(0, 6_891_013_199), (1, 11_267_077_386)])
def test_sparse_tight_graphs_take_few_steps(seed: int, known: int) -> None:
    """``auto`` finds nothing better in 3 s; where stages stay for 3 to 7 steps, 6,000 steps do not come so far."""
    problem = generate("layered", 20, 16, "tight", seed)
    search = TabuSearch(problem, problem.allowed, None, 0)
    search.run(Clock(20.0), known)
    assert search.best is not None
    assert search.best[0] <= known
    assert search.steps < 5000
