"""The limits of ``dag_constraints`` on a graph (section 5.3 of the source), checked whenever one is built or grows.

=====================  ==================================================================================
max_depth              stages on the longest path from the first prefill to an output
max_nodes              stages
max_tool_calls         tool stages
max_agent_rounds       re-prefills on one path: a round ends in one
max_token_budget       tokens prefilled and decoded by LLM stages, over the batch
max_kv_cache_size      the largest KV cache any stage holds; along a request one cache grows, it is not many
=====================  ==================================================================================

``max_compute_time`` depends on devices, so that the compiler checks it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from iegopt.errors import InputError, LimitError
from iegopt.spec.graph import GraphSpec
from iegopt.spec.kinds import LLM_KINDS
from iegopt.spec.llm import LlmCard
from iegopt.spec.policy import DagConstraints
from iegopt.spec.stage import StageKind, StageSpec

__all__ = ["Cards", "check_limits", "depth", "first_prefill", "kv_cache_size", "rounds", "token_use"]

_HOLD_KV = LLM_KINDS | {StageKind.KV_STORE, StageKind.KV_LOAD, StageKind.KV_MIGRATE}

Cards = Callable[[str], LlmCard | None]
"""Finds the card of a model by name."""


def check_limits(spec: GraphSpec, limits: DagConstraints, cards: Cards) -> None:
    """Refuse a graph that exceeds a limit, or a model's context.

    Raises
    ------
    InputError
        A prefill or decode by an encoder, or a prefill of more tokens than its model's context takes (an output is
        cut off by the engine instead).
    LimitError
        Naming the limit, what the graph needs, and what is allowed.
    """
    figures = spec.figures()
    asks = figures.asks
    if figures.plain is None:
        with_model = [stage for stage in spec.stages if stage.model is not None]
        _generate_with_decoders(with_model, cards)
        _within_context(with_model, cards)
    # No path has more stages than the graph, nor more rounds: most graphs need no look at their paths.
    if len(spec.stages) > limits.max_depth:
        _at_most("max_depth", depth(spec), limits.max_depth, "stages from first prefill to output")
    _at_most("max_nodes", len(spec.stages), limits.max_nodes, "stages")
    _at_most("max_tool_calls", asks.tools, limits.max_tool_calls, "tool calls")
    if asks.again > limits.max_agent_rounds:
        _at_most("max_agent_rounds", rounds(spec), limits.max_agent_rounds, "agent rounds")
    _at_most("max_token_budget", asks.tokens, limits.max_token_budget, "tokens")
    held = asks.kv if figures.plain is not None else kv_cache_size(spec, cards)
    if held > limits.max_kv_cache_size:
        raise LimitError("max_kv_cache_size", _gigabytes(held), _gigabytes(limits.max_kv_cache_size))


def _generate_with_decoders(stages: list[StageSpec], cards: Cards) -> None:
    for stage in stages:
        card = cards(stage.model) if stage.model is not None and stage.type in LLM_KINDS else None
        if card is not None and card.kind == "encoder":
            raise InputError(
                f"stage {stage.id}: {card.name} is an encoder, which generates no text: it embeds and reranks only"
            )


def _within_context(stages: list[StageSpec], cards: Cards) -> None:
    for stage in stages:
        card = cards(stage.model) if stage.model is not None else None
        if card is None or stage.tokens is None or stage.type not in (StageKind.PREFILL, StageKind.RE_PREFILL):
            continue
        held = stage.tokens.context + stage.tokens.new
        if held > card.max_context:
            raise InputError(
                f"stage {stage.id}: {held} tokens are more than the context of {card.name}, "
                f"which ends at {card.max_context}"
            )


def first_prefill(spec: GraphSpec) -> str | None:
    """Id of the stage whose end is the first token: the first prefill in topological order, ``None`` without one."""
    return next((spec.stages[i].id for i in spec.topological_order() if _is_prefill(spec.stages[i])), None)


def depth(spec: GraphSpec) -> int:
    """Stages on the longest path from the first prefill (any stage, without one) to an output (any stage, likewise)."""
    start = next((i for i in spec.topological_order() if _is_prefill(spec.stages[i])), None)
    longest = _longest(spec, [1] * len(spec.stages), start)
    kinds, output = [stage.type for stage in spec.stages], StageKind.OUTPUT
    outputs = [n for n, kind in zip(longest, kinds, strict=True) if kind is output]
    return max(0, *outputs) if outputs else max(longest)


def rounds(spec: GraphSpec) -> int:
    """Re-prefills on the path that has the most."""
    again = StageKind.RE_PREFILL
    counted = [int(stage.type is again) for stage in spec.stages]
    return max(_longest(spec, counted, None)) if any(counted) else 0


def token_use(spec: GraphSpec) -> int:
    """Tokens that the LLM stages prefill and decode, over the batch."""
    return spec.figures().asks.tokens


def kv_cache_size(spec: GraphSpec, cards: Cards) -> int:
    """Bytes of the largest KV cache that any stage holds: its own figure, else tokens held and generated.

    Raises
    ------
    InputError
        Where a stage gives tokens of a model without a card.
    """
    return max(_kv_bytes(stage, cards) for stage in spec.stages)


def _kv_bytes(stage: StageSpec, cards: Cards) -> int:
    tokens = stage.tokens
    if stage.memory.kv_cache_size is not None:
        return stage.memory.kv_cache_size
    if tokens is None or stage.model is None or stage.type not in _HOLD_KV:
        return 0
    card = cards(stage.model)
    if card is None:
        raise InputError(f"stage {stage.id}: no card of model {stage.model}")
    generated = tokens.output if stage.type is StageKind.DECODE else 0
    return round(card.kv_bytes_per_token() * (tokens.context + tokens.new + generated) * tokens.batch)


def _is_prefill(stage: StageSpec) -> bool:
    return stage.type is StageKind.PREFILL


def _longest(spec: GraphSpec, weight: Sequence[int], start: int | None) -> list[int]:
    """Per stage the heaviest path that ends there and begins at ``start``, where one is given; −1 without one."""
    longest = [*weight] if start is None else [-1] * len(weight)
    if start is not None:
        longest[start] = weight[start]
    successors = spec.successors()
    for i in spec.topological_order():
        so_far = longest[i]
        if so_far >= 0:
            for j in successors[i]:
                if so_far + weight[j] > longest[j]:
                    longest[j] = so_far + weight[j]
    return longest


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.6g} GB"


def _at_most(limit: str, used: int, allowed: int, what: str) -> None:
    if used > allowed:
        raise LimitError(limit, f"{used} {what}", str(allowed))
