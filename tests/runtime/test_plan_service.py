"""Plans for the controller: on what is served, near what is resident, or a reason."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from iegopt.control.messages import MakePlan, Planned
from iegopt.planner import Planner
from iegopt.plans import NoPlan, Plan
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt_runtime.shell.plan_service import Held, PlanService
from tests.runtime.local import local_cluster

GRAPH = {
    "stages": [
        {"id": "prefill", "type": "prefill", "model": "tiny", "tokens": {"new": 100}},
        {"id": "decode", "type": "decode", "model": "tiny", "tokens": {"context": 100, "output": 20}},
    ],
    "edges": [{"from": "prefill", "to": "decode", "kv": True, "bytes": "50kB"}],
}
NO_TIME = NoPlan("r", "here", "unknown", None, None, "auto", 0.05, "there was no time", None, ())
ALL = {"prefiller": ["lm"], "decoder": ["lm"], "host": ["cpu", "tool", "retrieval"]}


def ask(
    live: dict[str, Any], held: dict[str, Held] | None = None, slow: dict[str, float] | None = None,
    graph: dict[str, Any] | None = None, **devices: Any,
) -> Planned:  # fmt: skip
    service = PlanService(local_cluster(**devices), deadline_ms=2000)
    command = MakePlan("r", 3, graph or GRAPH, {"id": "r"}, live, slow or {}, "a test")
    try:
        return asyncio.run(service.planned(command, held or {}, 1.0))
    finally:
        service.close()


def test_whatever_breaks_down_a_request_has_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def breaks(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(PlanService, "_never", breaks)
    planned = ask({"host": ["cpu"]})
    reason = "the planner broke down: ZeroDivisionError: division by zero"
    assert (planned.plan, planned.reason, planned.final) == (None, reason, False)


def places(planned: Planned) -> dict[str, str]:
    assert planned.plan is not None, planned.reason
    return {name: stage["device"] for name, stage in planned.plan["stages"].items()}


def test_a_plan_has_what_the_controller_reads() -> None:
    planned = ask(ALL)
    assert (planned.request_id, planned.generation, planned.final) == ("r", 3, False)
    assert places(planned) == {"prefill": "prefiller", "decode": "decoder"}
    assert planned.plan is not None
    stage = planned.plan["stages"]["decode"]
    assert stage["variant"] == "tiny/fp32/CPU"
    assert stage["time"] > 0
    assert planned.plan["transfers"][0]["bytes"] > 0


def test_what_is_gone_slow_or_full_is_left_alone() -> None:
    without = {device: roles for device, roles in ALL.items() if device != "decoder"}
    assert places(ask(without)) == {"prefill": "prefiller", "decode": "prefiller"}
    assert places(ask(ALL, slow={"decoder": 1e9}))["decode"] == "prefiller"
    full = {"decoder": Held(0, ("tiny/fp32",)), "prefiller": Held(10**8, ("tiny/fp32",))}
    assert places(ask(ALL, full))["decode"] == "prefiller"


def test_what_is_resident_comes_from_the_workers() -> None:
    loading = {"resident": [], "loading": True, "io": {"bandwidth": "1MB/s"}}
    devices = {"prefiller": loading, "decoder": loading}
    held = {"prefiller": Held(10**8, ("tiny/fp32",)), "decoder": Held(10**8, ())}
    assert set(places(ask(ALL, held, **devices)).values()) == {"prefiller"}
    held = {"prefiller": Held(10**8, ()), "decoder": Held(10**8, ("tiny/fp32",))}
    assert set(places(ask(ALL, held, **devices)).values()) == {"decoder"}


def test_loading_is_charged_as_it_was_measured_until_it_deviates() -> None:
    loading = {"resident": [], "loading": True}
    service = PlanService(local_cluster(prefiller=loading, decoder=loading), deadline_ms=2000)

    def held(prefiller: float, decoder: float) -> dict[str, Held]:
        times = {"prefiller": prefiller, "decoder": decoder}
        return {name: Held(10**8, (), load_times={"tiny/fp32": seconds}) for name, seconds in times.items()}

    def planned(prefiller: float, decoder: float) -> tuple[set[str], float]:
        command = MakePlan("r", 3, GRAPH, {"id": "r"}, ALL, {}, "a test")
        found = asyncio.run(service.planned(command, held(prefiller, decoder), 1.0))
        assert found.plan is not None, found.reason
        return set(places(found).values()), found.plan["stages"]["prefill"]["time"]

    try:
        where, seconds = planned(3.0, 0.5)
        assert where == {"decoder"}
        assert seconds == pytest.approx(0.5, abs=0.05)
        assert planned(3.0, 0.55) == (where, seconds)
        assert len(service._planners) == 1
        assert planned(3.0, 7.0)[0] == {"prefiller"}
    finally:
        service.close()


def test_versions_and_models_of_the_cluster_s_own_are_known_by_what_workers_call_them() -> None:
    none: dict[str, Any] = {"resident": []}
    own = [{"model": "tiny", "variants": [
        {"precision": "fp16", "backend": "CPU", "version": version, "compatible_devices": ["cpu"]} for version in "12"
    ]}]  # fmt: skip
    cluster = validate(
        ClusterSpec, local_cluster(prefiller=none, decoder=none).document() | {"execution_path_registry": own}, "test"
    )
    service = PlanService(cluster)
    try:
        assert service._variants(("tiny/fp16", "tiny/fp16/torch/2")) == ("tiny/fp16/CPU", "tiny/fp16/CPU/2")
    finally:
        service.close()


def test_what_nothing_uses_is_unloaded_where_there_is_no_other_plan() -> None:
    """Weights of the tiny model take some 430 kB, more than its KV leaves on the device."""
    own = {"resident": [], "loading": True, "memory": {"vram": "1MB", "bandwidth": "8GB/s"}}
    live, without = {"decoder": ["lm"], "host": ["cpu"]}, Held(200_000, ())
    assert ask(live, {"decoder": without}, decoder=own).plan is None
    planned = ask(live, {"decoder": Held(200_000, (), weights_free=500_000)}, decoder=own)
    assert places(planned) == {"prefill": "decoder", "decode": "decoder"}


def test_a_plan_that_is_found_at_the_second_look_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may have left the first no time; the request would wait until workers come or go."""
    plan = Planner.plan

    def slow(planner: Planner, *arguments: Any, explained: bool | None = None, **more: Any) -> Any:
        found = plan(planner, *arguments, explained=explained, **more)
        assert isinstance(found, Plan)
        return found if explained else NO_TIME

    monkeypatch.setattr(Planner, "plan", slow)
    planned = ask(ALL)
    assert (set(places(planned)), planned.reason) == (set(places(ask(ALL))), "")


def test_a_planner_that_breaks_down_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("x")

    monkeypatch.setattr(Planner, "plan", broken)
    planned = ask(ALL)
    assert (planned.plan, planned.final) == (None, False)
    assert planned.reason == "the planner broke down: KeyError: 'x'"


@pytest.mark.parametrize(
    ("live", "graph", "words", "final"),
    [
        ({}, None, "no worker is up", False),
        ({"host": ["cpu"]}, None, "no worker of cpu-generic-32c runs prefill stages", False),
        (ALL, {"stages": []}, "graph.stages", True),
        (ALL, {"stages": [{"id": "a", "type": "prefill", "model": "none", "tokens": {"new": 1}}]}, "none", True),
    ],
)
def test_there_is_no_plan_and_why(live: dict[str, Any], graph: Any, words: str, final: bool) -> None:
    planned = ask(live, graph=graph)
    assert planned.plan is None
    assert words in planned.reason
    assert planned.final is final
