"""Branch and bound over pair costs: the answers of brute force on small dense graphs, whatever the multipliers."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iegopt.bench.public import ctap
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact.pair_search import PairSearch, dense_reason, unpaired
from iegopt.solvers.result import Params, Status
from tests.conftest import shared_dir
from tests.solvers.random_problems import random_problem


def dense(seed: int, **switches: object) -> Problem:
    return random_problem(
        seed, shape="dag", gangs=False, affinity=False, deadline=False, extensions=False, sla=False, **switches
    )


def fillable(problem: Problem) -> bool:
    return bool(np.bincount(problem.options.stage[problem.allowed], minlength=problem.V).all())


@pytest.mark.parametrize("seed", [seed for seed in range(70) if fillable(dense(seed))])
def test_answers_are_those_of_brute_force(seed: int) -> None:
    problem = dense(seed)
    truth = Brute().solve(problem, Params(), None)
    search = PairSearch(problem, problem.allowed, None)
    search.run(Clock(10.0))
    assert search.done
    assert search.searched == pytest.approx(1.0)
    assert search.value == truth.objective
    if search.plan is not None:
        assert feasible(problem, search.plan)
        assert objective(problem, search.plan) == search.value


@pytest.mark.parametrize("seed", [seed for seed in range(30) if fillable(dense(seed, memory="slack"))])
def test_a_known_plan_is_beaten_or_kept(seed: int) -> None:
    problem = dense(seed, memory="slack")
    truth = Brute().solve(problem, Params(), None)
    assert truth.objective is not None
    first = np.array([np.flatnonzero(problem.allowed[problem.options.of(v)])[0] for v in range(problem.V)])
    plan = problem.options.ptr[:-1] + first
    if not feasible(problem, plan):
        return
    search = PairSearch(problem, problem.allowed, (objective(problem, plan), plan))
    search.run(Clock(10.0))
    assert (search.done, search.value) == (True, truth.objective)


def test_what_is_not_dense_is_left_to_prices() -> None:
    problem = random_problem(0, shape="chain", gangs=False)
    assert unpaired(problem, problem.allowed) == "few edges"
    wide = dataclasses.replace(problem.topology, device_ptr=2 * problem.topology.device_ptr)
    assert unpaired(dataclasses.replace(problem, topology=wide), problem.allowed) == "gangs"


def test_an_interrupted_search_goes_on() -> None:
    file = shared_dir() / "data" / "ctap_elloumi" / "tassc1003Aa.dat"
    problem, known = ctap.load(file), ctap.published(file)
    assert known is not None
    search = PairSearch(problem, problem.allowed, None)
    for _ in range(10_000):
        search.run(Clock(0.001))
        if search.done:
            break
    assert (search.done, search.value) == (True, known.ticks)


def test_auto_proves_what_toulbar2_proves() -> None:
    file = shared_dir() / "data" / "ctap_elloumi" / "tassc2005Cb.dat"
    found = solve(ctap.load(file), "auto", Params(time_limit=30.0))
    assert (found.status, found.objective) == (Status.OPTIMAL, 1017 * 10**9)


@pytest.mark.parametrize(("seconds", "searched"), [(0.0, True), (1e9, False)])
def test_pairs_are_laid_out_only_where_there_is_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, searched: bool
) -> None:
    monkeypatch.setattr("iegopt.solvers.turns.pairs_seconds", lambda *_: seconds)
    problem = generate("layered", 14, 8, "tight", 29)
    assert dense_reason(problem, problem.allowed) is None
    result = solve(problem, "auto", Params(time_limit=2.0))
    assert ("partial plans by pairs" in result.note) is searched
