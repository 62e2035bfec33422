"""From documents to plans: the source's own example, fallback steps, loading, updates, and the way back."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iegopt.errors import InputError
from iegopt.planner import Planner, plan
from iegopt.plans import NoPlan, Plan
from iegopt.problem.instance import read_instance, to_problem, write_instance
from iegopt.solvers.api import solve
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.device import DeviceSpec
from iegopt.spec.graph import GraphSpec
from iegopt.spec.load import load_document
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import StageSpec
from tests.planning import cluster, planned, request

BLOCKS = Path(__file__).parent / "spec" / "blocks"


def _seed_cluster(count: int) -> ClusterSpec:
    _, device = load_document(BLOCKS / "device.yaml", "device")
    one: DeviceSpec = device
    like = [one.model_copy(update={"id": f"gpu-node-{i:02d}"}) for i in range(3, 3 + count)]
    placed = [d.model_copy(update={"location": d.location.model_copy(update={"host": "h0"})}) for d in like]
    return ClusterSpec(devices=tuple(placed))


def _seed_request() -> RequestSpec:
    _, node = load_document(BLOCKS / "node.yaml", "node")
    stage: StageSpec = node
    return RequestSpec(id="seed", graph=GraphSpec(stages=(stage,)))


def test_the_sources_prefill_on_four_of_its_a100s() -> None:
    """120 TFLOP on 4 x 312 TFLOP/s x 0.9, at 45 % utilisation: 106.8 ms idle, 194.3 ms loaded, SLA 200 ms."""
    plan = planned(_seed_request(), _seed_cluster(4))
    prefill = plan.stage("prefill-001")
    assert prefill.devices == ("gpu-node-03", "gpu-node-04", "gpu-node-05", "gpu-node-06")
    assert prefill.t0 == pytest.approx(120e12 / (4 * 312e12 * 0.9))
    assert prefill.time == pytest.approx(prefill.t0 / 0.55)
    assert prefill.bottleneck == "compute"
    assert prefill.memory == 48 * 10**9
    assert prefill.capacity_ratio == pytest.approx(48e9 / (4 * 80e9 * 0.38))
    fetched = next(t for t in plan.transfers if t.source == "kv:prefill-001")
    assert fetched.bytes == 8e9
    assert fetched.path == "domain"
    assert fetched.raw == pytest.approx(8e9 / 600e9, rel=1e-3)


def test_three_of_them_make_no_gang_of_four() -> None:
    answer = Planner(_seed_cluster(3)).plan(_seed_request())
    assert isinstance(answer, NoPlan)
    assert answer.status == "infeasible"
    assert answer.conflicts


def test_a_variant_that_is_not_resident_pays_its_load_once_in_memory() -> None:
    """fp16 weights of Llama-3.1-8B are 16.06 GB, over 7 GB/s; prefill and decode share one copy."""
    base = {"id": "gpu", "model": "A100-80GB"}
    asked = request(model="Llama-3.1-8B", precision="fp16", prompt_tokens=500, output_tokens=50)
    host = {"id": "cpu", "model": "cpu-generic-32c"}
    absent = Planner(cluster({**base, "resident": []}, host)).plan(asked)
    assert isinstance(absent, NoPlan)
    resident = planned(asked, cluster({**base, "resident": ["Llama-3.1-8B"]}, host))
    loaded = planned(asked, cluster({**base, "resident": [], "loading": True}, host))
    assert resident.stage("prefill").load_time == 0
    seconds = loaded.stage("prefill").load_time
    assert seconds == pytest.approx(2 * 8.03e9 / 7e9, rel=0.01)
    assert loaded.stage("prefill").t0 == pytest.approx(resident.stage("prefill").t0 + seconds)
    used = {row["where"]: row["used"] for row in loaded.explanation["binding"] if row["rule"] == "memory"}
    before = {row["where"]: row["used"] for row in resident.explanation["binding"] if row["rule"] == "memory"}
    assert used["gpu"] - before["gpu"] == pytest.approx(2 * 8.03e9, rel=0.01)


def test_a_load_time_that_was_measured_on_a_device_comes_before_all_others() -> None:
    name = "Llama-3.1-8B/fp16/TensorRT"
    base = {"model": "A100-80GB", "resident": [], "loading": True}
    devices = ({"id": "slow", "load_times": {name: "90s"}, **base}, {"id": "quick", "load_times": {name: "2s"}, **base})
    asked = request(model="Llama-3.1-8B", precision="fp16", prompt_tokens=500, output_tokens=50)
    found = planned(asked, cluster(*devices, {"id": "cpu", "model": "cpu-generic-32c"}))
    prefill = found.stage("prefill")
    assert (prefill.site, prefill.variant, prefill.load_time) == ("quick", name, 2.0)
    with pytest.raises(InputError, match="load_times"):
        Planner(cluster({"id": "gpu", **base, "load_times": {"Llama-3.1-8C/fp16/TensorRT": "2s"}}))


def test_updates_equal_a_cluster_that_says_the_same() -> None:
    gpus = {"id": "gpu", "model": "H100", "count": 4, "location": {"host": "h"}}
    host = {"id": "cpu", "model": "cpu-generic-32c"}
    asked = request(model="Llama-3.1-8B", prompt_tokens=2000, output_tokens=100)
    planner = Planner(cluster(gpus, host))
    first = planner.plan(asked)
    for i in range(4):
        planner.update(f"gpu-{i}", queue=(2, 0.5), used=70 * 10**9)
    planner.update("cpu", utilisation=0.5)
    updated = planner.plan(asked)
    said = planned(
        asked,
        cluster(
            {**gpus, "queue": {"depth": 2, "wait": 0.5}, "utilization": {"memory": "87.5%"}},
            {**host, "utilization": {"compute": "50%"}},
        ),
    )
    assert isinstance(updated, Plan)
    assert isinstance(first, Plan)
    assert updated.objective == said.objective
    assert updated.placement == said.placement
    assert updated.objective > first.objective


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"device": "gpu-9"}, "no device is called gpu-9"),
        ({"device": "gpu", "used": 10**12}, "expected a whole number of bytes from 0 to 80000000000"),
        ({"device": "gpu", "utilisation": 1.5}, "expected a number from 0 to 1"),
        ({"device": "gpu", "queue": (-1, 1.0)}, "expected .depth, wait., a whole number and a factor from 0 to 1000"),
    ],
)
def test_updates_are_checked(how: dict[str, Any], message: str) -> None:
    planner = Planner(cluster({"id": "gpu", "model": "H100"}))
    with pytest.raises(InputError, match=message):
        planner.update(**how)


@pytest.mark.parametrize("overlap", [False, True])
def test_the_compiled_instance_has_the_plans_objective(tmp_path: Path, overlap: bool) -> None:
    """What ``compile`` writes is what was solved: any solver finds the same optimum there."""
    on = cluster(
        {"id": "a", "model": "A100-80GB", "count": 4, "location": {"host": "h0"}},
        {"id": "b", "model": "H100", "count": 4, "location": {"host": "h1", "rack": "r1"}},
        {"id": "cpu", "model": "cpu-generic-32c", "count": 2},
    )
    asked = request(model="Llama-2-70B", prompt_tokens=3500, output_tokens=100, sla={"ttft": "8s", "e2e": "60s"})
    if overlap:
        asked = asked.model_copy(
            update={"kv_transfer_config": KvTransferConfig(overlap_compute=True, chunk_size=10**8)}
        )
    planner = Planner(on)
    plan = planner.plan(asked)
    assert isinstance(plan, Plan)
    write_instance(planner.compile(asked).problem, tmp_path / "p.json")
    problem = to_problem(read_instance(tmp_path / "p.json"))
    result = solve(problem, "cpsat")
    assert result.objective is not None
    assert result.objective / 1e9 == pytest.approx(plan.objective, rel=1e-9)


def _broken(plan: Plan, stage: str, **change: Any) -> Plan:
    stages = tuple(dataclasses.replace(s, **change) if s.id == stage else s for s in plan.stages)
    return dataclasses.replace(plan, stages=stages)


def test_the_verifier_of_plans_finds_one_broken_thing_at_a_time() -> None:
    on = cluster(
        {"id": "a", "model": "A100-80GB", "count": 2, "location": {"host": "h0"}},
        {"id": "cpu", "model": "cpu-generic-32c", "count": 2},
    )
    asked = request(model="Llama-3.1-8B", prompt_tokens=2000, output_tokens=100)
    planner = Planner(on)
    plan = planner.plan(asked)
    assert isinstance(plan, Plan)
    assert planner.verify(plan, asked).ok

    def rules(broken: Plan) -> set[str]:
        return {violation.rule for violation in planner.verify(broken, asked).violations}

    assert rules(dataclasses.replace(plan, objective=plan.objective * 1.001)) == {"claim"}
    assert rules(dataclasses.replace(plan, makespan=plan.makespan + 0.001)) == {"claim"}
    assert rules(dataclasses.replace(plan, bound=plan.objective * 1.001)) == {"claim"}
    assert rules(dataclasses.replace(plan, stages=plan.stages[1:])) == {"stage"}
    assert rules(_broken(plan, "decode", time=plan.stage("decode").time * 1.01)) == {"claim"}
    assert rules(_broken(plan, "decode", variant="Llama-3.1-8B/int4/CUDA")) == {"option"}
    assert rules(_broken(plan, "decode", devices=("nowhere",), site="nowhere")) == {"option"}
    assert "option" in rules(_broken(plan, "tokenize", devices=("a-0",), site="a-0"))
    tight = asked.model_copy(update={"sla": asked.sla.model_copy(update={"e2e": plan.makespan - 1e-6})})
    assert {v.rule for v in planner.verify(plan, tight).violations} == {"deadline"}
    late = asked.model_copy(update={"sla": asked.sla.model_copy(update={"ttft": 1e-6})})
    assert {v.rule for v in planner.verify(plan, late).violations} == {"finish_by"}
    for device in {d for stage in plan.stages for d in stage.devices}:
        planner.update(device, used=0 if device.startswith("cpu") else 80 * 10**9)
    assert {v.rule for v in planner.verify(plan, asked).violations} == {"memory"}


@pytest.mark.parametrize(
    "wrong",
    [
        {"queue": (1.5, 1.0)}, {"queue": (1, float("nan"))}, {"queue": (1, 2, 3)}, {"queue": 3}, {"queue": (-1, 1.0)},
        {"utilisation": float("nan")}, {"utilisation": 2}, {"utilisation": "50%"},
        {"used": -1}, {"used": 10**20}, {"used": 1.5}, {"used": "60GB"},
        {"queue": (9, 1.0), "used": -1},
    ],
    ids=repr,
)  # fmt: skip
def test_a_wrong_update_is_refused_and_changes_nothing(wrong: dict[str, Any]) -> None:
    planner = Planner(cluster({"id": "gpu", "model": "A100-80GB"}, {"id": "cpu", "model": "cpu-generic-32c"}))
    asked = request(model="Llama-3.1-8B", prompt_tokens=500, output_tokens=20)
    before = planner.plan(asked, explained=False)
    with pytest.raises(InputError, match=r"update gpu: (queue|utilisation|used) "):
        planner.update("gpu", **wrong)
    after = planner.plan(asked, explained=False)
    assert isinstance(before, Plan)
    assert isinstance(after, Plan)
    assert after.cost == before.cost


@pytest.mark.parametrize("deadline", [-1, float("nan"), 10**400])
def test_a_deadline_that_is_no_time_is_refused(deadline: float) -> None:
    planner = Planner(cluster({"id": "cpu", "model": "cpu-generic-32c"}))
    with pytest.raises(InputError, match="deadline_ms"):
        planner.plan(request(graph={"stages": [{"id": "a", "type": "output"}]}), deadline_ms=deadline)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"request": "request.yaml"}, r"request: got a str, expected a RequestSpec \(iegopt.load_request reads one\)"),
        ({"cluster": "cluster.yaml"}, r"cluster: got a str, expected a ClusterSpec \(iegopt.load_cluster reads one\)"),
        ({"deadline_ms": "5"}, "deadline_ms: got a str, expected a number of milliseconds or None"),
        ({"deadline_ms": True}, "deadline_ms: got a bool, expected a number of milliseconds or None"),
        ({"params": {"time_limit": 1}}, "params: got a dict, expected a Params or None"),
    ],
)
def test_an_argument_of_another_type_is_named(wrong: dict[str, Any], says: str) -> None:
    right = {
        "cluster": cluster({"id": "cpu", "model": "cpu-generic-32c"}),
        "request": request(graph={"stages": [{"id": "a", "type": "output"}]}),
    }
    with pytest.raises(TypeError, match=f"^{says}$"):
        plan(**right | wrong)


@pytest.mark.parametrize(
    ("asked", "device", "reason"),
    [
        ({"parallelism": {"degree": 16}}, {}, "it asks for a gang of 16 devices, and no host has as many of one model"),
        ({"model": "Llama-3.1-70B"}, {"count": 1}, "141.1 GB, do not fit 1 x A100-80GB with 80 GB (1 site)"),
        ({"precision": "fp4"}, {}, "no variant of Llama-3.1-8B in an allowed precision runs on A100-80GB (15 sites)"),
    ],
)
def test_a_stage_that_nothing_runs_says_why_in_numbers(
    asked: dict[str, Any], device: dict[str, Any], reason: str
) -> None:
    gpus = {"id": "gpu", "model": "A100-80GB", "count": 8, "location": {"host": "h"}, **device}
    planner = Planner(cluster(gpus, {"id": "cpu", "model": "cpu-generic-32c"}))
    answer = planner.plan(request(**{"model": "Llama-3.1-8B", "prompt_tokens": 500, "output_tokens": 20, **asked}))
    assert isinstance(answer, NoPlan)
    assert reason in answer.conflicts[0]["sentence"]


def test_nothing_is_imported_within_the_deadline_of_the_first_plan() -> None:
    code = """
