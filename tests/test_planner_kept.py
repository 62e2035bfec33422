"""What a planner keeps under a deadline: the deadline itself, a first plan of any request, the graph of the last."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iegopt.explain.chosen import chosen, starts_of
from iegopt.planner import Planner, in_time
from iegopt.planner.first import FirstPlans
from iegopt.plans import NoPlan, Plan
from iegopt.problem.arrays import Affinity
from iegopt.solvers import auto
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.result import Result, Status
from iegopt.solvers.search.best_fit import tied_first
from iegopt.solvers.search.quick import quick_plan
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.load import load_cluster, load_request
from iegopt.spec.request import RequestSpec
from tests.test_planner_deadlines import cluster, request

INSTANCES = Path(__file__).parent.parent / "instances"
TIMED: dict[str, dict[str, Any]] = {
    "critical path": {"objective": "critical_path"},
    "no overlap": {"objective": "critical_path", "no_overlap": True},
    "peak": {"no_overlap": True, "memory_accounting": "peak"},
}


@pytest.fixture(scope="module")
def planners() -> dict[str, Planner]:
    return {
        name: Planner(load_cluster(INSTANCES / "clusters" / f"{name}.yaml"))
        for name in ("mixed-racks", "two-datacenters", "gb200-nvl72", "spot-mixed-1024")
    }


def asked_for(name: str, **more: Any) -> RequestSpec:
    asked = load_request(INSTANCES / "requests" / f"{name}.yaml")
    document = asked.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return RequestSpec.model_validate(document | more, context={"document": True})


def first(planner: Planner, asked: RequestSpec) -> Plan:
    plan = FirstPlans().plan(planner._cluster, planner.graph(asked), asked, Clock(10.0))
    assert plan is not None
    assert planner.verify(plan, asked).ok
    return plan


def test_an_explanation_takes_no_deadline_unless_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    planner, asked = Planner(cluster(8)), request()
    explained = planner.plan(asked)
    assert isinstance(explained, Plan)
    assert explained.explanation["summary"]
    monkeypatch.setattr("iegopt.planner.api.explain", lambda *_: pytest.fail("explained"))
    plan = planner.plan(asked, deadline_ms=1000)
    assert isinstance(plan, Plan)
    assert plan.explanation == {}
    monkeypatch.undo()
    wanted = planner.plan(asked, deadline_ms=1000, explained=True)
    assert isinstance(wanted, Plan)
    assert planner.explained(plan, asked).explanation == wanted.explanation == explained.explanation


def test_an_explanation_is_of_the_plan_that_is_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the first plan where a solver comes to a worse one, and of the starts that are told."""
    planner, asked = Planner(cluster(8)), request(5)
    compiled = planner.compile(asked, tier=0)
    worst = np.array([compiled.problem.options.of(v).stop - 1 for v in range(compiled.problem.V)])
    value = objective(compiled.problem, worst)
    worse = Result(Status.FEASIBLE, worst, value, None, None, "auto", 0.0, "worse")
    monkeypatch.setattr(in_time, "solve", lambda *_: worse)
    monkeypatch.setattr(in_time, "whole_seconds", lambda *_: 0.02)
    answer = planner.plan(asked, deadline_ms=200, explained=True)
    assert isinstance(answer, Plan)
    assert answer.objective < value / 1e9
    assert answer.explanation == planner.explained(answer, asked).explanation


def test_an_explanation_afterwards_has_the_starts_of_the_plan(planners: dict[str, Planner]) -> None:
    planner, asked = planners["mixed-racks"], asked_for("agent", **TIMED["no overlap"])
    whole = planner.plan(asked, deadline_ms=1000, explained=True)
    assert isinstance(whole, Plan)
    compiled, _ = chosen(planner._cluster, planner.graph(asked), asked, whole)
    start = starts_of(compiled.problem, whole)
    assert start is not None
    assert start.tolist() == [round(stage.start * 1e9) for stage in whole.stages]
    assert planner.explained(dataclasses.replace(whole, explanation={}), asked).explanation == whole.explanation


