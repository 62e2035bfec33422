"""What list scheduling and local search in time are made of: transfers, prices, ranks, and a published example."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from iegopt.bench.public.assignment import separate_sites
from iegopt.bench.public.stg import task_graph
from iegopt.problem.arrays import NO_LIMIT, Edges, Problem
from iegopt.problem.arrays import TICKS_PER_SECOND as SECOND
from iegopt.problem.families import Family, generate
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import objective, why_infeasible
from iegopt.solvers.exact import compiled
from iegopt.solvers.result import Params, Status
from iegopt.solvers.timed.bound import MakespanBound
from iegopt.solvers.timed.construct import Builder
from iegopt.solvers.timed.pricer import Pricer
from iegopt.solvers.timed.ranks import mean_ranks, optimistic_costs
from iegopt.solvers.timed.start import Start
from iegopt.solvers.timed.walk import Walk, walkable
from iegopt.solvers.timetable import first_gap
from iegopt.verify.assignment import check_assignment
from tests.solvers.random_problems import random_problem
from tests.solvers.random_timed import timed_instance

WORK = [
    (14, 16, 9), (13, 19, 18), (11, 13, 19), (13, 8, 17), (12, 13, 10),
    (13, 16, 9), (7, 15, 11), (5, 11, 14), (18, 12, 20), (21, 7, 16),
]  # fmt: skip
MOVED = {
    (0, 1): 18, (0, 2): 12, (0, 3): 9, (0, 4): 11, (0, 5): 14, (1, 7): 19, (1, 8): 16, (2, 6): 23,
    (3, 7): 27, (3, 8): 23, (4, 8): 13, (5, 7): 15, (6, 9): 17, (7, 9): 11, (8, 9): 13,
}  # fmt: skip


def published_example() -> Problem:
    """Ten tasks on three processors: figure 3 of Topcuoglu, Hariri, Wu (2002)."""
    before = [[u for (u, v) in MOVED if v == w] for w in range(10)]
    problem = task_graph("heft", [0] * 10, before, 3)
    pairs = list(MOVED)
    none = np.zeros(len(pairs))
    edges = Edges(
        source=np.array([u for u, _ in pairs]),
        target=np.array([v for _, v in pairs]),
        bytes=np.array([float(size) for size in MOVED.values()]),
        weight=none,
        chunk=none,
        hidden=(None,) * len(pairs),
        kind=("data",) * len(pairs),
    )
    options = replace(problem.options, time=np.array(WORK, dtype=np.int64).ravel() * SECOND)
    topology = separate_sites(3, pair_seconds_per_byte=1.0 - np.eye(3))
    return replace(problem, options=options, edges=edges, topology=topology)


def scheduled(problem: Problem) -> tuple[Pricer, Builder]:
    price = Pricer(problem)
    return price, Builder(price, MakespanBound(problem))


def test_upward_ranks_are_those_of_the_paper() -> None:
    mean = mean_ranks(Pricer(published_example()))
    expected = [108.0, 77.0, 80.0, 80.0, 69.0, 63.333, 42.667, 35.667, 44.333, 14.667]
    assert [up / SECOND for up in mean.up] == pytest.approx(expected, abs=1e-3)
    assert mean.critical == {0, 1, 8, 9}


def test_heft_of_the_paper_ends_at_80() -> None:
    price, builder = scheduled(published_example())
    chosen = builder.build(mean_ranks(price).up, Clock(10.0), eager=True)
    found = price(chosen, priority=mean_ranks(price).up)
    assert (found.broken, found.value) == (0, 80 * SECOND)


def test_cpop_of_the_paper_ends_at_86() -> None:
    problem = published_example()
    price, builder = scheduled(problem)
    mean = mean_ranks(price)
    length = [up + down for up, down in zip(mean.up, mean.down, strict=True)]
    pinned = Start(problem, Params(), Clock(10.0), walks=False).on_one_site(mean)
    assert pinned == dict.fromkeys((0, 1, 8, 9), 1)  # the second processor does them in 54, the others in 66 and 63
    chosen = builder.build(length, Clock(10.0), eager=True, pinned=pinned)
    assert price(chosen, priority=length).value == 86 * SECOND


def test_optimistic_costs_count_the_best_option_of_all_that_follows() -> None:
    behind = optimistic_costs(Pricer(published_example()))
    assert (behind[9] / SECOND).tolist() == [0, 0, 0]
    assert (behind[8] / SECOND).tolist() == [20, 7, 16]  # from the first: move 13, then 7
    assert (behind[6] / SECOND).tolist() == [21, 7, 16]


def test_links_that_no_byte_takes_may_be_as_slow_as_numbers_go() -> None:
    """Seconds per byte of 10³⁰⁰ in ticks were infinite, and the ranks of stages that send nothing no numbers."""
    problem = published_example()
    pairs = np.full((3, 3), 1.7e308)
    nothing = replace(problem.edges, bytes=np.zeros(problem.E))
    price = Pricer(replace(problem, edges=nothing, topology=separate_sites(3, pair_seconds_per_byte=pairs)))
    assert optimistic_costs(price)[8].tolist() == [7 * SECOND] * 3
    assert mean_ranks(price).up[8] == pytest.approx((50 / 3 + 44 / 3) * SECOND)


def test_links_of_a_problem_without_edges_may_be_as_slow_as_numbers_go() -> None:
    problem = task_graph("apart", [0] * 3, [[], [], []], 3)
    topology = replace(separate_sites(3), pair_latency=np.full((3, 3), 1.7e308), pair_seconds_per_byte=np.ones((3, 3)))
    price = Pricer(replace(problem, topology=topology))
    assert [costs.tolist() for costs in optimistic_costs(price)] == [[0.0] * 3] * 3
    assert mean_ranks(price).down == (0.0, 0.0, 0.0)


def test_auto_beats_the_list_schedules_of_the_paper() -> None:
    result = solve(published_example(), "auto", Params(time_limit=5.0))
    assert (result.status, result.objective) == (Status.OPTIMAL, 73 * SECOND)


@pytest.mark.parametrize("seed", range(40))
def test_transfers_are_those_of_the_problem(seed: int) -> None:
    """Gangs, overlap, dense pairs and uneven links: the same ticks, by row and by pair."""
    problem = random_problem(seed)
    price = Pricer(problem)
    for e in range(problem.E):
        v = int(problem.edges.target[e])
        for a in range(*problem.options.ptr[[problem.edges.source[e], problem.edges.source[e] + 1]].tolist()):
            time, cost = edge_ticks(problem, e, np.array(a), price.own[v])
            row_time, row_cost = price.transfers.row(e, a)
            assert row_time.tolist() == time.tolist()
            assert (cost if row_cost is None else row_cost).tolist() == cost.tolist()
            pairs = [price.transfers.between(e, a, b) for b in price.own[v].tolist()]
            assert pairs == list(zip(time.tolist(), cost.tolist(), strict=True))


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_prices_are_those_of_the_verifier(first: int) -> None:
    """Any plan, shaken or not, alone or as the neighbour of another: value and verdict."""
    for seed in range(first, first + 50):
        problem = to_problem(parse_instance(timed_instance(seed)))
        if not all(problem.allowed[problem.options.of(v)].any() for v in range(problem.V)):
            continue
        rng = np.random.default_rng(seed)
        price = Pricer(problem)
        near = None
        for _ in range(4):
            choice = np.array([rng.choice(own) for own in price.own])
            shake = rng.uniform(0.5, 2.0, problem.V).tolist() if rng.random() < 0.5 else []
            found = price(choice.tolist(), shake, near)
            start = found.table.start if problem.no_overlap else None
            report = check_assignment(problem, choice.tolist(), None if start is None else start.tolist())
            assert (found.broken == 0) == report.ok == (why_infeasible(problem, choice, start) is None)
            assert found.value == report.objective == objective(problem, choice, start)
            near = found


def test_a_stage_takes_the_first_gap_that_is_long_enough() -> None:
    taken = [(0, 2), (5, 9), (11, 12)]
    assert [first_gap(taken, at, 3) for at in (0, 2, 3, 9, 13)] == [2, 2, 12, 12, 13]
    assert [first_gap(taken, at, 2) for at in (0, 3, 9)] == [2, 3, 9]
    assert first_gap(taken, 6, 0) == 6  # what takes no time is in nobody's way


def test_construction_keeps_limits_and_affinities_where_it_can() -> None:
    problem = replace(generate("agent", 12, 32, "tight", 3), makespan_weight=1.0, no_overlap=True)
    price, builder = scheduled(problem)
    found = price(builder.build(mean_ranks(price).up, Clock(10.0), eager=True))
    assert found.broken == 0


def test_when_time_is_out_the_rest_is_spread_over_the_devices() -> None:
    problem = task_graph("spread", [SECOND] * 8, [()] * 8, 4)
    price, builder = scheduled(problem)
    chosen = builder.build([0.0] * 8, Clock(0.0), eager=True)
    assert price(chosen).table.makespan == 2 * SECOND
    problem = replace(generate("layered", 20, 16, "slack", 1), makespan_weight=1.0, no_overlap=True)
    result = solve(problem, "auto", Params(time_limit=0.0))
    assert result.status is Status.FEASIBLE
    assert result.bound is not None
    assert result.bound <= solve(problem, "auto", Params(time_limit=0.5)).objective  # type: ignore[operator]


def test_memory_that_cannot_bind_is_not_counted() -> None:
    slack = generate("chain", 6, 8, "slack", 0)
    assert not Pricer(slack).memory_binds
    assert Pricer(generate("chain", 6, 8, "tight", 0)).memory_binds
    assert slack.budget == NO_LIMIT


@pytest.mark.parametrize("first", range(0, 120, 40))
@pytest.mark.usefixtures("core")
def test_the_compiled_walk_makes_plans_that_the_verifier_passes(first: int) -> None:
    """With and without overlap, costs of options and of edges; the price is the verifier's."""
    walked = 0
    for seed in range(first, first + 40):
        features = ("makespan_weight", "no_overlap") if seed % 2 else ("makespan_weight",)
        problem = to_problem(parse_instance(timed_instance(seed, features)))
        full = replace(problem, affinities=(), deadline=NO_LIMIT, budget=NO_LIMIT, capacity=problem.capacity * 100)
        full = replace(full, finish_by=np.full(full.V, NO_LIMIT))
        price = Pricer(full)
        if min(map(len, price.own)) == 0 or not walkable(price, Clock(1.0)):
            continue
        walked += 1
        found, count = Walk(price, [1.0] * full.V, random.Random(seed)).best(Clock(0.005), 0, 200)
        assert count >= 1
        start = found.table.start.tolist() if full.no_overlap else None
        report = check_assignment(full, list(found.chosen), start)
        assert report.ok, report.violations
        assert (found.broken, found.value) == (0, report.objective)
        best = solve(full, "brute")
        assert best.objective is not None
        assert found.value >= best.objective
    assert walked >= 8


