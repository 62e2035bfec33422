"""Stages without a model: the verifier's own figures are those of the cost model, which shares nothing with them."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest

from iegopt.cost.model import CostModel
from iegopt.cost.roofline import Capacity
from iegopt.devices import DeviceClass, expand
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.stage import Precision, StageSpec
from iegopt.verify.plain import WidestPrecision, plain_memory, plain_seconds


def kinds() -> list[DeviceClass]:
    devices: list[dict[str, Any]] = [
        {"id": "a", "model": "A100-80GB"},
        {"id": "b", "model": "H100", "efficiency": "70%"},
        {"id": "c", "model": "cpu-epyc-9654-2s"},
    ]
    return [d.kind for d in expand(ClusterSpec.model_validate({"devices": devices}, context={"document": True}))]


def stage(rng: random.Random) -> StageSpec:
    document: dict[str, Any] = {"id": "s", "type": rng.choice(["prefill", "decode", "tool", "retrieval", "output"])}
    if rng.random() < 0.7:
        document["compute"] = {"flops": f"{rng.randrange(100)}T"}
    memory = {name: f"{rng.randrange(1, 20)}GB" for name in ("vram", "traffic", "kv_cache_size") if rng.random() < 0.5}
    if rng.random() < 0.3:
        document["io"] = {"bytes": "3GB"}
    if rng.random() < 0.3:
        document["fixed_time"] = "30ms"
    if rng.random() < 0.5:
        document["parallelism"] = {"degree": 2, "strategy": "tensor_parallel"}
    return StageSpec.model_validate(document | {"memory": memory}, context={"document": True})


@pytest.mark.parametrize("seed", range(40))
def test_seconds_and_bytes_are_the_cost_models(seed: int) -> None:
    spec = stage(random.Random(seed))
    for kind in kinds():
        precision = WidestPrecision().on(kind, None)
        assert precision is not None
        rate = precision[1]
        capacity = Capacity(rate, kind.bandwidth, kind.io, kind.vram)
        more = {} if spec.parallelism is None else {"parallelism": spec.parallelism}
        cost = CostModel().stage_cost(
            spec, None, precision[0], kind.model, capacity, **more,
            efficiency=kind.efficiency_for(spec), parallel_efficiency=0.8,
        )  # fmt: skip
        factor = 1.0 if spec.parallelism is None else 2 * 0.8
        assert plain_seconds(spec, kind, rate, factor) == pytest.approx(cost.t0, rel=1e-12)
        assert plain_memory(spec) == math.ceil(cost.memory_bytes + cost.kv_bytes)


def test_the_widest_precision_is_taken_and_one_that_is_missing_told() -> None:
    a100 = kinds()[0]
    poor, missing = next((k, p) for k in kinds() for p in Precision if k.compute.rate(p) is None)
    precisions = WidestPrecision()
    for _ in range(2):
        assert precisions.on(a100, None) == (Precision.FP32, a100.compute.rate(Precision.FP32))
        assert precisions.on(poor, missing) is None


def test_work_that_a_device_has_no_rate_for_takes_for_ever() -> None:
    spec = StageSpec.model_validate({"id": "s", "type": "tool", "compute": {"flops": "1T"}}, context={"document": True})
    assert plain_seconds(spec, kinds()[0], 0.0, 1.0) == math.inf