def test_conflicts_take_no_deadline_unless_they_are_asked_for() -> None:
    planner, asked = Planner(cluster(8)), request(memory={"vram": "4TB"})
    whole = planner.plan(asked)
    assert isinstance(whole, NoPlan)
    assert whole.conflicts
    answer = planner.plan(asked, deadline_ms=1000)
    assert isinstance(answer, NoPlan)
    assert (answer.status, answer.conflicts) == ("infeasible", ())
    assert answer.proof or answer.note
    assert planner.explained(answer, asked).conflicts == whole.conflicts
    unknown = dataclasses.replace(answer, status="unknown")
    assert planner.explained(unknown, asked) is unknown


def test_conflicts_are_those_of_the_tier_that_was_open_last() -> None:
    planner = Planner(load_cluster(INSTANCES / "clusters" / "measured-pairs.yaml"))
    asked = asked_for("vendor-fallback")
    whole = planner.plan(asked)
    answer = planner.plan(asked, deadline_ms=1000)
    assert isinstance(whole, NoPlan)
    assert isinstance(answer, NoPlan)
    assert whole.tier == answer.tier == "precision_degradation"
    assert planner.explained(answer, asked).conflicts == whole.conflicts


@pytest.mark.parametrize(
    ("on", "name"),
    [
        ("mixed-racks", "debate"),  # apart, together, and a preferred affinity
        ("two-datacenters", "debate"),
        ("spot-mixed-1024", "debate"),
        ("mixed-racks", "long-context"),  # two stages fit only where they share their weights
        ("mixed-racks", "research-agent"),
        ("mixed-racks", "vendor-fallback"),  # a preferred device that is there
        ("two-datacenters", "vendor-fallback"),
        ("gb200-nvl72", "vendor-fallback"),  # and one that is not
        ("spot-mixed-1024", "vendor-fallback"),  # nor is it quick enough where the load is
    ],
)
def test_first_plans_are_near_the_optimum_at_the_same_tier(planners: dict[str, Planner], on: str, name: str) -> None:
    planner, asked = planners[on], asked_for(name)
    plan, best = first(planner, asked), planner.plan(asked, explained=False)
    assert isinstance(best, Plan)
    assert best.status == "optimal"
    assert plan.tier == best.tier
    assert best.objective - 1e-5 <= plan.objective <= 1.01 * best.objective
    compiled, choice = chosen(planner._cluster, planner.graph(asked), asked, plan)
    assert feasible(compiled.problem, choice)
    assert objective(compiled.problem, choice) / 1e9 == pytest.approx(plan.objective, rel=1e-8)


@pytest.mark.parametrize("kind", TIMED)
def test_first_plans_are_made_where_time_counts(planners: dict[str, Planner], kind: str) -> None:
    for on in ("mixed-racks", "two-datacenters"):
        planner, asked = planners[on], asked_for("agent", **TIMED[kind])
        plan, best = first(planner, asked), planner.plan(asked, deadline_ms=2000)
        assert isinstance(best, Plan)
        assert best.objective - 1e-5 <= plan.objective <= 1.05 * best.objective


def test_stages_that_must_not_overlap_wait_for_each_other_in_a_first_plan() -> None:
    """Root, then two branches of 2 s each on the only device: 0–1, 1–3, 3–5 s."""
    device = {"id": "g", "model": "A100-80GB", "compute": {"fp16_flops": "312T"}}
    planner = Planner(ClusterSpec.model_validate({"devices": [device]}, context={"document": True}))
    stages = [
        {"id": name, "type": "prefill", "compute": {"flops": 312e12 * seconds, "precision": "fp16"},
         "memory": {"vram": "1GB"}}
        for name, seconds in (("root", 1), ("left", 2), ("right", 2))
    ]  # fmt: skip
    edges = [{"from": "root", "to": "left"}, {"from": "root", "to": "right"}]
    for overlap, makespan in ((False, 5.0), (True, 3.0)):
        document = {"graph": {"stages": stages, "edges": edges}, "no_overlap": not overlap}
        plan = first(planner, RequestSpec.model_validate(document, context={"document": True}))
        assert plan.makespan == pytest.approx(makespan)


