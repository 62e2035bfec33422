from __future__ import annotations

import math
from dataclasses import replace

import pytest

from iegopt.cost.demand import DecodeWork, Demand, demand
from iegopt.cost.roofline import Capacity, decode_seconds, device_capacity, stage_time
from iegopt.spec.device import DeviceCompute, DeviceIo, DeviceMemory, DeviceSpec
from iegopt.spec.stage import Precision

from .cards import A100, llm, stage

FP16 = Precision.FP16
UNIT = Capacity(flops=1.0, bandwidth=1.0, io=1.0, memory=10.0)


def _need(**amounts: float) -> Demand:
    zero = Demand(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    return replace(zero, **amounts)  # type: ignore[arg-type]


def test_prefill_of_the_source_is_compute_bound_at_1_84_seconds() -> None:
    t = stage_time(demand(stage("prefill", new=4096), llm(), FP16), A100)
    assert t.seconds == pytest.approx(1.84, abs=0.005)
    assert t.bottleneck == "compute"


def test_decode_is_bandwidth_bound() -> None:
    t = stage_time(demand(stage("decode", context=1000, output=10), llm(), FP16), A100)
    assert t.bottleneck == "bandwidth"
    assert t.seconds == pytest.approx(10 * 140e9 / 2.039e12, rel=0.01)


@pytest.mark.parametrize(
    ("amounts", "bottleneck", "seconds"),
    [
        ({"flops": 5.0, "traffic_bytes": 3.0, "io_bytes": 1.0}, "compute", 5.0),
        ({"flops": 3.0, "traffic_bytes": 5.0, "io_bytes": 1.0}, "bandwidth", 5.0),
        ({"flops": 1.0, "traffic_bytes": 3.0, "io_bytes": 5.0}, "io", 5.0),
        ({"flops": 1.0, "fixed_time": 7.0}, "fixed", 8.0),
    ],
)
def test_longest_term_is_the_bottleneck(amounts: dict[str, float], bottleneck: str, seconds: float) -> None:
    t = stage_time(_need(**amounts), UNIT)
    assert (t.bottleneck, t.seconds) == (bottleneck, seconds)


def test_efficiency_divides_the_roofline_and_not_the_fixed_time() -> None:
    assert stage_time(_need(flops=2.0, fixed_time=1.0), UNIT, efficiency=0.5).seconds == 5.0


def test_capacity_ratio_is_a_fraction_and_never_the_time() -> None:
    t = stage_time(_need(memory_bytes=20.0, kv_bytes=20.0, weight_bytes=10.0, flops=1.0), UNIT)
    assert (t.capacity_ratio, t.seconds, t.bottleneck) == (5.0, 1.0, "compute")


def test_missing_rate_takes_forever_only_where_it_is_needed() -> None:
    no_io = replace(UNIT, io=0.0)
    assert stage_time(_need(io_bytes=1.0), no_io).seconds == math.inf
    assert stage_time(_need(flops=1.0), no_io).seconds == 1.0
    assert stage_time(_need(flops=1.0), UNIT, efficiency=0.0).seconds == math.inf


@pytest.mark.parametrize("steps", [0, 1, 2, 7, 100])
@pytest.mark.parametrize("flops", [0.0, 5.0, 10.0, 10.5, 14.0, 30.0, 1000.0])
@pytest.mark.parametrize("growth", [0.0, 0.3, 1.0])
def test_closed_form_of_a_decode_is_the_loop(steps: int, flops: float, growth: float) -> None:
    work = DecodeWork(steps, 1, flops, weight_traffic=6.0, kv_start=4.0, kv_growth=growth)
    at = Capacity(flops=2.0, bandwidth=4.0, io=1.0, memory=1.0)
    loop = sum(max(flops / 2.0, (10.0 + growth * i) / 4.0) for i in range(steps))
    assert decode_seconds(work, at) == pytest.approx(loop, rel=1e-12)


def test_decode_that_starts_compute_bound_and_ends_bandwidth_bound_exceeds_both_terms() -> None:
    work = DecodeWork(100, 1, flops=14.0, weight_traffic=6.0, kv_start=4.0, kv_growth=0.3)
    t = stage_time(replace(_need(flops=1400.0, traffic_bytes=work.traffic), decode=work), Capacity(1, 1, 1, 1))
    assert t.seconds > max(t.terms["compute"], t.terms["bandwidth"])


def test_decode_without_bandwidth_takes_forever() -> None:
    work = DecodeWork(2, 1, 1.0, 1.0, 0.0, 0.0)
    assert decode_seconds(work, Capacity(1.0, 0.0, 0.0, 1.0)) == math.inf
    assert decode_seconds(work, Capacity(0.0, 1.0, 0.0, 1.0)) == math.inf


def test_capacity_of_a_device() -> None:
    device = DeviceSpec(
        id="g", model="X", io=DeviceIo(bandwidth=7e9), memory=DeviceMemory(vram=8 * 10**10, bandwidth=2e12),
        compute=DeviceCompute(fp16_flops=312e12, precision_support=(FP16, Precision.INT4)),
    )  # fmt: skip
    assert device_capacity(device, FP16) == Capacity(312e12, 2e12, 7e9, 8e10)
    assert device_capacity(device, Precision.INT4) == Capacity(312e12, 2e12, 7e9, 8e10)
    assert device_capacity(device, Precision.FP8) is None
