"""Priced bounds hold, pruning keeps every optimal plan, and ``prices`` proves what the plain relaxation cannot."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.families import generate
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import device_load, feasible, objective
from iegopt.solvers.exact import bounding, open_nodes
from iegopt.solvers.exact.beam import beam
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.bounding import PricedSearch
from iegopt.solvers.exact.candidates import Candidates, candidates
from iegopt.solvers.exact.links import LevelLink, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.neighbourhood import Neighbourhoods
from iegopt.solvers.exact.pair_costs import PairCosts, sharing
from iegopt.solvers.exact.parts_of_gap import search_by_parts
from iegopt.solvers.exact.priced_plans import search_beam
from iegopt.solvers.exact.prices import PricesSolver
from iegopt.solvers.exact.pricing import Priced, Pricing, no_split
from iegopt.solvers.exact.weights import device_weights
from iegopt.solvers.result import Params, Status
from iegopt.solvers.search.greedy import GreedySolver
from tests.solvers.agreement import oracle
from tests.solvers.random_problems import random_problem

Bools = npt.NDArray[np.bool_]
SEEDS = 300
"""Those of ``test_oracle``, whose answers are at hand."""


def root(problem: Problem, steps: int, upper: int) -> tuple[Candidates, Pricing, int, np.ndarray]:
    c = candidates(problem, problem.allowed)
    keep = np.ones((len(c.option), 1), dtype=np.bool_)
    pricing = Pricing(c, keep, np.zeros((len(c.capacity), 1)), no_split(c, 1))
    priced = improved(pricing, steps, upper)
    return c, pricing, int(priced.bound[0]), priced.marginals[:, 0]


def improved(pricing: Pricing, steps: int, upper: int, patient: bool = True) -> Priced:
    return pricing.run(lambda: upper, steps, 1.0, lambda plan: None, lambda _: False, patient)


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
def test_bounds_and_min_marginals_never_exceed_a_plan_that_is_optimal(first: int) -> None:
    tested = 0
    for seed in range(first, first + 50):
        _, problem, truth = oracle(seed)
        if truth.objective is None or truth.choice is None or any(rule.penalty < 0 for rule in problem.affinities):
            continue
        c, pricing, bound, marginals = root(problem, 25, truth.objective + 1)
        assert bound <= truth.objective, seed
        soon = improved(pricing, 25, truth.objective + 1, patient=False)
        assert bound <= soon.bound[0] <= truth.objective, seed
        own = np.isin(c.option, truth.choice)
        assert own.sum() == problem.V
        assert (marginals[own] <= truth.objective).all(), seed
        tested += 1
    assert tested > 20


@pytest.mark.parametrize("seed", range(40))
def test_pruning_keeps_every_optimal_plan(seed: int) -> None:
    problem = random_problem(seed, stages=4, combinations=300, memory="tight")
    ptr = problem.options.ptr
    choices = [np.flatnonzero(problem.allowed[ptr[v] : ptr[v + 1]]) + ptr[v] for v in range(problem.V)]
    plans = [np.array(plan) for plan in np.stack(np.meshgrid(*choices, indexing="ij"), -1).reshape(-1, problem.V)]
    priced = {plan.tobytes(): objective(problem, plan) for plan in plans if feasible(problem, plan)}
    if not priced:
        pytest.skip("infeasible")
    least = min(priced.values())
    c, _, _, marginals = root(problem, 25, least + 1)
    survives = np.zeros(len(problem.allowed), dtype=np.bool_)
    survives[c.option[marginals <= least]] = True
    for plan in plans:
        if priced.get(plan.tobytes()) == least:
            assert survives[plan].all()


@pytest.mark.parametrize("seed", range(20))
def test_weights_of_stages_that_fit_together_sum_to_one_at_most(seed: int) -> None:
    rng = np.random.default_rng(seed)
    free = int(rng.integers(1, 60))
    share = rng.integers(1, free + 1, size=7)
    weight = device_weights(share, np.full(7, free), np.zeros(7, dtype=np.int64), 1)
    for subset in range(1, 2**7):
        chosen = np.array([bool(subset >> i & 1) for i in range(7)])
        if share[chosen].sum() <= free:
            assert weight[chosen].sum() <= 1 + 1e-9
    assert weight.sum() >= (share / free).sum() - 1e-9


def test_weights_count_what_integers_allow() -> None:
    share = np.array([27, 27, 27, 55, 90])
    weight = device_weights(share, np.full(5, 100), np.zeros(5, dtype=np.int64), 1)
    assert weight == pytest.approx([1 / 3, 1 / 3, 1 / 3, 2 / 3, 1.0])


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_both_kinds_of_link_send_the_same(seed: int, forward: bool) -> None:
    problem = generate("layered", 6, 200, "tight", seed)
    keep = np.random.default_rng(seed).random(len(problem.allowed)) < 0.9
    c = candidates(problem, problem.allowed & keep)
    kinds = set()
    for link, (u, v) in zip(c.links, c.ends, strict=True):
        assert link is not None
        kinds.add(type(link))
        near, far = (u, v) if forward else (v, u)
        n, m = (c.of[stage].stop - c.of[stage].start for stage in (near, far))
        rows = link.rows(np.arange(n), forward)
        theta = np.random.default_rng(seed).integers(0, 10**10, (n, 3))
        expected = np.minimum((rows[:, :, None] + theta[:, None, :]).min(axis=0), UNREACHABLE)
        assert rows.shape == (n, m)
        assert np.array_equal(link.send(theta, forward), expected)
        chosen = [c.option[c.of[u]][0], c.option[c.of[v]][-1]]
        together = problem.options.site[chosen[0]] == problem.options.site[chosen[1]]
        table = rows if forward else rows.T
        if not together:
            e = c.ends.index((u, v))
            assert table[0, -1] == edge_ticks(problem, e, np.array(chosen[0]), np.array(chosen[1]))[1]
    assert LevelLink in kinds


def test_small_edges_become_tables() -> None:
    problem = generate("chain", 4, 200, "tight", 0)
    c = candidates(problem, problem.allowed)
    some = np.zeros(len(c.option), dtype=np.bool_)
    for part in c.of:
        some[part.start : part.stop : 7] = True
    small = c.restrict(some)
    for link, table in zip(c.links, small.links, strict=True):
        assert isinstance(link, LevelLink)
        assert isinstance(table, TableLink)
    u, v = c.ends[0]
    whole = c.links[0]
    assert whole is not None
    rows = whole.rows(np.arange(c.of[u].stop - c.of[u].start), True)
    assert np.array_equal(small.links[0].table, rows[np.ix_(some[c.of[u]], some[c.of[v]])])  # type: ignore[union-attr]


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_tables_cost_what_pairs_of_options_cost(first: int) -> None:
    shared_devices = 0
    for seed in range(first, first + 50):
        problem = random_problem(seed, stages=4, combinations=2000)
        topology, site = problem.topology, problem.options.site
        pairs = PairCosts(problem, np.arange(problem.topology.S))
        padded = np.full((int(topology.width.max()), topology.S), topology.D)
        for s in range(topology.S):
            padded[: topology.width[s], s] = topology.devices_of(s)
        for e, (u, v) in enumerate(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)):
            a, b = (np.arange(problem.options.ptr[w], problem.options.ptr[w + 1]) for w in (u, v))
            time, cost = edge_ticks(problem, e, a[:, None], b)
            mine = pairs.ticks(e, a, b)
            assert np.array_equal(mine[1], cost), (seed, e)
            assert np.array_equal(mine[0], time) or not problem.has_path_limits, (seed, e)
            found = np.stack(sharing(padded[:, site[a]], padded[:, site[b]], topology.D), axis=1)
            own = [[set(topology.devices_of(int(s)).tolist()) for s in site[end]] for end in (a, b)]
            true = [(i, j, d) for i, j in np.ndindex(len(a), len(b)) for d in own[0][i] & own[1][j]]
            assert sorted(map(tuple, found.tolist())) == sorted(true), (seed, e)
            shared_devices += len(true)
    assert shared_devices


def priced_root(problem: Problem, steps: int, upper: int) -> tuple[Candidates, Priced]:
    c = candidates(problem, problem.allowed)
    keep = np.ones((len(c.option), 1), dtype=np.bool_)
    pricing = Pricing(c, keep, np.zeros((len(c.capacity), 1)), no_split(c, 1))
    return c, pricing.run(lambda: upper, steps, 1.0, lambda plan: None, lambda _: False)


def test_beam_keeps_memory_and_meets_slack_optimum() -> None:
    problem = generate("chain", 20, 64, "tight", 0)
    c, priced = priced_root(problem, 60, 2**60)
    every = np.ones(len(c.option), dtype=np.bool_)
    found = beam(c, priced, 0, every, 2**60, 32)
    assert 0 < len(found.plans) <= 32
    for plan, value in zip(c.option[found.plans], found.value.tolist(), strict=True):
        assert (device_load(problem, plan) <= problem.capacity).all()
        assert objective(problem, plan) == value >= priced.bound[0]
    assert priced.bound[0] <= found.bound <= found.value[0]
    slack = generate("chain", 20, 64, "slack", 0)
    c, priced = priced_root(slack, 1, 2**60)
    every = np.ones(len(c.option), dtype=np.bool_)
    assert beam(c, priced, 0, every, 2**60, 1).value[0] == priced.bound[0]


@pytest.mark.parametrize("first", range(0, SEEDS, 50))
@pytest.mark.parametrize(("width", "steps"), [(1_000_000, 1), (3, 1), (1_000_000, 12), (12, 12)])
def test_beam_has_the_optimum_or_bounds_it(first: int, width: int, steps: int) -> None:
    solved = 0
    for seed in range(first, first + 50):
        _, problem, truth = oracle(seed)
        if truth.objective is None or any(rule.penalty < 0 for rule in problem.affinities):
            continue
        c, priced = priced_root(problem, steps, truth.objective + 1)
        every = np.ones(len(c.option), dtype=np.bool_)
        found = beam(c, priced, 0, every, truth.objective + 1, width)
        values = []
        for plan, value in zip(c.option[found.plans], found.value.tolist(), strict=True):
            assert objective(problem, plan) == value, seed
            if feasible(problem, plan):
                values.append(value)
            elif not (problem.has_path_limits or problem.budget < NO_LIMIT):
                pytest.fail(f"{seed}: a plan breaks more than limits in time")
        assert min(values, default=truth.objective) >= truth.objective, seed
        assert truth.objective in values or found.bound <= truth.objective, seed
        solved += found.bound > truth.objective
        wide = beam(c, priced, 0, every, truth.objective + 1, 3, wide=(width, 40_000))
        if found.bound > truth.objective:  # never cut, so that it is solved
            assert (wide.bound, wide.value.tolist()) == (found.bound, found.value.tolist()), seed
        assert min([wide.bound, *wide.value.tolist()]) <= truth.objective + (wide.bound > truth.objective), seed
    assert solved > 20 or width < 1_000_000


def test_widest_beams_follow_one_in_vain_only_over_far_fewer_options(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate("agent", 20, 1024, "part_full", 12, gangs=True)
    monkeypatch.setattr(bounding, "SOLVING_WIDTH", 300)
    monkeypatch.setattr(bounding, "_MANY", 10**6)
    tried: list[tuple[int, int, bool]] = []

    def recorded(
        c: Candidates, priced: Priced, column: int, keep: Bools, width: int, best: BestPlan, clock: Clock, wide: int = 0
    ) -> int:
        upper = best.upper
        left = int((keep & (priced.marginals[:, 0] < upper)).sum())
        found = search_beam(c, priced, column, keep, width, best, clock, wide)
        tried.append((wide, left, found >= best.upper))
        return found

    monkeypatch.setattr(bounding, "search_beam", recorded)
    result = solve(problem, "prices")
    assert result.status == "optimal"
    vain = [left for wide, left, solved in tried if wide and not solved]
    assert len(vain) > 0
    assert all(b <= 0.6 * a for a, b in pairwise(vain))
    assert any(width == 0 for width, *_ in tried)


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_gap_closed_in_parts_has_the_optimum(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounding, "_MANY", 0)
    monkeypatch.setattr(bounding, "_NEAR", math.inf)
    closed = 0
    for seed in range(first, first + 50):
        _, problem, truth = oracle(seed)
        if truth.objective is None or any(rule.penalty < 0 for rule in problem.affinities):
            continue
        c, priced = priced_root(problem, 1, 2**60)
        every = np.ones(len(c.option), dtype=np.bool_)
        worse = BestPlan(problem, None, truth.objective + 1 + truth.objective // 5)
        if priced.bound[0] >= worse.upper:
            continue
        bound = search_by_parts(c, priced, every, int(priced.bound[0]), 1.0, worse, Clock(60.0), lambda _: False)
        assert priced.bound[0] <= bound, seed
        assert min(worse.value or 2**60, 2**60) >= truth.objective, seed
        assert bound <= truth.objective or worse.value == truth.objective, seed
        closed += worse.value == truth.objective
        if PricesSolver().supports(problem) is None:
            assert solve(problem, "prices").objective == truth.objective, seed
    assert closed > 15


def test_a_gap_that_is_closed_is_not_searched(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate("chain", 6, 20, "slack", 0)
    truth = solve(problem, "tree")
    assert truth.objective is not None
    assert truth.choice is not None
    c, priced = priced_root(problem, 1, truth.objective + 1)
    assert priced.bound[0] == truth.objective
    best = BestPlan(problem, (truth.objective, truth.choice), 2**60)
    monkeypatch.delattr("iegopt.solvers.exact.parts_of_gap.Pricing")
    every = np.ones(len(c.option), dtype=np.bool_)
    for known in (best.upper - 1, best.upper):  # min-marginals alone close the first
        assert search_by_parts(c, priced, every, known, 1.0, best, Clock(60.0), lambda _: False) == best.upper


def test_windows_only_ever_improve_a_plan() -> None:
    gained = 0
    for seed in range(12):
        problem = generate("joins", 12, 70, "part_full", seed, gangs=True)
        start = GreedySolver().solve(problem, Params(), None)
        assert start.choice is not None
        assert start.objective is not None
        search = PricedSearch(problem, problem.allowed, (start.objective, start.choice), Clock(math.inf))
        search.improve_in_windows()
        assert search.plan is not None
        assert feasible(problem, search.plan)
        assert objective(problem, search.plan) == search.value <= start.objective
        gained += search.value < start.objective
    assert gained > 3


@pytest.mark.parametrize(("family", "stages", "sites"), [("chain", 20, 256), ("agent", 8, 128), ("layered", 8, 64)])
def test_tight_memory_is_proven(family: str, stages: int, sites: int) -> None:
    result = solve(generate(family, stages, sites, "tight", 0), "prices", Params(time_limit=30.0))  # type: ignore[arg-type]
    assert (result.status, result.proof) == (Status.OPTIMAL, "capacity prices")


@pytest.mark.parametrize("seed", range(3))
def test_gangs_are_priced_on_every_device(seed: int) -> None:
    problem = generate("chain", 4, 14, "tight", seed, gangs=True)
    truth = solve(problem, "brute", Params(time_limit=60.0))
    result = solve(problem, "prices", Params(time_limit=30.0))
    assert (result.status, result.objective) == (truth.status, truth.objective)


def test_an_early_end_leaves_a_plan_and_a_bound() -> None:
    problem = generate("layered", 30, 128, "tight", 0)
    result = PricesSolver().solve(problem, Params(time_limit=0.5), None)
    assert result.status is Status.FEASIBLE
    assert result.bound is not None
    assert result.objective is not None
    assert result.bound < result.objective
    assert result.seconds < 3.0


@pytest.mark.parametrize("held", [10**9, 0])
def test_search_survives_any_stop_however_few_prices_it_holds(held: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_nodes, "_MOST_HELD", held)
    problem = generate("layered", 12, 64, "tight", 4)
    truth = solve(problem, "prices", Params(time_limit=60.0))
    assert truth.status is Status.OPTIMAL
    assert truth.objective is not None
    search = PricedSearch(problem, problem.allowed, None, Clock(math.inf))
    search.bound_root(10)
    bounds, shared = [search.bound], False
    while not search.done:
        search.explore(Clock(0.02))
        assert search.bound is not None
        shared = shared or has_shared_prices(search)
        assert search.bound <= truth.objective
        bounds.append(search.bound)
    assert search.value == truth.objective
    assert bounds == sorted(bounds)  # type: ignore[type-var]
    assert shared == (held == 0)


def has_shared_prices(search: PricedSearch) -> bool:
    """Whether two open nodes have one object of prices between them."""
    assert search._open is not None
    held = [id(node.start) for node in search._open._open]
    return len(set(held)) < len(held)


@pytest.mark.parametrize("family", ["chain", "layered"])
def test_neighbourhoods_only_improve(family: str) -> None:
    problem = generate(family, 20, 64, "tight", 2)  # type: ignore[arg-type]
    first = solve(problem, "greedy", Params(time_limit=1.0))
    assert first.objective is not None
    assert first.choice is not None
    near = Neighbourhoods(problem, random.Random(0))
    value, plan = near.improve((first.objective, first.choice), problem.allowed, Clock(1.0))
    assert near.solved > 0
    assert value < first.objective
    assert objective(problem, plan) == value
    assert feasible(problem, plan)


def test_prices_of_the_last_solve_give_nearly_its_bound_at_once() -> None:
    problem = generate("chain", 20, 64, "tight", 3)
    first = PricedSearch(problem, problem.allowed, None, Clock(math.inf))
    first.bound_root()
    assert first.price.max() > 0
    cold = PricedSearch(problem, problem.allowed, None, Clock(math.inf))
    warm = PricedSearch(problem, problem.allowed, None, Clock(math.inf), first.multipliers)
    cold.bound_root(1)
    warm.bound_root(1)
    assert cold.bound is not None
    assert warm.bound is not None
    assert first.bound is not None
    assert warm.bound > cold.bound
    assert warm.bound >= 0.99 * first.bound


@pytest.mark.parametrize(
    ("limit", "said"), [(0.0, "the time limit"), (1e-9, "the time limit"), (0.006, "no time left")]
)
def test_no_prices_are_looked_for_without_time(limit: float, said: str) -> None:
    problem = generate("chain", 30, 64, "tight")
    result = solve(problem, "prices", Params(time_limit=limit))
    assert result.multipliers is None
    assert said in result.note


def test_min_marginals_are_those_of_the_best_prices() -> None:
    """Whether the last step was the best one or not."""
    fell = rose = 0
    for seed in range(40):
        problem = random_problem(seed, stages=5, shape="dag", memory="tight", combinations=5_000)
        if len(np.unique(problem.options.stage[problem.allowed])) < problem.V:
            continue
        upper, before = int(problem.options.cost.max()) * problem.V, None
        for steps in range(1, 8):
            c, _, bound, marginals = root(problem, steps, upper)
            assert all(marginals[part].min() == min(bound, UNREACHABLE) for part in c.of), (seed, steps)
            fell += bound == before
            rose += before is not None and bound > before
            before = bound
    assert fell > 5
    assert rose > 5