def test_a_first_plan_pays_for_affinities_that_it_does_not_keep(planners: dict[str, Planner]) -> None:
    """Both stages have to be together by another rule."""
    planner, asked = planners["mixed-racks"], asked_for("debate")
    assert asked.graph is not None
    plain = first(planner, asked)
    rule = {"stages": ["prefill_a", "draft_a"], "level": "domain", "apart": True, "required": False, "penalty": "7s"}
    graph = asked.graph.model_dump(mode="json", by_alias=True, exclude_unset=True)
    graph["affinity"].append(rule)
    dearer = first(planner, asked_for("debate", graph=graph))
    assert dearer.objective == pytest.approx(plain.objective + 7.0)
    assert dearer.penalties == pytest.approx(plain.penalties + 7.0)


@pytest.mark.parametrize("name", ["debate", "vendor-fallback"])
def test_the_first_plan_is_kept_where_what_comes_after_it_finds_none(
    planners: dict[str, Planner], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    def nothing(*_: object) -> Result:
        return Result(Status.UNKNOWN, None, None, None, None, "auto", 0.0, "found none")

    monkeypatch.setattr(in_time, "solve", nothing)
    monkeypatch.setattr(in_time, "whole_seconds", lambda *_: 0.02)
    plan = planners["two-datacenters"].plan(asked_for(name), deadline_ms=200)
    assert isinstance(plan, Plan)
    assert plan.note.startswith("best fit")


def test_counting_is_not_begun_where_its_time_is_not_left(
    planners: dict[str, Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = planners["spot-mixed-1024"].compile(asked_for("debate"), tier=0).problem
    monkeypatch.setattr(auto, "overfull", lambda _: "crowded")
    found = auto._overfull(problem, Clock(1.0))
    assert found is not None
    assert found.status is Status.INFEASIBLE
    assert auto._overfull(problem, Clock(1e-4)) is None


def test_stages_with_affinities_come_first_where_the_order_of_the_graph_finds_no_plan(
    planners: dict[str, Planner],
) -> None:
    rules = [
        Affinity((0, 4), 1, apart=True, required=True, penalty=0),
        Affinity((1, 0), 0, apart=False, required=True, penalty=0),
        Affinity((3, 2), 0, apart=False, required=False, penalty=5),
    ]
    assert tied_first(rules, [2, 1, 0, 3, 4]) == [0, 4, 1, 2, 3]
    problem = planners["mixed-racks"].compile(asked_for("debate"), tier=0).problem
    found = quick_plan(problem, Clock(10.0))
    assert found is not None
    assert feasible(problem, found[1])


def test_stages_that_were_loaded_are_not_worked_out_within_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    planner, asked = Planner(load_cluster(INSTANCES / "clusters" / "mixed-racks.yaml")), asked_for("debate")
    planner.load(asked)
    monkeypatch.setattr("iegopt.problem.cluster.stage_blocks", lambda *_: pytest.fail("worked out"))
    graph = planner.graph(asked)
    assert planner._in_time._first.plan(planner._cluster, graph, asked, Clock(10.0)) is not None


def test_the_graph_of_a_request_that_was_loaded_is_not_built_within_a_deadline(
    planners: dict[str, Planner], monkeypatch: pytest.MonkeyPatch
) -> None:
    planner, asked = planners["mixed-racks"], asked_for("agent")
    planner.load(asked)
    graph = planner.graph(asked)
    monkeypatch.setattr("iegopt.planner.api.build_graph", lambda *_, **__: pytest.fail("built"))
    assert planner.graph(asked) is graph
    assert isinstance(planner.plan(asked, deadline_ms=1000), Plan)
    monkeypatch.undo()
    other = planner.graph(asked_for("chat"))
    assert len(other.stages) < len(graph.stages)
    assert planner.graph(asked) == graph
