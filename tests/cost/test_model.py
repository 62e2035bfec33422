from __future__ import annotations

import math

import pytest

from iegopt import library
from iegopt.cost.model import CostModel, RunningBatch
from iegopt.cost.profile import Profiles
from iegopt.spec.profile import Measurement, Profile, ProfilePoint
from iegopt.spec.stage import ComputeDemand, Parallelism, ParallelStrategy, Precision, StageKind

from .cards import A100, llm, stage

FP16 = Precision.FP16
PREFILL = stage("prefill", new=4096)
DECODE = stage("decode", context=1000, output=10)
TP4 = Parallelism(degree=4)


def test_roofline_cost_of_the_source() -> None:
    cost = CostModel().stage_cost(PREFILL, llm(), FP16, "A100-80GB", A100)
    assert cost.t0 == cost.t == pytest.approx(1.84, abs=0.005)
    assert (cost.bottleneck, cost.source, cost.step_seconds) == ("compute", "roofline", None)
    assert cost.weight_bytes == 140e9
    assert cost.capacity_ratio == pytest.approx((140e9 + cost.memory_bytes + cost.kv_bytes) / 80e9)


def test_load_multiplies_t_alone() -> None:
    cost = CostModel().stage_cost(PREFILL, llm(), FP16, "A100-80GB", A100, load=2.5)
    assert cost.t == 2.5 * cost.t0


def test_gang_and_its_efficiency_shorten_a_stage() -> None:
    one = CostModel().stage_cost(PREFILL, llm(), FP16, "A100-80GB", A100)
    four = CostModel().stage_cost(PREFILL, llm(), FP16, "A100-80GB", A100, TP4, parallel_efficiency=0.9)
    assert four.t0 == pytest.approx(one.t0 / 3.6)
    assert four.weight_bytes == one.weight_bytes
    assert four.capacity_ratio == pytest.approx(one.capacity_ratio / 4)


def test_data_parallel_gang_holds_a_copy_of_the_weights_each() -> None:
    four = Parallelism(strategy=ParallelStrategy.DATA, degree=4)
    work = stage("prefill", new=512, batch=8)
    cost = CostModel().stage_cost(work, llm(), FP16, "A100-80GB", A100, four)
    one = CostModel().stage_cost(stage("prefill", new=512, batch=2), llm(), FP16, "A100-80GB", A100)
    assert cost.t0 == pytest.approx(one.t0)
    assert cost.weight_bytes == 4 * 140e9
    assert cost.kv_bytes == 4 * one.kv_bytes


@pytest.mark.parametrize("knob", ["efficiency", "calibration"])
def test_efficiencies_lengthen_the_roofline(knob: str) -> None:
    plain = CostModel().stage_cost(PREFILL, llm(), FP16, "A100-80GB", A100)
    slow = CostModel().stage_cost(PREFILL, llm(), FP16, "A100-80GB", A100, **{knob: 0.5})  # type: ignore[arg-type]
    assert slow.t0 == pytest.approx(2 * plain.t0)


def test_decode_reports_its_mean_step() -> None:
    cost = CostModel().stage_cost(DECODE, llm(), FP16, "A100-80GB", A100)
    assert cost.step_seconds == pytest.approx(cost.t0 / 10)


def test_joining_a_batch_is_cheap() -> None:
    model = CostModel()
    alone = model.stage_cost(DECODE, llm(), FP16, "A100-80GB", A100)
    joined = model.stage_cost(DECODE, llm(), FP16, "A100-80GB", A100, running=RunningBatch(7, 7000))
    crowded = model.stage_cost(DECODE, llm(), FP16, "A100-80GB", A100, running=RunningBatch(1000, 10**6))
    assert alone.t0 < joined.t0 < 1.05 * alone.t0
    assert crowded.t0 > 2 * alone.t0
    assert joined.kv_bytes == alone.kv_bytes


def test_a_profile_takes_the_rooflines_place() -> None:
    card = library.llm("Llama-2-70B")
    model = CostModel(Profiles(library.profiles()))
    # Measured medians of the Splitwise table for A100-80GB, TP 4: 403 ms at 2048 tokens, 45.0 ms a token.
    prefill = model.stage_cost(stage("prefill", new=2048), card, FP16, "A100-80GB", A100, TP4)
    decode = model.stage_cost(stage("decode", context=2048, output=128), card, FP16, "A100-80GB", A100, TP4)
    assert prefill.source == decode.source == "llama-2-70b-a100-80gb"
    assert prefill.t0 == pytest.approx(0.403, rel=0.1)
    assert decode.step_seconds == pytest.approx(0.045, rel=0.1)
    assert prefill.bottleneck == "compute"


def test_a_profile_replaces_the_cards_efficiency_and_obeys_telemetry() -> None:
    card, model = library.llm("Llama-2-70B"), CostModel(Profiles(library.profiles()))
    work = stage("prefill", new=2048, fixed_time=1.0)
    plain = model.stage_cost(work, card, FP16, "A100-80GB", A100, TP4)
    assert model.stage_cost(work, card, FP16, "A100-80GB", A100, TP4, efficiency=0.5).t0 == plain.t0
    slow = model.stage_cost(work, card, FP16, "A100-80GB", A100, TP4, calibration=0.5)
    assert slow.t0 - 1.0 == pytest.approx(2 * (plain.t0 - 1.0))
    assert model.stage_cost(work, card, FP16, "A100-80GB", A100, TP4, calibration=0.0).t0 == math.inf


@pytest.mark.parametrize("case", ["own flops", "pipeline", "degree", "device"])
def test_a_profile_speaks_only_of_what_was_measured(case: str) -> None:
    model = CostModel(Profiles(library.profiles()))
    own = ComputeDemand(flops=1e15) if case == "own flops" else ComputeDemand()
    work = stage("prefill", new=2048, compute=own)
    strategy = ParallelStrategy.PIPELINE if case == "pipeline" else ParallelStrategy.TENSOR
    gang = Parallelism(strategy=strategy, degree=1 if case == "degree" else 4)
    device = "L4" if case == "device" else "A100-80GB"
    assert model.stage_cost(work, library.llm("Llama-2-70B"), FP16, device, A100, gang).source == "roofline"


def test_a_table_outside_its_range_follows_the_roofline() -> None:
    point = ProfilePoint(batch=1, tokens=1024, seconds=1.0)
    for kind, other in ((StageKind.PREFILL, stage("prefill", new=4096)), (StageKind.DECODE, DECODE)):
        table = Profile(
            name="t", model="Llama-2-70B", precision=FP16, device="A100-80GB", peak_flops=1.0, peak_bandwidth=1.0,
            measurements=(Measurement(kind=kind, degrees=(1,), points=(point,)),), sources={"all": "test"},
        )  # fmt: skip
        seconds = CostModel(Profiles([table])).stage_cost(other, llm(), FP16, "A100-80GB", A100).t0
        # Compute is linear in the tokens; a decode step of a thousand tokens is nearly all weights.
        assert seconds == pytest.approx(4.0 if kind is StageKind.PREFILL else 10.0, rel=0.001)


def test_stage_without_a_model_has_its_kinds_cost() -> None:
    cost = CostModel().stage_cost(stage("tool", None, fixed_time=0.5), None, FP16, "cpu", A100)
    assert (cost.bottleneck, cost.weight_bytes, cost.step_seconds) == ("fixed", 0.0, None)
    assert cost.t0 > 0.5
