"""Demand vectors: σ(v) = (C, M, B, IO) of a stage, from its own figures, its model card or its kind.

What a stage states itself wins; then what follows from ``tokens`` and the card; then the shape of its
kind. All amounts are totals over the batch and over the whole gang.

=============  =====================================================================================
prefill        C = 2·active·n·b + attention, B = weights + KV written, M = activations, KV of n tokens
re-prefill     the same for the ``new`` tokens alone; attention also reads the KV of the ``context``
decode         per step C = 2·active·b, B = weights + KV of every sequence (``DecodeWork``)
encoders       prefill without a KV cache, attention not causal
kv_*           B = the KV cache of ``context + new``, and IO the same to or from a store
=============  =====================================================================================

Causal attention over c held and n new tokens scores n·c + n²/2 pairs of tokens, and each costs 4·layers·d_model FLOP
(QKᵀ and AV); with c = 0 this is the model's 4·layers·d_model·n²/2. It counts where c + n > ``ATTENTION_FROM``.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from iegopt.errors import InputError
from iegopt.spec.kinds import KINDS, LLM_KINDS
from iegopt.spec.llm import LlmCard
from iegopt.spec.stage import Precision, StageKind, StageSpec, TokenWork

__all__ = [
    "ATTENTION_FROM", "ENCODER_KINDS", "DecodeWork", "Demand", "activation_bytes", "demand", "join_batch",
    "weights_read",
]  # fmt: skip

ATTENTION_FROM = 4096
"""Sequences longer than this count attention's own FLOP (5 % of a 70B prefill there, growing linearly)."""

ENCODER_KINDS = frozenset({StageKind.EMBEDDING, StageKind.RERANK})
_KV_KINDS = frozenset({StageKind.KV_STORE, StageKind.KV_LOAD, StageKind.KV_MIGRATE})
_CHUNK = 8192
"""Prompt tokens whose activations live at once: engines prefill longer prompts chunk by chunk."""
_ACTIVATIONS = 5
"""Live activations of a token, in units of ``hidden_size``: the residual stream and an MLP four times as wide."""


@dataclass(frozen=True)
class DecodeWork:
    """The steps of a decode; step i = 0 … steps − 1 moves ``weight_traffic + kv_start + kv_growth·i`` bytes.

    Attributes
    ----------
    steps
        Tokens generated per sequence.
    batch
        Sequences that advance together, those of other requests included.
    flops, weight_traffic
        FLOP, and bytes of weights read, of one step.
    kv_start, kv_growth
        Bytes of KV cache read by the first step, and added by each step.
    """

    steps: int
    batch: int
    flops: float
    weight_traffic: float
    kv_start: float
    kv_growth: float

    @property
    def total_flops(self) -> float:
        """FLOP of all steps."""
        return self.steps * self.flops

    @property
    def weights(self) -> float:
        """Bytes of weights read over all steps."""
        return self.steps * self.weight_traffic

    @property
    def kv(self) -> float:
        """Bytes of KV cache read over all steps."""
        return self.steps * self.kv_start + self.kv_growth * self.steps * (self.steps - 1) / 2

    @property
    def traffic(self) -> float:
        """Bytes read over all steps."""
        return self.weights + self.kv


@dataclass(frozen=True)
class Demand:
    """What a stage needs, whatever device it meets.

    Attributes
    ----------
    flops, traffic_bytes, io_bytes
        C (FLOP), B and IO (bytes): amounts of work. ``weight_traffic`` is the part of B that reads weights.
    memory_bytes, kv_bytes
        M = their sum: working memory, and KV cache held while the stage runs. An explicit ``memory.vram`` is
        working memory: weights are never part of it where the stage names a model.
    weight_bytes
        Weights of the model, counted once per variant and device.
    fixed_time
        F, seconds that no device changes.
    batch
        Sequences, which data parallelism divides.
    decode
        The steps, where the stage is a decode.
    """

    flops: float
    memory_bytes: float
    kv_bytes: float
    weight_bytes: float
    traffic_bytes: float
    io_bytes: float
    fixed_time: float = 0.0
    weight_traffic: float = 0.0
    batch: int = 1
    decode: DecodeWork | None = None


def demand(stage: StageSpec, card: LlmCard | None, precision: Precision, *, attention: bool | None = None) -> Demand:
    """The demand of a stage when its weights are held in ``precision``.

    Parameters
    ----------
    card
        Of ``stage.model``; ``None`` where the stage names none.
    attention
        Whether attention's own FLOP count; by default, for more than ``ATTENTION_FROM`` tokens.

    Raises
    ------
    InputError
        Where the stage gives tokens, and no card says what they cost.
    """
    derived = _derived(stage, card, precision, attention)
    given = stage.memory
    flops = stage.compute.flops
    explicit = Demand(
        flops=derived.flops if flops is None else flops,
        memory_bytes=derived.memory_bytes if given.vram is None else given.vram,
        kv_bytes=derived.kv_bytes if given.kv_cache_size is None else given.kv_cache_size,
        traffic_bytes=derived.traffic_bytes if given.traffic is None else given.traffic,
        weight_traffic=derived.weight_traffic if given.traffic is None else 0.0,
        io_bytes=derived.io_bytes if stage.io is None else stage.io.bytes,
        fixed_time=stage.fixed_time,
        weight_bytes=derived.weight_bytes,
        batch=derived.batch,
        decode=derived.decode,
    )
    work = derived.decode
    if work is None or not work.steps:
        return explicit
    if flops is not None:
        work = replace(work, flops=flops / work.steps)
    if given.traffic is not None:
        work = replace(work, weight_traffic=0.0, kv_start=given.traffic / work.steps, kv_growth=0.0)
    return replace(explicit, decode=work)


