from __future__ import annotations

import math

import pytest

from iegopt.cost.load import load_factor
from iegopt.cost.transfer import (
    buffer_bytes,
    chunk_count,
    compression_ratio,
    exposed_seconds,
    hidden_seconds,
    raw_seconds,
)
from iegopt.cost.weights import PRESETS, dollars, money, weights_for
from iegopt.spec.device import QueueState
from iegopt.spec.policy import KvTransferConfig
from iegopt.spec.request import SlaClass, Weights
from iegopt.spec.stage import Precision

FP16 = Precision.FP16
PLAIN = KvTransferConfig(chunk_size=100, pipeline_depth=4)
STREAM = KvTransferConfig(chunk_size=100, pipeline_depth=4, overlap_compute=True)


def test_queue_and_utilisation() -> None:
    assert load_factor(QueueState(depth=3, wait=0.5), 0.9) == 2.5
    assert load_factor(QueueState(), 0.9) == 1.0
    assert load_factor(None, 0.0) == 1.0
    assert load_factor(None, 0.75) == 4.0
    assert load_factor(None, 1.0) == math.inf
    with pytest.raises(ValueError, match=r"utilization 1\.5"):
        load_factor(None, 1.5)


def test_kv_of_4096_tokens_over_100_gbit() -> None:
    sixty_four_heads = 2 * 80 * 64 * 128 * 2 * 4096
    assert raw_seconds(sixty_four_heads, 0.0, 100e9 / 8) == pytest.approx(0.86, abs=0.002)


def test_raw_is_latency_and_bytes_over_bandwidth_of_all_shards() -> None:
    assert raw_seconds(1000, 0.5, 100.0) == 10.5
    assert raw_seconds(1000, 0.5, 100.0, shards=4) == 3.0


def test_without_overlap_the_exposed_transfer_is_raw() -> None:
    assert exposed_seconds(1000, 0.5, 100.0, 1e9, PLAIN) == 10.5
    assert exposed_seconds(1000, 0.5, 100.0, 1e9, None) == 10.5


def test_overlap_hides_all_but_the_last_chunks_share_of_the_producer() -> None:
    assert hidden_seconds(STREAM, 1000, 5.0) == 4.5
    assert exposed_seconds(1000, 0.5, 100.0, 5.0, STREAM) == 6.0


def test_overlap_never_exposes_less_than_one_chunk() -> None:
    assert exposed_seconds(1000, 0.5, 100.0, 100.0, STREAM) == 1.5
    assert exposed_seconds(1000, 0.5, 100.0, 100.0, STREAM, shards=2) == 1.0


def test_one_chunk_cannot_overlap() -> None:
    assert exposed_seconds(60, 0.5, 100.0, 100.0, STREAM) == 1.1
    assert exposed_seconds(0, 0.5, 100.0, 100.0, STREAM) == 0.5


@pytest.mark.parametrize(("size", "count"), [(0, 1), (1, 1), (100, 1), (100.5, 2), (101, 2), (1000, 10)])
def test_chunks_are_rounded_up(size: float, count: int) -> None:
    assert chunk_count(STREAM, size) == count


def test_buffer_is_the_pipeline_depth() -> None:
    assert buffer_bytes(STREAM, 1000) == 400
    assert buffer_bytes(STREAM, 150) == 150


@pytest.mark.parametrize(
    ("compression", "kv", "precision", "ratio"),
    [
        ("none", True, FP16, 1.0),
        ("int8", True, FP16, 0.5),
        ("fp8", True, FP16, 0.5),
        ("int4", True, FP16, 0.25),
        ("int8", False, FP16, 1.0),
        ("int8", True, Precision.FP8, 1.0),
        ("int8", True, Precision.INT4, 1.0),
    ],
)
def test_compression_shrinks_kv_edges_only(compression: str, kv: bool, precision: Precision, ratio: float) -> None:
    config = KvTransferConfig.model_validate({"compression": compression})
    assert compression_ratio(config, kv, precision) == ratio
    assert compression_ratio(None, kv, precision) == 1.0


def test_presets_keep_the_sources_order() -> None:
    real, batch, agent, offline = (PRESETS[c] for c in SlaClass)
    assert real.alpha > max(real.beta, real.gamma, real.lambda_)
    assert batch.beta > max(batch.alpha, batch.gamma, batch.lambda_)
    assert agent.alpha == agent.gamma > max(agent.beta, agent.lambda_)
    assert offline.gamma > max(offline.alpha, offline.beta, offline.lambda_)


def test_given_weights_win_even_at_zero() -> None:
    given = weights_for(SlaClass.REALTIME, Weights(gamma=0.0, lambda_=3.0))
    preset = PRESETS[SlaClass.REALTIME]
    assert (given.alpha, given.beta, given.gamma, given.lambda_) == (preset.alpha, preset.beta, 0.0, 3.0)
    assert weights_for(SlaClass.REALTIME) == preset


def test_money() -> None:
    assert dollars(4.0, 1800.0) == 2.0
    assert money(4.0, 10.0, 2.0) == 20.0
    assert money(0.0, 10.0, 0.0) == 0.0
    with pytest.raises(ValueError, match="reference_price 0"):
        money(4.0, 10.0, 0.0)
