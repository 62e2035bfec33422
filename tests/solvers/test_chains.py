"""Ejection chains: plans fit and cost what they say, small problems are solved, and large ones better than by tabu."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iegopt.bench.public import gap
from iegopt.bench.public.assignment import assemble, separate_sites
from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact.capacity_prices import capacity_prices
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.result import Params, Status, unheard
from iegopt.solvers.search.chains import ChainSearch, chains_reason
from iegopt.solvers.search.tabu import TabuSearch
from iegopt.solvers.separable import solve_separable
from tests.conftest import shared_dir
from tests.solvers.random_problems import random_problem


def unconnected(seed: int) -> Problem:
    problem = random_problem(
        seed, affinity=False, deadline=False, extensions=False, gangs=False, memory="tight", combinations=400
    )
    return dataclasses.replace(problem, edges=dataclasses.replace(problem.edges, weight=np.zeros(problem.E)))


def searched(problem: Problem, seed: int, known: tuple[int, np.ndarray] | None = None) -> ChainSearch:
    prices = capacity_prices(problem, None, Clock(1.0))
    return ChainSearch(problem, problem.allowed, known, seed, True, unheard, prices.price, prices.marginals)


@pytest.mark.parametrize("seed", range(60))
def test_chains_find_the_optimum_of_small_problems(seed: int, core: None) -> None:
    problem = unconnected(seed)
    truth = Brute().solve(problem, Params(), None)
    if truth.objective is None:
        if np.bincount(problem.options.stage[problem.allowed], minlength=problem.V).all():
            search = searched(problem, seed)
            search.run(Clock(0.05))
            assert search.best is None
        return
    search = searched(problem, seed)
    search.run(Clock(5.0), truth.objective)
    assert search.best is not None
    value, plan = search.best
    assert feasible(problem, plan)
    assert value == objective(problem, plan) == truth.objective
    assert truth.choice is not None
    again = searched(problem, seed, (truth.objective, truth.choice))
    again.run(Clock(0.02))
    assert again.best is not None
    assert again.best[0] == truth.objective


def test_a_wrong_delta_is_caught_in_check_mode(core: None) -> None:
    seed = next(s for s in range(60) if Brute().solve(unconnected(s), Params(), None).objective is not None)
    search = searched(unconnected(seed), seed)
    search._values[0] -= 1
    with pytest.raises(InternalError, match="by deltas"):
        search.run(Clock(2.0))


def test_what_chains_do_not_search_is_refused_with_the_reason(core: None, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = unconnected(0)
    assert chains_reason(problem, problem.allowed) is None
    monkeypatch.setattr("iegopt.solvers.search.chains._MOST_OPTIONS", 1)
    assert "options, more than 1" in str(chains_reason(problem, problem.allowed))
    monkeypatch.setattr("iegopt.solvers.search.chains._MOST_OPTIONS", 20_000)
    monkeypatch.setattr("iegopt.solvers.search.chains._MOST_CELLS", 1)
    assert "stages · devices, more than 1" in str(chains_reason(problem, problem.allowed))
    monkeypatch.setattr("iegopt.solvers.search.chains.kernels", lambda: None)
    assert chains_reason(problem, problem.allowed) == "no kernels"


def test_chains_better_what_tabu_search_finds(core: None) -> None:
    problem = gap.load(shared_dir() / "data" / "gap_orlib" / "chu1997" / "d10200")
    prices = capacity_prices(problem, None, Clock(2.0))
    mask = problem.allowed & (prices.marginals <= np.partition(prices.marginals, 500)[500])
    for v in range(problem.V):
        mask[problem.options.ptr[v] + prices.marginals[problem.options.of(v)].argmin()] = True
    tabu = TabuSearch(problem, mask, None, 0, False, unheard, prices.price, prices.marginals)
    tabu.run(Clock(1.0))
    assert tabu.best is not None
    chains = ChainSearch(problem, mask, tabu.best, 0, True, unheard, prices.price, prices.marginals)
    chains.run(Clock(20.0), tabu.best[0] - 1)
    assert chains.best is not None
    assert chains.best[0] < tabu.best[0]


def test_chains_take_the_place_of_tabu_search_where_there_are_kernels(core: None) -> None:
    problem = gap.load(shared_dir() / "data" / "gap_orlib" / "chu1997" / "a05100")
    assert kernels() is not None
    found = solve_separable(problem, Params(check=True), None, Clock(10.0))
    known = gap.published(shared_dir() / "data" / "gap_orlib" / "chu1997" / "a05100")
    assert known is not None
    assert found.objective == known.ticks
    assert "ejection chains over" in found.note


def test_many_stages_that_fill_their_devices_have_a_plan_in_a_short_time(core: None) -> None:
    rng = np.random.default_rng(0)
    stages, devices = 500, 10
    need = rng.integers(5, 26, (stages, devices))
    capacity = (0.8 * need.mean(axis=1).sum() / devices * np.ones(devices)).astype(np.int64)
    topology = separate_sites(devices, pair_seconds_per_byte=np.zeros((devices, devices)))
    cost = rng.integers(10, 50, (stages, devices))
    problem = assemble("crowded", topology, cost, need, capacity, np.zeros((stages, stages), dtype=np.int64))
    found = solve(problem, "auto", Params(time_limit=1.0))
    assert found.status in (Status.FEASIBLE, Status.OPTIMAL)
    assert found.choice is not None
    assert feasible(problem, found.choice)
    assert found.gap is not None
    assert found.gap < 0.02
    assert found.seconds < 1.2
