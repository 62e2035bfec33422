"""The nine blocks of the source document load as they stand, and round-trip."""

from __future__ import annotations

from pathlib import Path

import pytest

from iegopt.spec.load import dump, load_document
from iegopt.spec.stage import ParallelStrategy, Precision, StageKind

from ..conftest import shared_dir

BLOCKS = Path(__file__).resolve().parent / "blocks"
NAMES = (
    "dag_constraints",
    "device",
    "execution_path_registry",
    "fallback_policy",
    "kv_transfer_config",
    "node",
    "preemption_config",
    "profiling_matrix",
    "state_transitions",
)


@pytest.mark.parametrize("name", NAMES)
def test_a_block_loads_verbatim_and_round_trips(name: str, tmp_path: Path) -> None:
    key, spec = load_document(BLOCKS / f"{name}.yaml")
    assert key == name
    again = tmp_path / "again.yaml"
    again.write_text(dump(key, spec), encoding="utf-8")
    assert load_document(again) == (key, spec)
    assert dump(key, spec) == dump(*load_document(again))


@pytest.mark.parametrize("name", NAMES)
def test_a_block_is_the_source_s_own(name: str) -> None:
    original = shared_dir() / "seed" / "blocks" / f"{name}.yaml"
    assert (BLOCKS / f"{name}.yaml").read_bytes() == original.read_bytes()


def test_there_are_no_other_blocks() -> None:
    assert sorted(path.stem for path in BLOCKS.iterdir()) == sorted(NAMES)


def test_the_node_says_what_it_says() -> None:
    _, node = load_document(BLOCKS / "node.yaml", "node")
    assert node.id == "prefill-001"
    assert node.type is StageKind.PREFILL
    assert node.compute.flops == 1.2e14
    assert node.compute.precision is Precision.FP16
    assert (node.memory.vram, node.memory.kv_cache_size) == (40 * 10**9, 8 * 10**9)
    assert node.latency_sla == 0.2
    assert node.parallelism.strategy is ParallelStrategy.TENSOR
    assert node.parallelism.degree == 4
    assert node.affinity.kv_cache_location == "gpu-node-03"


def test_the_device_says_what_it_says() -> None:
    _, device = load_document(BLOCKS / "device.yaml", "device")
    assert device.compute.fp16_flops == 3.12e14
    assert (device.memory.vram, device.memory.bandwidth) == (80 * 10**9, 2e12)
    assert device.interconnect.bandwidth == 6e11
    assert (device.utilization.compute, device.utilization.memory) == (0.45, 0.62)


def test_a_dump_is_in_human_units() -> None:
    text = dump(*load_document(BLOCKS / "dag_constraints.yaml"))
    assert "max_token_budget: 32768\n" in text
    assert "max_kv_cache_size: 20GB\n" in text
    assert "max_compute_time: 1min\n" in text
