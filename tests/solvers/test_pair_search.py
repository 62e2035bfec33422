"""Branch and bound over pair costs: the answers of brute force on small dense graphs, whatever the multipliers."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable

import numpy as np
import pytest

from iegopt.bench.public import ctap
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact import ascent, compiled, pricing
from iegopt.solvers.exact.candidates import above_any_plan, candidates
from iegopt.solvers.exact.pair_search import PairSearch, dense_reason, unpaired
from iegopt.solvers.exact.pair_trees import heaviest_trees, root_costs
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


@pytest.mark.parametrize("seed", range(20))
def test_a_tree_costs_what_its_pairs_do_and_no_more_than_all_pairs(seed: int) -> None:
    rng = np.random.default_rng(seed)
    V, K = 6, 3
    pairs = np.zeros((V, K, V, K), dtype=np.int64)
    for u, v in itertools.combinations(range(V), 2):
        pairs[u, :, v] = rng.integers(0, 9, (K, K)) * (rng.random() < 0.6)
        pairs[v, :, u] = pairs[u, :, v].T
    for depth, tree in enumerate(heaviest_trees(pairs)[:-1]):
        stages = range(depth + 1, V)
        assert sorted(stage for stage, _ in tree) == list(stages)[1:]
        cost = rng.integers(-5, 20, (4, len(stages), K))
        found = root_costs(cost, pairs, tree)
        plans = np.array(list(itertools.product(range(K), repeat=len(stages))))
        alone = cost[:, np.arange(len(stages)), plans].sum(axis=2)

        def together(edges: Iterable[tuple[int, int]], plans: np.ndarray = plans, first: int = depth + 1) -> np.ndarray:
            return sum(pairs[u, plans[:, u - first], v, plans[:, v - first]] for u, v in edges)

        for option in range(K):
            own = plans[:, 0] == option
            assert np.array_equal(found[:, option], (alone + together(tree))[:, own].min(axis=1))
            every = together(itertools.combinations(stages, 2))
            assert (found[:, option] <= (alone + every)[:, own].min(axis=1)).all()


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
    narrow = problem.topology
    pairs = np.repeat(narrow.device_index, 2)
    wide = dataclasses.replace(narrow, device_ptr=2 * narrow.device_ptr, device_index=pairs)
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


def test_tabu_search_does_not_hold_up_a_search_that_soon_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iegopt.solvers.turns._PAIR_TURN", 1.0)
    file = shared_dir() / "data" / "ctap_elloumi" / "tass1003Aa.dat"
    found = solve(ctap.load(file), "auto", Params(time_limit=30.0))
    assert (found.status, found.objective) == (Status.OPTIMAL, 731 * 10**9)
    assert "tabu" not in found.note


@pytest.mark.parametrize(("seconds", "searched"), [(0.0, True), (1e9, False)])
def test_pairs_are_laid_out_only_where_there_is_time(
    monkeypatch: pytest.MonkeyPatch, seconds: float, searched: bool
) -> None:
    monkeypatch.setattr("iegopt.solvers.turns.pairs_seconds", lambda *_: seconds)
    problem = generate("layered", 14, 8, "tight", 29)
    assert dense_reason(problem, problem.allowed) is None
    result = solve(problem, "auto", Params(time_limit=2.0))
    assert ("partial plans by pairs" in result.note) is searched


def test_steps_of_prices_are_not_taken_again_where_splits_are_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """Splits lower a bound before they raise it: a rule to take every step again changes nothing here."""
    problem = ctap.load(shared_dir() / "data" / "ctap_elloumi" / "tassc2005Aa.dat")
    monkeypatch.setattr(compiled, "_ready", None)  # kernels have the rule compiled in
    usual = bound_by_steps(problem)
    monkeypatch.setattr(ascent, "_FALL", -1.0)
    assert bound_by_steps(problem) == usual


def bound_by_steps(problem: Problem) -> int:
    c = candidates(problem, problem.allowed)
    assert len(c.reduction.dropped) >= 2 * c.V
    keep, price = np.ones((len(c.option), 1), dtype=np.bool_), np.zeros((len(c.capacity), 1))
    steps = pricing.Pricing(c, keep, price, pricing.no_split(c, 1))
    upper = above_any_plan(problem, problem.allowed)
    return int(steps.run(lambda: upper, 12, 1.0, lambda _: None, lambda _: False).bound[0])


def test_engines_are_not_asked_about_dense_graphs_whose_bound_stands_still() -> None:
    problem = ctap.load(shared_dir() / "data" / "ctap_elloumi" / "tassc2005Da.dat")
    result = solve(problem, "auto", Params(time_limit=3.0))
    assert result.status is Status.FEASIBLE
    assert "nodes under prices" in result.note
    assert "cpsat" not in result.note
