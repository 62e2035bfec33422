"""Snapshots and batch policies: what loads, what is derived, and that they read back as they were."""

from __future__ import annotations

from pathlib import Path

import pytest

from iegopt.errors import SpecError
from iegopt.spec.load import dump, load_document, load_policy, load_snapshot
from iegopt.spec.snapshot import SnapshotSpec, UtilityClass

SNAPSHOT = """
snapshot:
  time: 81.25s
  instances:
    - {id: chat-0, devices: [h100-0, h100-1], variant: Llama-3.1-70B/fp8/TensorRT, prefix: [7, 8, 9], observed: 81s}
    - {id: old, devices: [h100-0], variant: Llama-3.1-8B/fp8/TensorRT, state: lost}
  running:
    - {id: r1, instance: chat-0, stage: decode, context: 3000, remaining: 120, priority: 2}
    - {id: r2, instance: old, stage: prefill, context: 10, remaining: 120, output: 5, decode: chat-0}
  queue:
    - {id: q1, tenant: acme, arrival: 80.9s, prefix: [7, 8], tiers: [], request: {model: m, prompt_tokens: 600, output_tokens: 3}}
    - {id: q2, arrival: 1s, request: {model: m, prompt: hello, output_tokens: 3, sla_class: batch}, priority: 5}
    - {id: q3, arrival: 1s, request: {model: m, prompt_tokens: 7, output_tokens: 3, sla_class: agent}, utility: {class: throughput}}
"""  # noqa: E501


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def load(path: Path) -> SnapshotSpec:
    return load_snapshot(write(path, SNAPSHOT.replace(" tiers: [],", "")))


def test_a_snapshot_loads_and_reads_back(tmp_path: Path) -> None:
    spec = load(tmp_path / "s.yaml")
    assert spec.time == 81.25
    assert spec.instances[0].prefix == (7, 8, 9)
    assert load_snapshot(write(tmp_path / "again.yaml", dump("snapshot", spec))) == spec


def test_priority_and_class_follow_from_the_sla_class_where_not_stated(tmp_path: Path) -> None:
    queue = load(tmp_path / "s.yaml").queue
    assert [q.level for q in queue] == [0, 5, 1]
    assert [q.utility_class for q in queue] == [UtilityClass.LATENCY, UtilityClass.THROUGHPUT, UtilityClass.THROUGHPUT]


def test_a_lost_instance_has_let_its_device_go(tmp_path: Path) -> None:
    assert load(tmp_path / "s.yaml").instances[1].devices == ("h100-0",)


def test_an_unknown_key_of_the_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"snapshot\.queue\.0\.tiers: unknown key"):
        load_snapshot(write(tmp_path / "s.yaml", SNAPSHOT))


def test_a_policy_takes_the_source_s_blocks_beside_it(tmp_path: Path) -> None:
    blocks = Path(__file__).resolve().parent / "blocks"
    text = "batch_policy: {window: 5s, tenants: {acme: {quota: {requests: 3, memory: 40%}}}, fairness: 0.2}\n"
    text += "".join((blocks / f"{name}.yaml").read_text() for name in ("preemption_config", "kv_transfer_config"))
    policy = load_policy(write(tmp_path / "p.yaml", text))
    assert policy.preemption_config.preemption_overhead == 0.05
    assert policy.kv_transfer_config is not None
    assert policy.kv_transfer_config.compression == "int8"
    assert policy.tenants["acme"].quota.memory == 0.4
    assert load_document(write(tmp_path / "again.yaml", dump("batch_policy", policy)))[1] == policy
