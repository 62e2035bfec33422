"""Figures of a graph: what its stages leave out is their kind's, and they are found when a request is read."""

from __future__ import annotations

import math
from typing import Any

import pytest

from iegopt.spec.figures import AMOUNTS, Shape
from iegopt.spec.kinds import KINDS
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import ParallelStrategy, Precision, StageKind

STAGES: list[dict[str, Any]] = [
    {"id": "a", "type": "decode", "compute": {"flops": "3T", "precision": "fp16"}, "latency_sla": "2s",
     "memory": {"vram": "5GB", "kv_cache_size": "1GB", "traffic": "7GB"}, "io": {"bytes": "11MB"}, "fixed_time": "1ms",
     "parallelism": {"degree": 2}},
    {"id": "b", "type": "retrieval"},
    {"id": "c", "type": "decode", "compute": {"precision": "fp16"}, "parallelism": {"degree": 2}},
]  # fmt: skip


def read(*stages: dict[str, Any]) -> RequestSpec:
    return RequestSpec.model_validate({"graph": {"stages": stages}}, context={"document": True})


def test_figures_of_plain_stages() -> None:
    graph = read(*STAGES).graph
    assert graph is not None
    assert "_figures" in vars(graph)  # no deadline waits for them
    figures, usual = graph.figures(), KINDS[StageKind.RETRIEVAL]
    assert figures.slas.tolist() == [2.0, math.inf, math.inf]
    assert not figures.bound
    assert figures.plain is not None
    first, second, _ = (figures.plain.amounts[i : i + AMOUNTS].tolist() for i in range(0, 3 * AMOUNTS, AMOUNTS))
    assert first == pytest.approx([3e12, 7e9, 11e6, 1e-3, 6e9])
    assert second == pytest.approx([usual.flops, usual.traffic, usual.io, 0.0, usual.vram])
    types = KINDS[StageKind.DECODE].device_types
    assert figures.plain.shapes == (
        Shape(Precision.FP16, types, "lm", ParallelStrategy.TENSOR, 2, None),
        Shape(None, usual.device_types, "retrieval", ParallelStrategy.NONE, 1, None),
    )
    assert figures.plain.shape == [0, 1, 0]


@pytest.mark.parametrize(
    ("more", "plain", "bound"),
    [
        ({"model": "llama-3.1-8b"}, False, False),
        ({"parallelism": {"degree": 2, "strategy": "pipeline_parallel"}}, False, False),
        ({"affinity": {"device": "H100-0"}}, True, True),
        ({"affinity": {"kv_cache_location": "H100-0"}}, True, True),
    ],
)
def test_models_pipelines_and_named_devices_are_told_apart(more: dict[str, Any], plain: bool, bound: bool) -> None:
    graph = read(STAGES[0] | more, STAGES[1]).graph
    assert graph is not None
    assert (graph.figures().plain is not None, graph.figures().bound) == (plain, bound)


def test_a_copy_with_other_stages_has_figures_of_its_own() -> None:
    graph = read(*STAGES).graph
    assert graph is not None
    assert graph.figures() is graph.figures()
    assert graph.model_copy(update={"stages": graph.stages[1:]}).figures().slas.tolist() == [math.inf, math.inf]