@pytest.mark.usefixtures("core")
def test_the_compiled_walk_finds_the_optimum_of_the_published_example() -> None:
    price, _ = scheduled(published_example())
    ranks = mean_ranks(price).up
    found, _ = Walk(price, ranks, random.Random(3)).best(Clock(60.0), 73 * SECOND, None)
    assert found.value == 73 * SECOND


@pytest.mark.usefixtures("core")
def test_openings_of_the_compiled_walk_are_those_of_the_paper() -> None:
    """HEFT ends at 80, CPOP at 86; the first processor does all tasks in 127, the others in 130 and 143."""
    core = compiled.kernels()
    assert core is not None
    price, _ = scheduled(published_example())
    walk = Walk(price, [1.0] * 10, random.Random(0))
    priorities, pins = np.empty((10, 10)), np.empty((10, 10), dtype=np.int64)
    core.openings(walk._layout, 3, walk._ranks, priorities, pins)
    mean = mean_ranks(price)
    assert priorities[1] == pytest.approx(mean.up)
    # Three links join two sites and three a site with itself, so that half of every transfer counts.
    own = [sum(row) / 3 for row in WORK]
    up, down = [0.0] * 10, [0.0] * 10
    for v in range(10):
        down[v] = max((down[u] + own[u] + size / 2 for (u, w), size in MOVED.items() if w == v), default=0.0)
    for v in reversed(range(10)):
        up[v] = own[v] + max((size / 2 + up[w] for (u, w), size in MOVED.items() if u == v), default=0.0)
    assert priorities[8] / SECOND == pytest.approx(up)
    assert priorities[9] / SECOND == pytest.approx(np.add(up, down))
    assert priorities[7] == pytest.approx([-x for x in mean.down])
    assert np.sum(WORK, axis=0).tolist() == [127, 130, 143]
    assert (pins[2] - 3 * np.arange(10)).tolist() == [0] * 10
    assert [v for v in range(10) if pins[3, v] >= 0] == sorted(mean.critical)
    assert all(pins[3, v] == 3 * v + 1 for v in mean.critical)
    ends = {}
    for each in (1, 2, 3):
        walk = Walk(price, [1.0] * 10, random.Random(0))
        given = priorities[each : each + 1], pins[each : each + 1]
        core.schedules(walk._layout, 3, 3, 1.0, *given, walk._values, walk._priorities, walk._plans)
        ends[each] = walk._values[0] / SECOND
    assert ends == {1: 80, 2: 127, 3: 86}


