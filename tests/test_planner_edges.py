"""Requests at the edge of what a planner can count: no time at all, devices in full use, links and stages of years."""

from __future__ import annotations

import dataclasses
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from iegopt.errors import InputError, InternalError
from iegopt.planner import Planner
from iegopt.planner.answer import barely_in_time
from iegopt.plans import NoPlan, Plan
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Result, Status
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.load import load_cluster, load_request
from iegopt.spec.request import RequestSpec, SlaSpec
from iegopt.verify.by_arrays import _MOST_SHAPES

INSTANCES = Path(__file__).parent.parent / "instances"
DEADLINES = (1.0, 5.0, 20.0, None)


def two(**more: Any) -> Planner:
    devices = [{"id": "a", "model": "H100"}, {"id": "c", "model": "cpu-epyc-9654-2s"}]
    return Planner(ClusterSpec.model_validate({"devices": devices} | more, context={"document": True}))


def asked(*stages: dict[str, Any], edge: dict[str, Any], **more: Any) -> RequestSpec:
    graph = {"stages": stages, "edges": [{"from": stages[0]["id"], "to": stages[1]["id"]} | edge]}
    return RequestSpec.model_validate({"graph": graph} | more, context={"document": True})


@pytest.fixture(scope="module")
def racks() -> Planner:
    return Planner(load_cluster(INSTANCES / "clusters" / "mixed-racks.yaml"))


@pytest.mark.parametrize("milliseconds", DEADLINES)
@pytest.mark.parametrize("kind", ["agent", "plain"])
def test_no_plan_ends_in_no_time(racks: Planner, kind: str, milliseconds: float | None) -> None:
    plain = asked({"id": "s", "type": "decode", "compute": {"flops": "1T"}}, {"id": "o", "type": "output"}, edge={})
    given = load_request(INSTANCES / "requests" / "agent.yaml") if kind == "agent" else plain
    at_once = given.model_copy(update={"sla": SlaSpec(e2e=0.0)})
    assert isinstance(racks.plan(at_once, deadline_ms=milliseconds), NoPlan)
    plan = racks.plan(given)
    assert isinstance(plan, Plan)
    assert [v.rule for v in racks.verify(plan, at_once).violations] == ["deadline"]


@pytest.mark.parametrize("milliseconds", DEADLINES)
def test_a_short_start_before_years_is_no_wrong_one(milliseconds: float | None) -> None:
    """Start and time of a stage add up to its end, which does not tell the start again where the time is long."""
    planner = two()
    planner.update("c", utilisation=0.99999999)
    request = asked(
        {"id": "k", "type": "kv_load", "device_types": ["GPU"]},
        {"id": "o", "type": "decode", "compute": {"flops": "40T"}, "device_types": ["CPU"]},
        edge={"kind": "control"},
    )
    assert isinstance(planner.plan(request, deadline_ms=milliseconds), NoPlan)


@pytest.mark.parametrize("weight", [1, 1e6])
def test_a_transfer_of_a_hundred_years_is_named(weight: float) -> None:
    planner = two(pairs=[{"devices": ["a", "c"], "bandwidth": "1B/s"}])
    request = asked(
        {"id": "s", "type": "decode", "compute": {"flops": "1T"}, "device_types": ["GPU"]},
        {"id": "o", "type": "output"},
        edge={"bytes": "5GB"}, weights={"lambda": weight},
    )  # fmt: skip
    for milliseconds in (20.0, None):
        with pytest.raises(InputError, match=r"edge s -> o: 5e\+09 s over the cluster's slowest link cost over"):
            planner.plan(request, deadline_ms=milliseconds)


def test_a_device_in_full_use_is_no_warning(racks: Planner) -> None:
    racks.update("h100-0", utilisation=1.0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for milliseconds in DEADLINES:
            plan = racks.plan(load_request(INSTANCES / "requests" / "agent.yaml"), deadline_ms=milliseconds)
    assert isinstance(plan, Plan)
    assert all("h100-0" not in stage.devices for stage in plan.stages)


def test_rates_of_ever_new_shapes_do_not_pile_up() -> None:
    planner = two()
    check = next(iter(planner._checks._of.values()))
    stage: dict[str, Any] = {"id": "s", "type": "decode", "compute": {"flops": "1T"}, "parallelism": {"degree": 1}}
    for n in range(2 * _MOST_SHAPES + 5):
        stage["parallelism"]["efficiency"] = 0.5 + n / 1000
        request = asked(stage, {"id": "o", "type": "output"}, edge={})
        plan = planner._in_time._first.plan(planner._cluster, planner.graph(request), request, Clock(10.0))
        assert plan is not None
        assert planner._checks.hold(plan, request, planner.graph(request))
    assert 0 < len(check._rates) <= _MOST_SHAPES


def test_a_plan_at_the_edge_of_a_limit_is_not_lost(racks: Planner) -> None:
    """The verifier allows for rounding to ticks, a solver that counts in them may not: no error, and the plan stays."""
    request = load_request(INSTANCES / "requests" / "chat.yaml")
    plan, graph = racks.plan(request), racks.graph(request)
    assert isinstance(plan, Plan)
    assert plan.deadline is not None
    compiled = racks.compile(request)
    refused = Result(Status.INFEASIBLE, None, None, None, "a proof", "auto", 0.0, "")
    with pytest.raises(InternalError, match="calls infeasible what has a plan"):
        racks._better(compiled, refused, plan, request, graph, Clock(1.0))
    edge = dataclasses.replace(plan, deadline=plan.makespan * (1 + 1e-9))
    assert barely_in_time(edge, request)
    assert not barely_in_time(plan, request)
    assert racks._better(compiled, refused, edge, request, graph, Clock(1.0)) is edge
    ends = [stage.finish for stage in plan.stages if stage.kind == "prefill"]
    assert barely_in_time(plan, request.model_copy(update={"sla": SlaSpec(ttft=max(ends))}))
    budget = float(np.sum([stage.time for stage in plan.stages if stage.kind in ("prefill", "decode")]))
    limits = request.dag_constraints.model_copy(update={"max_compute_time": budget})
    assert barely_in_time(plan, request.model_copy(update={"dag_constraints": limits}))
