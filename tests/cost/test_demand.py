"""Demand vectors against figures worked out by hand."""

from __future__ import annotations

from importlib import import_module

import pytest

from iegopt.cost.demand import demand, join_batch, weights_read
from iegopt.errors import InputError
from iegopt.spec.kinds import KINDS
from iegopt.spec.stage import ComputeDemand, IoDemand, MemoryDemand, Precision, StageKind

from .cards import encoder, llm, moe, stage

FP16 = Precision.FP16


def test_prefill_of_the_source() -> None:
    d = demand(stage("prefill", new=4096), llm(), FP16)
    assert d.flops == 2 * 70e9 * 4096 == pytest.approx(5.7e14, rel=0.01)
    assert d.weight_bytes == 140e9
    assert d.kv_bytes == 2 * 80 * 8 * 128 * 2 * 4096 == pytest.approx(1.34e9, rel=0.01)
    assert d.traffic_bytes == d.weight_bytes + d.kv_bytes
    assert d.io_bytes == 0


def test_kv_cache_with_64_heads_is_the_sources_figure() -> None:
    assert demand(stage("prefill", new=4096), llm(kv_heads=64), FP16).kv_bytes == pytest.approx(10.7e9, rel=0.01)


def test_attention_counts_beyond_4096_tokens() -> None:
    short, long = stage("prefill", new=4096), stage("prefill", new=8192)
    linear = 2 * 70e9 * 8192
    assert demand(long, llm(), FP16).flops == linear + 4 * 80 * 8192 * 8192**2 / 2
    assert demand(long, llm(), FP16, attention=False).flops == linear
    extra = demand(short, llm(), FP16, attention=True).flops - demand(short, llm(), FP16).flops
    assert extra == 4 * 80 * 8192 * 4096**2 / 2


def test_re_prefill_computes_the_increment_and_holds_everything() -> None:
    d = demand(stage("re_prefill", context=6000, new=1000, batch=2), llm(), FP16)
    assert d.flops == 2 * 70e9 * 1000 * 2 + 4 * 80 * 8192 * (1000 * 6000 + 1000**2 / 2) * 2
    assert d.kv_bytes == llm().kv_bytes_per_token() * 7000 * 2
    assert d.traffic_bytes == 140e9 + d.kv_bytes


def test_decode_steps() -> None:
    d = demand(stage("decode", context=1000, output=100, batch=4), llm(), FP16)
    token = llm().kv_bytes_per_token()
    assert d.decode is not None
    assert (d.decode.steps, d.decode.batch) == (100, 4)
    assert d.decode.flops == 2 * 70e9 * 4
    assert d.decode.kv_start == 4 * 1000 * token
    assert d.kv_bytes == 4 * 1100 * token
    assert d.traffic_bytes == pytest.approx(sum(140e9 + 4 * (1000 + i) * token for i in range(100)))
    assert d.flops == 100 * d.decode.flops


def test_mla_card_gives_its_own_kv_figure() -> None:
    card = llm(kv_heads=None, head_dim=None, kv_elements_per_layer=576, layers=61)
    assert demand(stage("prefill", new=100), card, FP16).kv_bytes == 61 * 576 * 2 * 100


def test_mixture_computes_active_and_reads_more_weights_with_a_larger_batch() -> None:
    one = demand(stage("decode", output=1), moe(), FP16)
    assert one.flops == 2 * 10e9
    assert one.weight_bytes == 200e9
    assert one.weight_traffic == pytest.approx(20e9)
    assert weights_read(moe(), FP16, 2) == pytest.approx(200e9 * (1 - 0.9**2))
    assert weights_read(moe(), FP16, 1000) == pytest.approx(200e9)
    assert weights_read(llm(), FP16, 1) == weights_read(llm(), FP16, 64) == 140e9


def test_precision_shrinks_weights_not_the_kv_cache() -> None:
    wide, narrow = (demand(stage("prefill", new=100), llm(), p) for p in (FP16, Precision.INT4))
    assert narrow.weight_bytes == wide.weight_bytes / 4
    assert narrow.kv_bytes == wide.kv_bytes