import sys
from iegopt import ClusterSpec, Planner, RequestSpec
gpus = {"id": "g", "model": "A100-80GB", "count": 2, "location": {"host": "h"}}
planner = Planner(ClusterSpec.model_validate({"devices": [gpus, {"id": "cpu", "model": "cpu-generic-32c"}]}))
before = set(sys.modules)
planner.plan(RequestSpec(model="Llama-3.1-8B", prompt_tokens=500, output_tokens=20), explained=False)
print(sorted(set(sys.modules) - before))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


def test_encoders_never_run_below_16_bits() -> None:
    """The cheapest variants of bge-m3 are int8 on CPUs; they would not match an index of the model itself."""
    stages = [{"id": "embed", "type": "embedding", "model": "bge-m3", "tokens": {"new": 512}}]
    plan = planned(request(graph={"stages": stages}), cluster({"id": "cpu", "model": "cpu-generic-32c", "count": 2}))
    assert plan.stage("embed").variant == "bge-m3/fp32/ONNX"


def test_a_tensor_parallel_degree_divides_the_attention_heads() -> None:
    on = cluster(
        {"id": "a", "model": "A100-80GB", "count": 6, "location": {"host": "h"}},
        {"id": "cpu", "model": "cpu-generic-32c"},
    )
    asked = {"model": "Llama-2-70B", "prompt_tokens": 500, "output_tokens": 20}
    three = Planner(on).plan(request(**asked, parallelism={"degree": 3}))
    assert isinstance(three, NoPlan)
    assert "3 devices do not divide the 64 attention heads" in three.conflicts[0]["sentence"]
    assert len(planned(request(**asked, parallelism={"degree": 2}), on).stage("prefill").devices) == 2


def test_a_model_is_shown_on_one_printable_line() -> None:
    with pytest.raises(InputError, match=r"the library has no card named a\\x00b\\x1b\.$"):
        Planner(cluster({"id": "a", "model": "a\x00b\x1b"}))


def test_what_a_cluster_does_not_say_is_named() -> None:
    host = {"id": "cpu", "model": "cpu-generic-32c"}
    asked = request(model="Llama-3.1-8B", prompt_tokens=500, output_tokens=20)
    silent = planned(asked, cluster({"id": "a", "model": "A100-80GB"}, host)).explanation["summary"]
    said = planned(asked, cluster({"id": "a", "model": "A100-80GB", "resident": ["Llama-3.1-8B"]}, host)).explanation[
        "summary"
    ]
    assert [line for line in silent if "does not say what is resident" in line]
    assert not [line for line in said if "does not say what is resident" in line]
