"""Multipliers that a solve hands over: by hand, by name, as a start for another problem, and in the planner."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.problem.arrays import Problem
from iegopt.solvers import api
from iegopt.solvers.api import solve
from iegopt.solvers.exact.candidates import candidates
from iegopt.solvers.exact.handover import multipliers_of, prices_from
from iegopt.solvers.exact.pricing import Pricing, no_split
from iegopt.solvers.multipliers import LimitPrice, Multipliers
from iegopt.solvers.result import Params, Result, Status
from tests.explain.lab import at, chain, cluster_of, gpu, stage
from tests.solvers.agreement import oracle
from tests.solvers.random_problems import random_problem
from tests.solvers.test_price_rows import lines, priced_root


def with_memory(problem: Problem, gigabytes: list[float], each: float) -> Problem:
    """Devices of so many GB, every option taking ``each``."""
    capacity = problem.capacity.copy()
    capacity[:] = [int(x * 1e9) * problem.memory_scale for x in gigabytes]
    share = problem.options.share.copy()
    share[:] = int(each * 1e9) * problem.memory_scale
    return dataclasses.replace(
        problem, capacity=capacity, options=dataclasses.replace(problem.options, share=share)
    )  # fmt: skip


def found_at_the_root(problem: Problem, upper: int) -> Multipliers:
    c, priced = priced_root(problem, 200, upper)
    price = np.zeros(problem.topology.D)
    price[c.used] = priced.price[:-1, 0]
    return multipliers_of(problem, price, c.rows, priced.toll[:, 0])


def bound_from(problem: Problem, known: Multipliers) -> int:
    c = candidates(problem, problem.allowed)
    price, toll = prices_from(problem, known, c.rows)
    keep = np.ones((len(c.option), 1), dtype=np.bool_)
    start = np.append(price[c.used], 0.0)[:, None]
    return int(Pricing(c, keep, start, no_split(c, 1), toll[:, None]).bounds()[0])


def test_the_price_of_memory_by_hand() -> None:
    """Of four stages of 8 GB the device of 10 GB takes one at 1 s, the others cost 5 s elsewhere: 4 s for 10 GB."""
    problem = with_memory(lines([[1.0, 1.0]] * 4, [[1.0, 5.0]] * 4, edges=[]), [10.0, 100.0], 8.0)
    found = found_at_the_root(problem, 16 * 10**9)
    assert found.memory == {"d0": pytest.approx(0.4, rel=0.05)}
    assert found.limits == ()
    assert bound_from(problem, Multipliers()) == 4 * 10**9
    assert bound_from(problem, found) >= 15.5e9
    assert bound_from(problem, Multipliers({"d0": 0.4})) == 16 * 10**9 - 1, "a tick for rounding"


def test_a_deadline_is_handed_over_with_its_path() -> None:
    problem = lines([[10.0, 2.0]] * 4, [[1.0, 5.0]] * 4, deadline=26.0)
    # All cheap: 40 s for 4. LP: 7/4 stages quick, 26 s for 11. Best plan: 24 s for 12.
    found = found_at_the_root(problem, 12 * 10**9)
    assert found.memory == {}
    (limit,) = found.limits
    path = (("s0", "s1"), ("s1", "s2"), ("s2", "s3"))
    assert (limit.rule, limit.stages, limit.edges) == ("deadline", ("s0", "s1", "s2", "s3"), path)
    assert limit.price == pytest.approx(0.5, rel=0.1)
    assert bound_from(problem, Multipliers()) == 4 * 10**9
    assert 10.3e9 <= bound_from(problem, found) <= 11 * 10**9
    assert bound_from(problem, Multipliers({}, (dataclasses.replace(limit, price=0.5),))) == pytest.approx(11e9, abs=9)


@pytest.mark.parametrize(
    "known",
    [
        Multipliers({"no such device": 3.0}, ()),
        Multipliers({"d0": 1e12, "d1": 1e-12}, ()),
        Multipliers({}, (LimitPrice("deadline", ("s0", "elsewhere"), (("s0", "elsewhere"),), 2.0),)),
        Multipliers({}, (LimitPrice("deadline", ("s1", "s0"), (("s1", "s0"),), 2.0),)),
        Multipliers({}, (LimitPrice("finish_by", ("s0",), (), 1e9), LimitPrice("budget", ("s0",), (), 7.0))),
    ],
    ids=["device", "huge", "stage", "edge", "limit"],
)
@pytest.mark.parametrize("limit", [{}, {"deadline": 16.0}], ids=["free", "deadline"])
def test_prices_of_anything_else_are_left_out_or_harmless(known: Multipliers, limit: dict[str, Any]) -> None:
    problem = lines([[10.0, 2.0], [10.0, 2.0]], [[1.0, 5.0], [1.0, 5.0]], **limit)
    result = solve(problem, "prices", Params(multipliers=known))
    assert (result.status, result.objective) == (Status.OPTIMAL, (6 if limit else 2) * 10**9)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_no_start_changes_an_answer(first: int) -> None:
    """Every problem starts from the prices of the one before, another cluster altogether; names coincide."""
    known = Multipliers({"d0": 0.05, "d1": 0.2}, (LimitPrice("deadline", ("s0", "s1"), (("s0", "s1"),), 0.7),))
    handed = 0
    for seed in range(first, first + 40):
        _, problem, truth = oracle(seed)
        if api.SOLVERS["prices"].supports(problem) is not None:
            continue
        result = solve(problem, "prices", Params(multipliers=known))
        assert result.status is truth.status
        if truth.objective is not None and result.objective is not None:
            assert result.objective - truth.objective <= 1e-6 * truth.objective
        if result.multipliers is not None and (result.multipliers.memory or result.multipliers.limits):
            known, handed = result.multipliers, handed + 1
    assert handed > 1


@pytest.mark.parametrize("price", [1e6, 1e30])
def test_no_price_is_so_high_that_a_plan_looks_impossible(price: float) -> None:
    """All devices and all paths at once, on problems whose transfers take far longer than their limits."""
    for seed in range(12):
        problem = random_problem(seed, stages=4, shape="chain", combinations=200, deadline=True, sla=False)
        names = problem.stages
        paths = tuple(
            LimitPrice("deadline", names[i : j + 1], tuple(zip(names[i:j], names[i + 1 : j + 1], strict=True)), price)
            for i in range(4)
            for j in range(i, 4)
        )
        known = Multipliers(dict.fromkeys(problem.topology.devices, price), paths)
        slow = dataclasses.replace(problem, edges=dataclasses.replace(problem.edges, bytes=problem.edges.bytes * 1e4))
        for each in (problem, slow):
            truth = solve(each, "brute")
            bound = bound_from(each, known) if each.allowed.any() and _has_options(each) else None
            assert bound is None or truth.objective is None or bound <= truth.objective
            result = solve(each, "prices", Params(multipliers=known))
            assert (result.status, result.objective) == (truth.status, truth.objective)


def _has_options(problem: Problem) -> bool:
    return all(problem.allowed[problem.options.of(v)].any() for v in range(problem.V))


def test_a_planner_starts_from_the_prices_of_its_last_solve(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = cluster_of(gpu("x", vram="40GB", **at("a", "x")), gpu("y", vram="40GB", **at("b", "y")))
    request = chain(stage("prefill", "prefill"), stage("decode", "decode"))
    handed = Multipliers({"x": 0.25}, ())
    starts: list[Multipliers | None] = []

    def spied(problem: Problem, solver: str, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        starts.append(params.multipliers)
        return dataclasses.replace(solve(problem, solver, params, hint), multipliers=handed)

    monkeypatch.setattr("iegopt.planner.in_time.solve", spied)
    planner = Planner(cluster)
    plans = [planner.plan(request, explained=False) for _ in range(2)]
    own = Multipliers({"y": 1.0}, ())
    planner.plan(request, params=Params(multipliers=own), explained=False)
    Planner(cluster).plan(request, explained=False)
    assert starts == [None, handed, own, None]
    assert all(isinstance(plan, Plan) for plan in plans)


def test_a_planner_may_be_asked_by_many_threads() -> None:
    cluster = cluster_of(gpu("x", vram="40GB", **at("a", "x")), gpu("y", vram="40GB", **at("b", "y")))
    planner = Planner(cluster)
    requests = [chain(stage("prefill", "prefill"), stage("decode", "decode"), size=f"{n}GB") for n in (1, 2)] * 8
    alone = [Planner(cluster).plan(request, explained=False) for request in requests[:2]]
    with ThreadPoolExecutor(4) as pool:
        plans = list(pool.map(lambda request: planner.plan(request, explained=False), requests))
    for i, plan in enumerate(plans):
        one = alone[i % 2]
        assert isinstance(plan, Plan)
        assert isinstance(one, Plan)
        assert (plan.status, plan.objective) == (one.status, one.objective)
