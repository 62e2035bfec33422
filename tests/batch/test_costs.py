"""P(i, k, r) and the step of a batch against the cost model of single stages, and against figures by hand."""

from __future__ import annotations

import numpy as np
import pytest

from iegopt.batch.kinds import InstanceKind
from iegopt.batch.prefill import PrefillCost
from iegopt.batch.steps import mean_kv_tokens, step_base, step_parts
from iegopt.cost.model import RunningBatch
from iegopt.cost.roofline import Capacity
from iegopt.errors import InputError
from iegopt.spec.stage import Parallelism, ParallelStrategy, StageKind

from ..cost.cards import encoder, llm, moe, stage
from .kinds import EFFICIENCY, KINDS, MODEL, device_class, kind_of


def model_cost(kind: InstanceKind, what: str, running: RunningBatch | None = None, **tokens: int) -> float:
    """What the cost model says of a stage on a kind, all of its own accord."""
    device = kind.device
    rate = device.compute.rate(kind.precision)
    assert rate is not None
    shape = Parallelism(strategy=ParallelStrategy.TENSOR if kind.size > 1 else ParallelStrategy.NONE, degree=kind.size)
    spec = stage(what, kind.card.name, **tokens)
    return MODEL.stage_cost(
        spec, kind.card, kind.precision, device.model, Capacity(rate, device.bandwidth, device.io, device.vram), shape,
        efficiency=device.efficiency_for(spec), parallel_efficiency=EFFICIENCY[0 if kind.fabric else 1],
        running=running,
    ).t0  # fmt: skip


@pytest.mark.parametrize("k", range(len(KINDS)), ids=[kind.name for kind in KINDS])
def test_prefills_cost_what_the_cost_model_says(k: int) -> None:
    rng = np.random.default_rng(k)
    prompt = np.concatenate([[1, 2, 4096, 4097], rng.integers(1, 20_000, 96)])
    sequences = rng.integers(1, 12, 100)
    held = np.where(rng.random(100) < 0.5, 0, (prompt * rng.random(100)).astype(np.int64))
    cost = PrefillCost.of(KINDS, prompt, sequences, np.ones((100, len(KINDS)), dtype=bool))
    found = cost.seconds(np.arange(100), k, held)
    for i in range(100):
        n, c, b = int(prompt[i] - held[i]), int(held[i]), int(sequences[i])
        what = StageKind.RE_PREFILL if c else StageKind.PREFILL
        assert found[i] == pytest.approx(model_cost(KINDS[k], what, context=c, new=n, batch=b), rel=1e-9)


def test_one_prefill_costs_what_it_does_among_many() -> None:
    prompt, sequences = np.array([1, 300, 5000, 9000]), np.array([1, 3, 2, 1])
    runs = np.ones((4, len(KINDS)), dtype=bool)
    runs[2, 1] = False
    cost = PrefillCost.of(KINDS, prompt, sequences, runs)
    for i in range(4):
        for k in range(len(KINDS)):
            for held in {0, int(prompt[i]) // 2}:
                assert cost.one(i, k, held) == pytest.approx(float(cost.seconds(i, k, held)), rel=1e-12)


def test_a_prefill_of_a_rounded_70b_takes_the_published_time() -> None:
    """2·70e9·4096 FLOP over 312 TFLOP/s are 1.84 s; a reused half of the prompt halves it."""
    kind = kind_of(llm(), device_class("A100-80GB", compute={"fp16_flops": 312e12}, memory={"vram": 160 * 10**9}), 1)
    cost = PrefillCost.of((kind,), np.array([4096]), np.array([1]), np.ones((1, 1), dtype=bool))
    assert cost.seconds(0, 0) == pytest.approx(1.838, abs=1e-3)
    assert cost.seconds(0, 0, 2048) == pytest.approx(0.919, abs=1e-3)


def test_what_a_kind_cannot_run_takes_forever() -> None:
    runs = np.array([[True, False]])
    cost = PrefillCost.of(KINDS[:2], np.array([100]), np.array([1]), runs)
    assert np.isfinite(cost.seconds(0, 0))
    assert np.isinf(cost.seconds(0, 1))


@pytest.mark.parametrize("k", [0, 1, 2], ids=[kind.name for kind in KINDS[:3]])
def test_a_step_takes_what_the_cost_model_says(k: int) -> None:
    """A decode of one step that holds the mean of its life's KV cache, in a batch of others."""
    rng, kind = np.random.default_rng(k), KINDS[k]
    base = [row[k] for row in step_base(KINDS)]
    for _ in range(50):
        count = int(rng.integers(1, 60))
        sequences, held = rng.integers(1, 5, count), rng.integers(1, 5000, count)
        output = 2 * rng.integers(1, 300, count) + 1  # so that the mean is a whole number of tokens
        tokens = mean_kv_tokens(held, output)
        a, b = step_parts(KINDS, sequences, tokens)
        others = RunningBatch(int(sequences[1:].sum()), int((sequences[1:] * tokens[1:]).sum()))
        wanted = model_cost(
            kind, "decode", others, context=int(tokens[0]), output=1, batch=int(sequences[0])
        )  # fmt: skip
        found = max(base[0] + a[:, k].sum(), base[1] + b[:, k].sum())
        assert found == pytest.approx(wanted, rel=1e-9)


def test_a_table_scales_the_step_to_what_was_measured_at_batch_one() -> None:
    kind = KINDS[3]
    (a0,), (b0,) = step_base((kind,))
    a, b = step_parts((kind,), [1], np.array([512.0]))
    assert max(a0 + a[0, 0], b0 + b[0, 0]) == pytest.approx(model_cost(kind, "decode", context=512, output=1), rel=1e-9)


def test_a_sparse_model_reads_all_its_weights_at_any_batch() -> None:
    """100e9 parameters of 2 bytes over 4 x 4.8 TB/s at 0.9 and the card's own efficiency."""
    kind = KINDS[5]
    assert step_base((kind,))[1] == pytest.approx(200e9 / (4 * 0.9 * kind.device.bandwidth) / kind.efficiency)
    assert step_base((kind,))[1] > model_cost(kind, "decode", context=1, output=1)


@pytest.mark.parametrize(
    ("card", "device", "size", "message"),
    [
        (encoder(), "A100-80GB", 1, "bge/fp16/CUDA generates no tokens: expected a variant of a decoder"),
        (llm(), "A100-80GB", 3, "3 devices do not divide the 64 attention heads of Llama-2-70B"),
        (moe(), "A100-80GB", 2, "the weights of MoE/fp16/CUDA, 200 GB, do not fit 2 x A100-80GB with 160 GB"),
    ],
)  # fmt: skip
def test_a_kind_that_cannot_be_is_refused(card: object, device: str, size: int, message: str) -> None:
    with pytest.raises(InputError) as refusal:
        kind_of(card, device_class(device), size)  # type: ignore[arg-type]
    assert message in str(refusal.value)