@pytest.mark.parametrize("kind", ["embedding", "rerank"])
def test_encoder_has_no_kv_cache(kind: str) -> None:
    d = demand(stage(kind, "bge", new=256, batch=8), encoder(), FP16)
    assert d.flops == 2 * 1e9 * 256 * 8
    assert d.kv_bytes == 0
    assert d.traffic_bytes == 2e9


def test_activations_live_chunk_by_chunk() -> None:
    card = llm()
    at = [demand(stage("prefill", new=n), card, FP16).memory_bytes for n in (4096, 8192, 100_000)]
    assert at == [5 * 8192 * 2 * 4096, 5 * 8192 * 2 * 8192, 5 * 8192 * 2 * 8192]


@pytest.mark.parametrize(("kind", "stored"), [("kv_store", 1), ("kv_load", 1), ("kv_migrate", 0)])
def test_kv_stages_move_the_cache(kind: str, stored: int) -> None:
    d = demand(stage(kind, context=1000), llm(), FP16)
    kv = 1000 * llm().kv_bytes_per_token()
    assert (d.kv_bytes, d.traffic_bytes, d.io_bytes, d.weight_bytes) == (kv, kv, kv * stored, 0)


def test_explicit_fields_win() -> None:
    explicit = stage(
        "prefill", new=4096, compute=ComputeDemand(flops=1e12), io=IoDemand(bytes=5), fixed_time=0.25,
        memory=MemoryDemand(vram=1, kv_cache_size=2, traffic=3),
    )  # fmt: skip
    d = demand(explicit, llm(), FP16)
    assert (d.flops, d.memory_bytes, d.kv_bytes, d.traffic_bytes, d.io_bytes, d.fixed_time) == (1e12, 1, 2, 3, 5, 0.25)
    assert d.weight_bytes == 140e9


def test_explicit_work_of_a_decode_is_spread_over_its_steps() -> None:
    given = stage(
        "decode", context=9, output=10, compute=ComputeDemand(flops=1e12), memory=MemoryDemand(traffic=10**9)
    )  # fmt: skip
    work = demand(given, llm(), FP16).decode
    assert work is not None
    assert (work.flops, work.traffic) == (1e11, 1e9)


def test_explicit_zero_is_not_absent() -> None:
    given = stage("tool", None, compute=ComputeDemand(flops=0), io=IoDemand(bytes=0))
    assert (demand(given, None, FP16).flops, demand(given, None, FP16).io_bytes) == (0, 0)


@pytest.mark.parametrize("kind", [StageKind.TOOL, StageKind.RETRIEVAL, StageKind.ROUTER])
def test_kind_defaults_come_last(kind: StageKind) -> None:
    d, shape = demand(stage(kind, None), None, FP16), KINDS[kind]
    assert (d.flops, d.memory_bytes, d.traffic_bytes, d.io_bytes) == (shape.flops, shape.vram, shape.traffic, shape.io)


def test_tokens_without_a_card_are_refused() -> None:
    with pytest.raises(InputError, match="stage v: no card of model Nobody"):
        demand(stage("prefill", "Nobody", new=10), None, FP16)


def test_joining_a_batch_shares_the_weights() -> None:
    alone = demand(stage("decode", context=1000, output=10), llm(), FP16)
    joined = join_batch(alone, llm(), FP16, sequences=7, kv_tokens=7000)
    assert alone.decode is not None
    assert joined.decode is not None
    assert joined.decode.batch == 8
    assert joined.decode.flops == 8 * alone.decode.flops
    assert joined.decode.weight_traffic == alone.decode.weight_traffic
    assert joined.decode.kv_start == 8 * alone.decode.kv_start
    assert joined.decode.kv_growth == 8 * alone.decode.kv_growth
    assert joined.kv_bytes == alone.kv_bytes
    with pytest.raises(ValueError, match="only a decode"):
        join_batch(demand(stage("prefill", new=1), llm(), FP16), llm(), FP16, 1, 1)


@pytest.mark.parametrize("name", ["demand", "gang", "load", "model", "profile", "roofline", "transfer", "weights"])
def test_public_names_exist(name: str) -> None:
    module = import_module(f"iegopt.cost.{name}")
    assert all(hasattr(module, public) for public in module.__all__)