@pytest.mark.usefixtures("core")
def test_all_openings_are_made_even_where_the_time_is_over() -> None:
    start = Start(published_example(), Params(), Clock(0.0), walks=True)
    assert start.walks
    assert start.best.value <= 80 * SECOND


@pytest.mark.usefixtures("core")
def test_what_the_compiled_walk_cannot_state_is_left_to_local_search() -> None:
    clock = Clock(10.0)
    graph = task_graph("g", [SECOND] * 4, [()] * 4, 2)
    assert walkable(Pricer(graph), clock)
    assert not walkable(Pricer(replace(graph, deadline=9 * SECOND)), clock)
    assert not walkable(Pricer(replace(generate("chain", 6, 8, "tight", 0), makespan_weight=1.0)), clock)
    assert not walkable(Pricer(replace(generate("chain", 6, 14, "slack", 0, gangs=True), makespan_weight=1.0)), clock)
    assert not walkable(Pricer(replace(generate("chain", 50, 400, "slack", 0), makespan_weight=1.0)), clock)


@pytest.mark.parametrize("first", range(0, 120, 30))
@pytest.mark.usefixtures("core")
def test_auto_with_the_compiled_walk_never_contradicts_brute_force(first: int) -> None:
    for seed in range(first, first + 30):
        problem = to_problem(parse_instance(timed_instance(seed, ("makespan_weight", "no_overlap"))))
        truth = solve(problem, "brute")
        found = solve(problem, "auto", Params(time_limit=0.02))
        if truth.objective is None:
            assert found.choice is None
            continue
        assert found.status is not Status.INFEASIBLE
        assert found.bound is None or found.bound <= truth.objective
        assert found.objective is None or found.objective >= truth.objective


@pytest.mark.parametrize(("family", "sites", "seed"), [("agent", 64, 13), ("chain", 64, 77)])
def test_tight_memory_has_a_plan_in_time_where_best_fit_finds_one(family: Family, sites: int, seed: int) -> None:
    """List scheduling by finish times alone overfills devices here."""
    problem = replace(generate(family, 50, sites, "tight", seed), no_overlap=True)
    price, builder = scheduled(problem)
    assert price(builder.build(mean_ranks(price).up, Clock(10.0), eager=True)).broken > 0
    assert solve(problem, "auto", Params(time_limit=0.1)).choice is not None
