"""Short deadlines of a planner: promising sites, what a plan over them says, and answers where there is no time."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.planner import Planner
from iegopt.plans import NoPlan, Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.compile import Compiled, can_focus, compile_graph
from iegopt.problem.focus import FOCUS_SITES
from iegopt.solvers.api import solve
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.part import beside, of_part
from iegopt.solvers.result import Params, Result, Status
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.request import RequestSpec

MODELS = ("H100", "A100-80GB", "L40S")


def cluster(each: int = 100) -> ClusterSpec:
    devices = [
        {"id": model, "model": model, "count": each, "spread": {"per_host": 8, "hosts_per_rack": 4},
         "location": {"rack": f"rack-{model}"}}
        for model in MODELS
    ]  # fmt: skip
    return ClusterSpec.model_validate({"devices": devices}, context={"document": True})


def request(count: int = 6, **first: Any) -> RequestSpec:
    stages: list[dict[str, Any]] = [
        {"id": f"s{i}", "type": "prefill", "compute": {"flops": f"{20 + i}T", "precision": "fp16"},
         "memory": {"vram": f"{3 + i}GB", "traffic": "60GB"}, "parallelism": {"degree": 1 + i % 2}}
        for i in range(count)
    ]  # fmt: skip
    stages[0] |= first
    edges = [{"from": f"s{i}", "to": f"s{i + 1}", "bytes": "200MB"} for i in range(count - 1)]
    return RequestSpec.model_validate({"graph": {"stages": stages, "edges": edges}}, context={"document": True})


@pytest.fixture(scope="module")
def planner() -> Planner:
    return Planner(cluster())


def in_whole(part: Compiled, choice: npt.NDArray[np.int64], whole: Compiled) -> npt.NDArray[np.int64]:
    """(V,) the options of the whole problem at the sites, in the variants, of a choice over a part of the sites."""
    assert part.table.whole is not None
    sites = part.table.whole[part.problem.options.site[choice]]
    found = np.zeros_like(choice)
    for v, (site, option) in enumerate(zip(sites.tolist(), choice.tolist(), strict=True)):
        variant = whole.problem.variants.index(part.problem.variants[int(part.problem.options.variant[option])])
        span = whole.problem.options.of(v)
        there = (whole.problem.options.site[span] == site) & (whole.problem.options.variant[span] == variant)
        found[v] = span.start + int(np.flatnonzero(there)[0])
    return found


def test_a_choice_over_promising_sites_costs_the_same_in_the_whole(planner: Planner) -> None:
    asked = request()
    graph = planner.graph(asked)
    compiled = CompiledCluster(cluster())
    part = compile_graph(compiled, graph, asked, tier=0, focus=True)
    assert part is not None
    assert part.table.whole is not None
    assert part.problem.topology.S < 2 * FOCUS_SITES < compiled.sites(compiled.gang_sizes).topology.S
    whole = compile_graph(compiled, graph, asked, tier=0)
    found = solve(part.problem)
    assert found.choice is not None
    choice = in_whole(part, found.choice, whole)
    assert feasible(whole.problem, choice)
    assert objective(whole.problem, choice) == found.objective
    names = [whole.problem.topology.sites[s] for s in whole.problem.options.site[choice]]
    assert names == [part.problem.topology.sites[s] for s in part.problem.options.site[found.choice]]
    best = solve(whole.problem)
    assert best.objective is not None
    assert found.objective is not None
    assert best.objective <= found.objective <= 1.05 * best.objective


def test_every_kind_of_site_is_among_the_promising_ones() -> None:
    compiled = CompiledCluster(cluster())
    table = compiled.focus(compiled.gang_sizes)
    assert table is not None
    assert all(len(sites) >= 4 for sites in table.of_kind)
    whole = compiled.sites(compiled.gang_sizes)
    assert table.whole is not None
    for own, every in zip(table.of_kind, whole.of_kind, strict=True):
        assert np.isin(table.whole[own], every).all()


def test_promising_sites_follow_the_load() -> None:
    planner = Planner(cluster())
    compiled = planner._cluster
    before = compiled.focus(compiled.gang_sizes)
    assert before is not None
    busy = {device for site in before.topology.sites for device in site.split("+")}
    for device in 2 * sorted(busy):
        planner.update(device, utilisation=0.95)
    after = compiled.focus(compiled.gang_sizes)
    assert after is not None
    free = {device for site in after.topology.sites for device in site.split("+")} - busy
    assert len(free) >= len(busy) / 2


def test_small_clusters_are_taken_whole() -> None:
    compiled = CompiledCluster(cluster(each=8))
    assert compiled.focus(compiled.gang_sizes) is compiled.sites(compiled.gang_sizes)


def test_a_stage_bound_to_a_device_is_planned_over_all_sites(planner: Planner) -> None:
    bound = request(affinity={"device": f"{MODELS[2]}-99"})
    assert not can_focus(bound.graph, bound, planner._cluster)  # type: ignore[arg-type]
    assert can_focus(request().graph, request(), planner._cluster)  # type: ignore[arg-type]
    plan = planner.plan(bound, deadline_ms=200)
    assert isinstance(plan, Plan)
    assert plan.placement["s0"]["site"] == f"{MODELS[2]}-99"


def test_a_part_proves_nothing_of_the_whole(planner: Planner) -> None:
    table = planner._cluster.focus(planner._cluster.gang_sizes)
    assert table is not None
    proven = Result(Status.OPTIMAL, np.array([0]), 10, 10, "tree messages", "auto", 0.0, "all")
    said = of_part(proven, table)
    assert (said.status, said.bound, said.proof, said.objective) == (Status.FEASIBLE, None, None, 10)
    assert "no bound" in said.note
    none = of_part(Result(Status.INFEASIBLE, None, None, None, "no option", "auto", 0.0, "none"), table)
    assert none.status is Status.UNKNOWN
    whole = Result(Status.FEASIBLE, np.array([1]), 12, 9, "relaxation", "auto", 0.0, "whole")
    assert (beside(said, whole).bound, beside(said, whole).status) == (9, Status.FEASIBLE)
    whole = Result(Status.FEASIBLE, np.array([1]), 12, 11, "relaxation", "auto", 0.0, "whole")
    assert (beside(said, whole).bound, beside(said, whole).status) == (10, Status.OPTIMAL)


def test_a_plan_over_promising_sites_is_verified_and_explained(
    planner: Planner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("iegopt.planner.in_time.whole_seconds", lambda graph, topology: 1e9)
    asked = request()
    plan = planner.plan(asked, deadline_ms=200, explained=True)
    assert isinstance(plan, Plan)
    assert (plan.status, plan.bound, plan.gap) == ("feasible", None, None)
    assert "promising sites" in plan.note
    assert planner.verify(plan, asked).ok
    assert plan.explanation


def test_without_time_the_reason_is_the_answer(planner: Planner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iegopt.planner.in_time._GRACE", 0.0)  # else a quick machine has a first plan within it
    for deadline in (0, 0.01):
        answer = planner.plan(request(10), deadline_ms=deadline)
        assert isinstance(answer, NoPlan)
        assert answer.status == "unknown"
        assert "deadline" in answer.note


def test_compiling_stops_when_the_time_is_over(planner: Planner) -> None:
    asked = request()
    graph = planner.graph(asked)
    assert compile_graph(planner._cluster, graph, asked, tier=0, until=time.perf_counter() - 1) is None
    assert compile_graph(planner._cluster, graph, asked, tier=0, until=time.perf_counter() + 60) is not None


def test_costs_are_those_of_a_model_that_keeps_none(planner: Planner) -> None:
    """Stages that differ in one field do not share a cost."""
    for change in ({"compute": {"flops": "90T", "precision": "fp16"}}, {"fixed_time": "1s"}, {"io": {"bytes": "9GB"}}):
        asked = request(**change)
        kept = planner.compile(asked).problem.options
        fresh = Planner(cluster()).compile(asked).problem.options
        assert np.array_equal(kept.time, fresh.time)
        assert np.array_equal(kept.cost, fresh.cost)
    assert planner.plan(request(), params=Params(time_limit=1.0))
