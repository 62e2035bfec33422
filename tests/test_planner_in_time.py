"""Requests in which time counts: critical path, no overlaps, memory at its peak; and the verifier of their plans."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from iegopt.cli.html.timeline import draw_timeline
from iegopt.errors import InputError, SpecError
from iegopt.planner import Planner
from iegopt.plans import NoPlan, Plan
from iegopt.problem.instance import read_instance, to_problem, write_instance
from iegopt.solvers.api import solve
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec

LINK = {"latency": 0, "bandwidth": "10GB/s"}


def cluster(*memory: str) -> ClusterSpec:
    """A100s of 312 TFLOP/s, each a host of its own, with so much memory free."""
    devices = [
        {"id": f"g{i}", "model": "A100-80GB", "memory": {"vram": room, "bandwidth": "2TB/s"},
         "compute": {"fp16_flops": "312T"}, "location": {"host": f"h{i}"}}
        for i, room in enumerate(memory)
    ]  # fmt: skip
    links = dict.fromkeys(("domain", "host", "rack", "datacenter", "wan"), LINK)
    return validate(ClusterSpec, {"devices": devices, "links": links}, "cluster")


def request(stages: list[dict[str, Any]], edges: list[dict[str, Any]], **more: Any) -> RequestSpec:
    limits = {"max_kv_cache_size": "100GB"}
    return validate(
        RequestSpec, {"graph": {"stages": stages, "edges": edges}, "dag_constraints": limits, **more}, "request"
    )


def stage(name: str, seconds: float, vram: str = "1GB", kv: str = "0GB", kind: str = "prefill") -> dict[str, Any]:
    """A stage of so many seconds on one A100."""
    return {"id": name, "type": kind, "compute": {"flops": 312e12 * seconds, "precision": "fp16"},
            "memory": {"vram": vram, "kv_cache_size": kv}}  # fmt: skip


FORK = [stage("root", 1), stage("left", 2), stage("right", 2)]
BRANCHES = [{"from": "root", "to": "left", "bytes": "1GB"}, {"from": "root", "to": "right", "bytes": "1GB"}]


def planned(on: ClusterSpec, asked: RequestSpec) -> Plan:
    plan = Planner(on).plan(asked)
    assert isinstance(plan, Plan)
    assert plan.status == "optimal"
    return plan


def test_branches_share_a_device_one_after_the_other_or_part() -> None:
    """Together both branches end at 3 s; one at a time, at 5 s, or one is sent away (0.1 s) and all end at 3.1 s."""
    together = planned(cluster("80GB", "80GB"), request(FORK, BRANCHES, objective="critical_path"))
    assert together.makespan == pytest.approx(3.0)
    assert len({s.site for s in together.stages}) == 1
    apart = planned(cluster("80GB", "80GB"), request(FORK, BRANCHES, objective="critical_path", no_overlap=True))
    assert apart.makespan == pytest.approx(3.1)
    alone = planned(cluster("80GB"), request(FORK, BRANCHES, objective="critical_path", no_overlap=True))
    assert alone.makespan == pytest.approx(5.0)
    spans = sorted((s.start, s.finish) for s in alone.stages)
    assert [pytest.approx(t) for span in spans for t in span] == [0, 1, 1, 3, 3, 5]


def test_the_critical_path_costs_alpha_and_money_gamma() -> None:
    weights = {"alpha": 0.5, "gamma": 0.25}
    plan = planned(cluster("80GB"), request(FORK, BRANCHES, objective="critical_path", weights=weights))
    spent = plan.cost.M
    assert spent == pytest.approx(5.0)
    assert plan.objective == pytest.approx(0.5 * 3.0 + 0.25 * 5.0)
    assert plan.document()["weights"] == {"alpha": 0, "beta": 0, "gamma": 0.25, "lambda": 0, "makespan": 0.5}
    assert plan.penalties == 0


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({"beta": 1}, "weights beta and lambda price a sum"),
        ({"lambda": 1}, "weights beta and lambda price a sum"),
        ({"alpha": 0}, "weights.alpha below 1e-06: time would cost nothing"),
    ],
)
def test_weights_that_the_critical_path_does_not_read_are_refused(weights: dict[str, float], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        request(FORK, BRANCHES, objective="critical_path", weights=weights)


CHAIN = [stage("prefill", 1, "10GB", "30GB"), stage("decode", 1, "10GB", "35GB", "decode"), stage("last", 1, "60GB")]
KV: list[dict[str, Any]] = [{"from": "prefill", "to": "decode", "bytes": "30GB", "kv": True},
      {"from": "decode", "to": "last", "kind": "control"}]  # fmt: skip


@pytest.mark.parametrize(
    ("memory", "accounting", "fits"),
    [
        ("145GB", "sum", True),
        ("144GB", "sum", False),
        ("60GB", "peak", True),  # prefill 40 + decode 45 − 30 of one copy = 55; last alone 60
        ("59GB", "peak", False),
    ],
)
def test_memory_at_its_peak_counts_what_is_held_at_one_moment(memory: str, accounting: str, fits: bool) -> None:
    answer = Planner(cluster(memory)).plan(request(CHAIN, KV, memory_accounting=accounting))
    assert isinstance(answer, Plan if fits else NoPlan)
    if isinstance(answer, NoPlan):
        assert answer.conflicts[0]["rule"] == "memory"


def test_kv_is_two_copies_where_no_edge_says_that_it_is_handed_on() -> None:
    plain = [{**KV[0], "kv": False}, KV[1]]
    asked = request(CHAIN, plain, memory_accounting="peak")
    assert isinstance(Planner(cluster("85GB")).plan(asked), Plan)
    assert isinstance(Planner(cluster("84GB")).plan(asked), NoPlan)


EVERYTHING: dict[str, Any] = {"objective": "critical_path", "no_overlap": True, "memory_accounting": "peak"}


def test_the_verifier_of_plans_finds_starts_that_are_wrong() -> None:
    planner = Planner(cluster("80GB", "80GB"))
    asked = request([*CHAIN, stage("side", 0.5)], KV, **EVERYTHING)
    plan = planner.plan(asked)
    assert isinstance(plan, Plan)
    assert planner.verify(plan, asked).ok
    assert plan.makespan == pytest.approx(3.0)

    def rules(name: str, by: float) -> set[str]:
        moved = tuple(
            dataclasses.replace(s, start=s.start + by, finish=s.finish + by) if s.id == name else s for s in plan.stages
        )
        return {v.rule for v in planner.verify(dataclasses.replace(plan, stages=moved), asked).violations}

    assert "order" in rules("decode", -0.001)
    assert "start" in rules("prefill", -0.001)
    assert "no_overlap" in rules("decode", 0.001) | rules("prefill", 0.001)
    assert rules("last", 0.001) == {"claim"}  # the makespan, and with it the objective
    unfinished = tuple(dataclasses.replace(s, finish=s.finish + 0.1) for s in plan.stages)
    assert {v.rule for v in planner.verify(dataclasses.replace(plan, stages=unfinished), asked).violations} == {"claim"}
    full = Planner(cluster("59GB", "59GB"))
    assert {v.rule for v in full.verify(plan, asked).violations} == {"memory"}


def test_the_compiled_instance_has_the_same_optimum(tmp_path: Path) -> None:
    planner = Planner(cluster("80GB", "80GB"))
    asked = request([*CHAIN, *FORK], [*KV, *BRANCHES], **EVERYTHING)
    plan = planner.plan(asked)
    assert isinstance(plan, Plan)
    write_instance(planner.compile(asked).problem, tmp_path / "it.json")
    again = to_problem(read_instance(tmp_path / "it.json"))
    assert (again.no_overlap, again.peak_memory, again.makespan_weight) == (True, True, 1.0)
    assert solve(again, "cpsat").objective == round(plan.objective * 1e9)


def test_the_timeline_has_a_bar_where_the_schedule_says() -> None:
    """Two stages of 2 s on one device, without an edge: the second bar begins where the first ends."""
    plan = planned(cluster("80GB"), request(FORK[1:], [], **EVERYTHING))
    first, second = sorted(plan.stages, key=lambda s: s.start)
    assert (first.start, second.start) == (0.0, first.finish)
    drawn = draw_timeline(plan)
    assert f"{second.id} (prefill) on g0\n2 s – 4 s" in drawn.replace("2s", "2 s").replace("4s", "4 s")


def test_a_deadline_that_only_overlapping_would_keep_conflicts_with_both() -> None:
    asked = request(FORK, BRANCHES, sla={"e2e": "4s"}, no_overlap=True)
    answer = Planner(cluster("80GB")).plan(asked)
    assert isinstance(answer, NoPlan)
    assert [conflict["rule"] for conflict in answer.conflicts] == ["deadline", "no_overlap"]
    assert all(conflict["minimal"] for conflict in answer.conflicts)


def test_questions_about_time() -> None:
    """Asked of a sum they are answered; the critical path is no sum of terms, and they say so."""
    planner = Planner(cluster("80GB", "80GB"))
    for more in ({"no_overlap": True}, {"memory_accounting": "peak"}):
        asked = request(FORK, BRANCHES, **more)
        sensitivity, prices = planner.sensitivity(asked), planner.shadow_prices(asked)
        assert sensitivity is not None
        assert prices is not None
        assert sensitivity.complete
        assert prices.complete
    with pytest.raises(InputError, match="critical_path is not linear"):
        planner.sensitivity(request(FORK, BRANCHES, objective="critical_path"))
    with pytest.raises(InputError, match="depends on start times"):
        planner.shadow_prices(request(FORK, BRANCHES, **EVERYTHING))
