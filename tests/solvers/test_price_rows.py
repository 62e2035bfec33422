"""Affinities, shared weights and limits in time under prices: what they cost in the messages, and bounds by hand."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.families import generate
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers.api import solve
from iegopt.solvers.evaluate import affinity_holds, device_load, feasible, finish_times, objective
from iegopt.solvers.exact import candidates as layout
from iegopt.solvers.exact.beam import beam
from iegopt.solvers.exact.candidates import Candidates, candidates
from iegopt.solvers.exact.in_time import in_time
from iegopt.solvers.exact.links import LevelLink, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pricing import Priced, Pricing, no_split
from iegopt.solvers.exact.weights import node_weights
from iegopt.solvers.result import Params, Status
from tests.solvers.random_problems import random_problem


def plans_of(problem: Problem, count: int, seed: int) -> list[np.ndarray]:
    """Random plans of allowed options."""
    rng = random.Random(seed)
    choices = [
        np.flatnonzero(problem.allowed[problem.options.of(v)]) + problem.options.ptr[v] for v in range(problem.V)
    ]
    if not all(map(len, choices)):
        return []
    return [np.array([rng.choice(part.tolist()) for part in choices]) for _ in range(count)]


def places(c: Candidates, plan: np.ndarray) -> np.ndarray:
    at = {int(o): i for i, o in enumerate(c.option)}
    return np.array([at[int(o)] for o in plan])


def priced_root(problem: Problem, steps: int, upper: int) -> tuple[Candidates, Priced]:
    c = candidates(problem, problem.allowed)
    keep = np.ones((len(c.option), 1), dtype=np.bool_)
    pricing = Pricing(c, keep, np.zeros((len(c.capacity), 1)), no_split(c, 1))
    return c, pricing.run(lambda: upper, steps, 1.0, lambda plan: None, lambda _: False)


@pytest.mark.parametrize("cells", [0, 10**9], ids=["levels", "tables"])
@pytest.mark.parametrize("links", ["tree", "odd", "pairs"])
def test_couplings_cost_what_a_plan_pays(links: str, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layout, "_TABLE_CELLS", cells)
    exact = unreachable = kinds = 0
    for seed in range(60):
        problem = random_problem(seed, links=links, affinity=True, memory="slack", extensions=False)
        plans = plans_of(problem, 20, seed)
        if not plans or any(rule.penalty < 0 for rule in problem.affinities):
            continue
        c = candidates(problem, problem.allowed)
        kinds += sum(isinstance(link, LevelLink) for link in c.links)
        costs = c.cost_of(np.stack([places(c, plan) for plan in plans]))
        # A preferred rule of more than two stages is split over its pairs: a lower bound.
        split = any(not rule.required and len(set(rule.stages)) > 2 for rule in problem.affinities)
        for plan, cost in zip(plans, costs.tolist(), strict=True):
            broken = any(rule.required and not affinity_holds(problem, rule, plan) for rule in problem.affinities)
            assert (cost >= UNREACHABLE) == broken
            unreachable += broken
            if not broken:
                assert cost <= objective(problem, plan)
                exact += not split and cost == objective(problem, plan)
                assert split or cost == objective(problem, plan)
    assert exact > 50
    assert unreachable > 50
    assert (kinds > 20) == (cells == 0 and links != "pairs")


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_a_price_on_time_is_the_same_on_every_kind_of_link(seed: int, forward: bool) -> None:
    problem = replace(generate("layered", 6, 200, "tight", seed), deadline=10**11)
    c = candidates(problem, problem.allowed)
    rng = np.random.default_rng(seed)
    rate = np.array([0.0, 0.25, 3.5])
    for link, (u, v) in zip(c.links, c.ends, strict=True):
        assert isinstance(link, LevelLink)
        near, far = (u, v) if forward else (v, u)
        n, m = (c.of[stage].stop - c.of[stage].start for stage in (near, far))
        table = link.part(*(np.arange(c.of[stage].stop - c.of[stage].start) for stage in (u, v)))
        assert isinstance(table, TableLink)
        assert table.time is not None
        theta = rng.integers(0, 10**10, (n, 3))
        assert np.array_equal(link.at(rate).send(theta, forward), table.at(rate).send(theta, forward))
        some = rng.integers(0, n, 3)
        rows = link.at(rate).rows(some, forward)
        assert np.array_equal(rows, table.at(rate).rows(some, forward))
        cost, time = (part if forward else part.T for part in (table.table, table.time))
        paid = np.minimum(cost[some] + np.floor(time[some] * rate[:, None]).astype(np.int64), UNREACHABLE)
        assert np.array_equal(np.minimum(rows, UNREACHABLE), paid)
        of_last = link.at(rate).of_node(2).rows(np.arange(n), forward)
        assert np.array_equal(of_last, table.at(rate).of_node(2).rows(np.arange(n), forward))
        pairs = rng.integers(0, n, 5), rng.integers(0, m, 5)
        ends = pairs if forward else pairs[::-1]
        assert np.array_equal(link.pair_times(*ends), table.pair_times(*ends))
        assert np.array_equal(link.moving.send(theta, forward), table.moving.send(theta, forward))


@pytest.mark.parametrize("seed", range(40))
def test_times_of_plans_are_those_of_the_evaluation(seed: int) -> None:
    problem = random_problem(seed, deadline=True, affinity=False)
    plans = plans_of(problem, 10, seed)
    if not plans or not problem.has_path_limits:
        pytest.skip("no plan, or the deadline is slack")
    c = candidates(problem, problem.allowed)
    chosen = np.stack([places(c, plan) for plan in plans], axis=1)
    time, moved = c.time[chosen], c.moved(chosen)
    finish = c.rows.finish(time, moved)
    for b, plan in enumerate(plans):
        assert np.array_equal(finish[:, b], finish_times(problem, plan))
    c.rows.add_late(time, moved)
    late = c.rows.excess(time, moved)
    kept = c.rows.in_time(time, moved)
    for b, plan in enumerate(plans):
        in_time = (finish_times(problem, plan) <= np.minimum(problem.finish_by, problem.deadline)).all()
        within = (
            not (problem.budget < 2**62)
            or int(problem.options.time[plan][list(problem.budget_stages)].sum()) <= problem.budget
        )
        assert kept[b] == (in_time and within)
        assert in_time or late[:, b].max() > 0, "the path that is late has a row"


def lines(times: list[list[float]], costs: list[list[float]], **more: Any) -> Problem:
    """A chain of stages on one device each of ample memory, without transfers that cost."""
    sites = range(max(map(len, times)))
    levels = ("domain", "host", "rack", "datacenter")
    stages = [
        {"id": f"s{v}", "options": {"site": list(range(len(time))), "variant": ["x"] * len(time), "cost": cost,
                                    "time": time, "memory": [0] * len(time)}}
        for v, (time, cost) in enumerate(zip(times, costs, strict=True))
    ]  # fmt: skip
    document: dict[str, Any] = {
        "format": "iegopt-instance/1", "name": "lines",
        "devices": {"id": [f"d{s}" for s in sites], "memory": [10**9 for _ in sites]},
        "sites": {"id": [f"d{s}" for s in sites], "devices": [[s] for s in sites],
                  **{level: [0 for _ in sites] for level in levels}},
        "links": {level: {"latency": 0.0, "bandwidth": 1e12} for level in (*levels, "wan")},
        "stages": stages,
        "edges": [{"from": v, "to": v + 1, "kind": "data", "bytes": 0, "weight": 1.0} for v in range(len(times) - 1)],
        **more,
    }  # fmt: skip
    return to_problem(parse_instance(document, "lines"))


def test_the_price_of_a_deadline_by_hand() -> None:
    """Cheap takes 10 s and costs 1, quick takes 2 s and costs 5: half of each meets 6 s at 3, 0.5 saved per second."""
    problem = lines([[10.0, 2.0]], [[1.0, 5.0]], deadline=6.0)
    assert not problem.allowed.all(), "one stage over the deadline is no option at all"
    problem = lines([[10.0, 2.0], [10.0, 2.0]], [[1.0, 5.0], [1.0, 5.0]], deadline=16.0)
    # Both cheap: 20 s for 2. LP: half of one stage quick, 16 s for 4. Best plan: 12 s for 6.
    c, priced = priced_root(problem, 200, 6 * 10**9)
    assert int(priced.bound[0]) == pytest.approx(4e9, rel=0.02)
    assert int(priced.bound[0]) <= 4 * 10**9
    assert [row.limit for row in c.rows.rows] == [16 * 10**9]
    assert c.rows.prices(priced.toll)[0, 0] == pytest.approx(0.5, rel=0.05)
    result = solve(problem, "prices")
    assert (result.status, result.objective) == (Status.OPTIMAL, 6 * 10**9)


@pytest.mark.parametrize("steps", range(1, 8))
def test_paths_found_in_the_last_step_are_free(steps: int) -> None:
    """Two paths of equal stages are late by turns."""
    edges = [{"from": u, "to": v, "bytes": 0} for u, v in ((0, 1), (0, 2), (1, 3), (2, 3))]
    problem = lines([[10.0, 2.0]] * 4, [[1.0, 5.0]] * 4, deadline=20.0, edges=edges)
    c, priced = priced_root(problem, steps, 20 * 10**9)
    assert len(priced.toll) == len(c.rows) > 0


def test_the_price_of_a_budget_by_hand() -> None:
    problem = lines(
        [[10.0, 2.0], [10.0, 2.0]], [[1.0, 5.0], [1.0, 5.0]],
        budget={"limit": 16.0, "stages": [0, 1]}, extensions=["budget"],
    )  # fmt: skip
    c, priced = priced_root(problem, 200, 6 * 10**9)
    assert int(priced.bound[0]) == pytest.approx(4e9, rel=0.02)
    assert c.rows.rows[0].end is None
    assert c.rows.prices(priced.toll)[0, 0] == pytest.approx(0.5, rel=0.05)


@pytest.mark.parametrize("seed", range(30))
def test_weights_of_stages_that_share_models_sum_to_one_at_most(seed: int) -> None:
    problem = random_problem(seed, extensions=True, memory="tight", gangs=False)
    if not (problem.options.weight_key >= 0).any() or not all(map(len, plans_of(problem, 1, 0))):
        pytest.skip("no shared weights")
    c = candidates(problem, problem.allowed)
    keep = np.ones(len(c.option), dtype=np.bool_)
    weight = node_weights(c, keep)[0]
    free = [part.stop - part.start > 1 for part in c.of]
    for plan in plans_of(problem, 60, seed):
        fits = (device_load(problem, plan) <= problem.capacity).all()
        if not fits:
            continue
        load = np.zeros(len(c.capacity))
        for v, i in enumerate(places(c, plan).tolist()):
            load[c.devices[0, i]] += weight[i] if free[v] else 0.0
        assert (load[:-1] <= 1 + 1e-9).all()


@pytest.mark.parametrize("shared", [False, True])
def test_fixed_gangs_take_memory_of_all_their_devices(shared: bool) -> None:
    """Several fixed gangs took whatever lay in memory behind the amounts of their first devices."""
    several = 0
    for seed in range(60):
        problem = random_problem(seed, stages=5, gangs=True, memory="slack", extensions=shared)
        plans = plans_of(problem, 1, seed)
        if not plans:
            continue
        c = candidates(problem, problem.allowed)
        own, fixed = c.of[0], places(c, plans[0])[1:].tolist()
        keep = np.zeros(len(c.option), dtype=np.bool_)
        keep[own] = keep[fixed] = True
        free, brought = c.capacity.tolist(), {-1}
        for option in fixed:
            amount = int(c.share[option])
            if int(c.weight_key[option]) not in brought:
                amount += int(c.weight_share[option])
                brought.add(int(c.weight_key[option]))
            for device in c.devices[:, option].tolist():
                free[device] -= amount
        weight = node_weights(c, keep, strengthened=False)
        for option in range(own.start, own.stop) if own.stop - own.start > 1 else ():
            need = int(c.share[option])
            if int(c.weight_key[option]) not in brought:
                need += int(c.weight_share[option])
            for k, device in enumerate(c.devices[:, option].tolist()):
                binds = device < len(c.capacity) - 1 and 0 < need <= free[device]
                assert weight[k, option] == pytest.approx(need / free[device] if binds else 0.0, rel=1e-12), seed
        several += int((c.devices[1:, fixed] < len(c.capacity) - 1).any())
    assert several > 5


@pytest.mark.parametrize("kind", ["deadline", "affinity", "extensions"])
def test_larger_problems_agree_with_cpsat(kind: str) -> None:
    pytest.importorskip("ortools")
    compared = 0
    for seed in range(12):
        switches = {"deadline": False, "affinity": False, "extensions": False, kind: True}
        problem = random_problem(seed, stages=6, combinations=10**6, **switches)  # type: ignore[arg-type]
        mine = solve(problem, "prices", Params(time_limit=30.0))
        other = solve(problem, "cpsat", Params(time_limit=30.0))
        assert mine.status is other.status
        if mine.objective is not None and other.objective is not None and mine.choice is not None:
            assert math.isclose(mine.objective, other.objective, rel_tol=2e-6)
            assert feasible(problem, mine.choice)
            compared += 1
    assert compared >= 3


@pytest.mark.parametrize("first", [0, 40])
def test_only_options_that_no_plan_in_time_uses_are_dropped(first: int) -> None:
    dropped = 0
    for seed in range(first, first + 40):
        problem = random_problem(seed, stages=4, combinations=200, deadline=True, extensions=seed % 2 == 0, sla=False)
        parts = [np.flatnonzero(problem.allowed[problem.options.of(v)]) + problem.options.ptr[v] for v in range(4)]
        if not all(map(len, parts)) or not (problem.has_path_limits or problem.budget < NO_LIMIT):
            continue
        c = candidates(problem, problem.allowed)
        whole = np.ones((len(c.option), 2), dtype=np.bool_)
        whole[c.of[0].start + 1 : c.of[0].stop, 1] = False
        keep = in_time(c, whole)
        dropped += int((whole & ~keep).sum())
        for plan in np.stack(np.meshgrid(*parts, indexing="ij"), -1).reshape(-1, 4):
            if not feasible(problem, plan):
                continue
            at = places(c, plan)
            assert keep[at, 0].all(), seed
            assert keep[at, 1].all() or at[0] != c.of[0].start, seed
    assert dropped > 20


@pytest.mark.parametrize("first", [0, 40, 80])
def test_a_beam_of_any_width_has_every_plan_in_time(first: int) -> None:
    """Limits in time drop partial plans that nothing can complete, and never one of the optimum."""
    late = solved = 0
    for seed in range(first, first + 40):
        problem = random_problem(seed, stages=5, combinations=600, deadline=True, extensions=seed % 2 == 0)
        truth = solve(problem, "brute")
        if truth.objective is None or not (problem.has_path_limits or problem.budget < NO_LIMIT):
            continue
        c, priced = priced_root(problem, 8, truth.objective + 1)
        keep = np.ones(len(c.option), dtype=np.bool_)
        found = beam(c, priced, 0, keep, truth.objective + 1, 10**6, 10**9)
        assert found.bound == truth.objective + 1, "nothing was left out"
        plans = [c.option[plan] for plan in found.plans]
        values = [objective(problem, plan) for plan in plans if feasible(problem, plan)]
        assert values, seed
        assert min(values) == truth.objective, seed
        late += sum(not feasible(problem, plan) for plan in plans)
        solved += 1
    assert solved > 5
    assert late <= solved, "what is placed tells nearly all"