def weights_read(card: LlmCard, precision: Precision, tokens: int) -> float:
    """Bytes of weights that a pass over ``tokens`` tokens reads: parameters·(1 − (1 − active/parameters)^tokens).

    A dense model reads all of them. A mixture of experts reads the active ones for one token, and more as other
    tokens are routed to other experts: the expected number of distinct experts under uniform, independent routing,
    which is what the load-balancing loss trains for (Fedus et al., Switch Transformers, 2022, section 2.2), with
    active/parameters standing in for the chance that a token uses a given weight. Shared layers are
    read always, so the figure is exact at one token, slightly high between, and exact again in the limit.
    """
    idle = 1.0 - card.active / card.parameters
    return float(card.parameters * precision.bytes * (1.0 - idle**tokens))


def activation_bytes(card: LlmCard, tokens: int) -> float:
    """Working memory of a pass over ``tokens`` tokens of a batch: those of one chunk at most live at once."""
    return _ACTIVATIONS * card.hidden_size * min(tokens, _CHUNK) * card.native_precision.bytes


def join_batch(work: Demand, card: LlmCard, precision: Precision, sequences: int, kv_tokens: int) -> Demand:
    """The demand of a decode that joins ``sequences`` running ones, holding ``kv_tokens`` tokens in all.

    Each step then also computes the others' tokens and reads their KV, while the weights are read once for all. The
    memory is the joiner's own.
    """
    steps = work.decode
    if steps is None:
        raise ValueError("only a decode joins a running batch")
    batch = steps.batch + sequences
    joined = DecodeWork(
        steps=steps.steps,
        batch=batch,
        flops=steps.flops + 2.0 * card.active * sequences,
        weight_traffic=weights_read(card, precision, batch),
        kv_start=steps.kv_start + card.kv_bytes_per_token() * kv_tokens,
        kv_growth=steps.kv_growth + card.kv_bytes_per_token() * sequences,
    )
    return replace(
        work, decode=joined, flops=joined.total_flops, traffic_bytes=joined.traffic, weight_traffic=joined.weights
    )


def _derived(stage: StageSpec, card: LlmCard | None, precision: Precision, attention: bool | None) -> Demand:
    """The demand before the stage's own figures."""
    kind = KINDS[stage.type]
    weights = card.parameters * precision.bytes if card is not None else 0.0
    tokens = stage.tokens
    if tokens is not None and card is None:
        raise InputError(f"stage {stage.id}: no card of model {stage.model} says what its tokens cost")
    shape = Demand(kind.flops, kind.vram, 0.0, weights, kind.traffic, kind.io)
    if tokens is None or card is None:
        return shape
    if stage.type is StageKind.DECODE:
        return _decode(tokens, card, precision, weights)
    if stage.type in LLM_KINDS or stage.type in ENCODER_KINDS:
        return _prefill(tokens, card, precision, weights, stage.type in LLM_KINDS, attention)
    if stage.type in _KV_KINDS:
        kv = card.kv_bytes_per_token() * (tokens.context + tokens.new) * tokens.batch
        stored = 0.0 if stage.type is StageKind.KV_MIGRATE else kv
        return Demand(0.0, 0.0, kv, 0.0, kv, stored, batch=tokens.batch)
    return replace(shape, batch=tokens.batch)


def _prefill(
    tokens: TokenWork, card: LlmCard, precision: Precision, weights: float, keeps_kv: bool, attention: bool | None
) -> Demand:
    n, c, b = tokens.new, tokens.context, tokens.batch
    per_token = card.kv_bytes_per_token() if keeps_kv else 0.0
    flops = 2.0 * card.active * n * b
    if attention if attention is not None else n + c > ATTENTION_FROM:
        pairs = n * c + (n * n / 2 if card.kind == "decoder" else n * n)
        flops += 4.0 * card.layers * card.hidden_size * pairs * b
    read = weights_read(card, precision, n * b)
    return Demand(
        flops=flops,
        memory_bytes=activation_bytes(card, n * b),
        kv_bytes=per_token * (c + n) * b,
        weight_bytes=weights,
        traffic_bytes=read + per_token * (c + n) * b,
        io_bytes=0.0,
        weight_traffic=read,
        batch=b,
    )


def _decode(tokens: TokenWork, card: LlmCard, precision: Precision, weights: float) -> Demand:
    held, b = tokens.context + tokens.new, tokens.batch
    per_token = card.kv_bytes_per_token() * b
    work = DecodeWork(
        steps=tokens.output,
        batch=b,
        flops=2.0 * card.active * b,
        weight_traffic=weights_read(card, precision, b),
        kv_start=per_token * held,
        kv_growth=per_token,
    )
    return Demand(
        memory_bytes=_ACTIVATIONS * card.hidden_size * b * card.native_precision.bytes,
        kv_bytes=per_token * (held + tokens.output),
        weight_bytes=weights,
        io_bytes=0.0,
        batch=b,
        decode=work,
        flops=work.total_flops,
        traffic_bytes=work.traffic,
        weight_traffic=work.weights,
    )
