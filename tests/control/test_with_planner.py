"""What the controller asks the planner for can be planned, and what it answers can be carried out."""

from __future__ import annotations

from typing import Any

from iegopt.control.messages import Disconnected, MakePlan, Planned, Start
from iegopt.planner import Planner
from iegopt.plans import Plan
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec

from ..planning import cluster
from .hand import AGENT, CHAT, Hand

SLA = {"sla": {"ttft": "20s", "e2e": "100s", "itl": "1s"}}


def a_cluster(*live: str) -> ClusterSpec:
    devices = {
        "gpu-a": {"id": "gpu-a", "model": "H100"},
        "gpu-b": {"id": "gpu-b", "model": "A100-80GB"},
        "host": {"id": "host", "model": "cpu-generic-32c", "resident": []},
    }
    return cluster(*(devices[name] for name in live if name in devices))


def planned(hand: Hand, command: MakePlan) -> RequestSpec:
    """Plan as a planning service does, and hand the plan in."""
    request: RequestSpec = validate(RequestSpec, {**command.request, "graph": command.graph}, "plan")
    plan = Planner(a_cluster(*command.live)).plan(request)
    assert isinstance(plan, Plan), plan
    stages = {
        s.id: {"device": s.devices[0], "variant": s.variant, "time": s.time, "memory": s.memory, "start": s.start}
        for s in plan.stages
    }
    transfers = [{"source": t.source, "target": t.target, "time": t.exposed, "bytes": t.raw} for t in plan.transfers]
    data: dict[str, Any] = {"stages": stages, "transfers": transfers}
    hand.give(Planned(hand.now, command.request_id, command.generation, data, ""))
    return request


def begun(request: dict[str, Any], **policy: Any) -> tuple[Hand, RequestSpec]:
    hand = Hand(plans=False, **({"heartbeat": 100.0, "slow_floor": 100.0} | policy))
    hand.workers()
    hand.submit(request=request)
    (asked,) = hand.of(MakePlan)
    return hand, planned(hand, asked)


def test_a_chat_is_planned_and_run() -> None:
    hand, request = begun(CHAT | SLA)
    assert (request.sla.ttft, request.sla.e2e) == (20.0, 100.0)
    hand.until("tokenize", "prefill", "decode", "output")
    answer = hand.answer()
    assert answer["status"] == "complete"
    assert {stage["planned"] > 0 for stage in answer["stages"].values()} == {True}


def test_what_is_left_of_a_grown_graph_is_planned_on_what_is_left_of_the_cluster() -> None:
    hand, _ = begun(AGENT | SLA)
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    calls = [{"name": "clock", "arguments": {}}]
    hand.finish("decode", calls=calls, stop="call")
    hand.until("tool-1-clock", "re_prefill-1")
    hand.accept("decode-1")
    device = hand.stage("decode-1").device
    hand.give(Disconnected(hand.now, f"{device}.lm", "1"))
    hand.tick(0.5)
    (asked,) = hand.of(MakePlan)
    assert {spec["id"] for spec in asked.graph["stages"]} >= {"decode-1", "re_prefill-2", "output"}
    request = planned(hand, asked)
    assert request.sla.e2e is None
    (again,) = [c for c in hand.of(Start) if c.stage == "decode-1"]
    assert again.worker != f"{device}.lm"


def test_a_running_stage_keeps_its_device_in_the_plan_of_the_rest() -> None:
    hand, _ = begun(AGENT, slow_floor=10.0, max_migrations=0)
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    device = hand.stage("decode").device
    hand.tick(11.0)  # slow, and not to be moved: the rest is planned anew
    (asked,) = hand.of(MakePlan)
    stages = {spec["id"]: spec for spec in asked.graph["stages"]}
    assert stages["decode"]["affinity"] == {"device": device}
    assert asked.slow[device] > 3
    planned(hand, asked)
    assert hand.run().planned == 2
    assert hand.stage("decode").attempt == 1
