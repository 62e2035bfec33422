"""Growth templates: the tool → retrieval → re-prefill → decode subgraph that a decode may ask for (section 5.3).

::

    decode ──▶ tool ──┐                                        ┌──▶ what followed the decode
       │  ╲──▶ tool ──┼─▶ embedding ─▶ retrieval ─▶ rerank ─▶ re-prefill ══▶ decode'
       │              └──────────────── results ───────────────▶ ║
       └═══════════════ KV cache of all tokens so far ═══════════╝

A template is data; ``expand`` appends one round to a graph, for the unrolling of the builder and for the growth
of a running graph alike. The KV cache of the rounds before is reused: only the results of the tools and of the
retrieval are prefilled (section 6.5, partial KV reuse).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from iegopt.errors import InputError
from iegopt.spec.graph import EdgeSpec, GraphSpec
from iegopt.spec.llm import LlmCard
from iegopt.spec.request import RetrievalSpec, ToolSpec
from iegopt.spec.stage import (
    ComputeDemand,
    IoDemand,
    MemoryDemand,
    Parallelism,
    Precision,
    StageKind,
    StageSpec,
    TokenWork,
)

__all__ = ["TEXT_BYTES", "TOOL_CALL_TOKENS", "GrowthTemplate", "LlmStages", "expand", "text_bytes", "tool_stage_ids"]

TEXT_BYTES = 4
"""Bytes of a token that travels as text or as an id."""

TOOL_CALL_TOKENS = 128
"""Tokens a decode emits to call tools: a JSON call or two. ``output_tokens`` caps the answer, and this too."""


@dataclass(frozen=True)
class LlmStages:
    """What all LLM stages of one request share.

    Attributes
    ----------
    batch
        Sequences of the request.
    itl
        Seconds between tokens that a decode must keep, or ``None``.
    """

    card: LlmCard
    batch: int = 1
    precision: Precision | None = None
    parallelism: Parallelism | None = None
    itl: float | None = None

    def stage(self, name: str, kind: StageKind, *, context: int = 0, new: int = 0, output: int = 0) -> StageSpec:
        """An LLM stage; a decode with an ITL has it as latency SLA over all of its tokens."""
        return StageSpec(
            id=name,
            type=kind,
            model=self.card.name,
            tokens=TokenWork(context=context, new=new, output=output, batch=self.batch),
            compute=ComputeDemand(precision=self.precision),
            parallelism=self.parallelism,
            latency_sla=self.itl * output if self.itl is not None and kind is StageKind.DECODE else None,
        )

    def kv(self, source: str, target: str, tokens: int) -> EdgeSpec:
        """The edge that hands over the KV cache of so many tokens of every sequence."""
        size = round(self.card.kv_bytes_per_token() * tokens * self.batch)
        return EdgeSpec(source=source, target=target, bytes=size, kv=True)


@dataclass(frozen=True)
class GrowthTemplate:
    """One round of an agent: these tools in parallel, then this retrieval, then the model again.

    ``embedding`` and ``rerank`` are the cards of the retrieval's models.
    """

    llm: LlmStages
    tools: tuple[ToolSpec, ...]
    retrieval: RetrievalSpec | None = None
    embedding: LlmCard | None = None
    rerank: LlmCard | None = None


def text_bytes(tokens: int, batch: int) -> int:
    """Bytes of so many tokens of every sequence, as text or ids."""
    return TEXT_BYTES * tokens * batch


def expand(
    spec: GraphSpec,
    decode_id: str,
    template: GrowthTemplate,
    number: int,
    *,
    emitted: int,
    output_tokens: int,
    tools: Iterable[str] | None = None,
) -> GraphSpec:
    """A graph with one more round after a decode; what followed the decode follows the new one.

    Parameters
    ----------
    decode_id
        The decode that asked: its tokens become ``context`` and ``emitted``, since it ended there.
    number
        Of the round, part of the new ids: ``tool-1-search``, ``re_prefill-1``, ``decode-1``.
    emitted
        Tokens that the decode emitted, the call included.
    output_tokens
        Tokens of the new decode.
    tools
        Names of the tools called, one as often as it was; all of the template by default.

    Raises
    ------
    InputError
        Where the decode or a tool is unknown, the decode has handed its KV cache on already, or the round would
        bring nothing to prefill.
    """
    decode = next((s for s in spec.stages if s.id == decode_id and s.type is StageKind.DECODE), None)
    if decode is None or decode.tokens is None:
        raise InputError(f"{decode_id}: expected a decode of graph {spec.name} with tokens")
    if any(edge.kv and edge.source == decode_id for edge in spec.edges):
        raise InputError(f"{decode_id}: another stage continues its KV cache already")
    called = _called(template, tools)
    llm, held = template.llm, decode.tokens.context + decode.tokens.new + emitted
    stages, edges = _round(decode_id, template, called, number, emitted)
    new = sum(t.result_tokens for t in called) + (template.retrieval.result_tokens if template.retrieval else 0)
    if new == 0:
        raise InputError(f"round {number} after {decode_id} brings no tokens to prefill: expected results of a tool")
    again, following = f"re_prefill-{number}", f"decode-{number}"
    stages += [
        llm.stage(again, StageKind.RE_PREFILL, context=held, new=new),
        llm.stage(following, StageKind.DECODE, context=held + new, output=output_tokens),
    ]
    edges += [llm.kv(decode_id, again, held), llm.kv(again, following, held + new)]
    ended = decode.model_copy(
        update={
            "tokens": decode.tokens.model_copy(update={"output": emitted}),
            "latency_sla": llm.itl * emitted if llm.itl is not None else decode.latency_sla,
        }
    )
    kept = [ended if s.id == decode_id else s for s in spec.stages]
    moved = [_moved(e, decode_id, following, text_bytes(output_tokens, llm.batch)) for e in spec.edges]
    return GraphSpec(name=spec.name, stages=(*kept, *stages), edges=(*moved, *edges), affinity=spec.affinity)


def tool_stage_ids(number: int, names: Iterable[str]) -> tuple[str, ...]:
    """Ids of the tool stages of a round: ``tool-1-search``, and ``tool-1-search-2`` where it is called again."""
    ids: list[str] = []
    for name in names:
        again, own = 1, f"tool-{number}-{name}"
        while own in ids:
            again += 1
            own = f"tool-{number}-{name}-{again}"
        ids.append(own)
    return tuple(ids)


def _called(template: GrowthTemplate, names: Iterable[str] | None) -> tuple[ToolSpec, ...]:
    if names is None:
        return template.tools
    by_name = {tool.name: tool for tool in template.tools}
    wanted = list(names)
    unknown = [name for name in wanted if name not in by_name]
    if unknown:
        raise InputError(f"tool {unknown[0]}: expected one of {', '.join(by_name) or 'no tools'}")
    return tuple(by_name[name] for name in wanted)


def _moved(edge: EdgeSpec, decode_id: str, following: str, size: int) -> EdgeSpec:
    """An edge that left the decode leaves the new one, with that one's text."""
    if edge.source != decode_id:
        return edge
    return edge.model_copy(update={"source": following, "bytes": size if edge.bytes else 0})


def _round(
    decode_id: str, template: GrowthTemplate, called: tuple[ToolSpec, ...], number: int, emitted: int
) -> tuple[list[StageSpec], list[EdgeSpec]]:
    """Tools and retrieval between a decode and its re-prefill, with the edges that enter and link them."""
    batch, again = template.llm.batch, f"re_prefill-{number}"
    stages: list[StageSpec] = []
    edges: list[EdgeSpec] = []

    def link(source: str, target: str, size: int) -> None:
        edges.append(EdgeSpec(source=source, target=target, bytes=size))

    sources = [(decode_id, text_bytes(emitted, batch))]
    if called:
        ids = tool_stage_ids(number, (tool.name for tool in called))
        sources = [(name, text_bytes(tool.result_tokens, batch)) for name, tool in zip(ids, called, strict=True)]
        for tool, (name, result) in zip(called, sources, strict=True):
            stages.append(_tool(name, tool))
            link(decode_id, name, text_bytes(emitted, batch))
            link(name, again, result)
    retrieval = template.retrieval
    if retrieval is None:
        return stages, edges
    query = sum(tool.result_tokens for tool in called) if called else emitted
    for stage, size in _retrieval(template, retrieval, number, query):
        for source, bytes_in in sources:
            link(source, stage.id, bytes_in)
        stages.append(stage)
        sources = [(stage.id, size)]
    link(sources[0][0], again, sources[0][1])
    return stages, edges


def _tool(name: str, tool: ToolSpec) -> StageSpec:
    return StageSpec(
        id=name,
        type=StageKind.TOOL,
        compute=ComputeDemand(flops=tool.flops),
        memory=MemoryDemand(vram=tool.memory),
        io=IoDemand(bytes=tool.io),
        fixed_time=tool.latency,
    )


def _retrieval(template: GrowthTemplate, spec: RetrievalSpec, number: int, query: int) -> list[tuple[StageSpec, int]]:
    """The stages of a retrieval in order, each with the bytes that it hands on.

    The query is what reached it, cut to what the embedding model takes; a reranker reads query and
    results in as many sequences as its context demands.
    """
    batch, results = template.llm.batch, text_bytes(spec.result_tokens, template.llm.batch)
    chain: list[tuple[StageSpec, int]] = []
    if template.embedding is not None:
        card = template.embedding
        tokens = TokenWork(new=min(max(1, query), card.max_context), batch=batch)
        stage = StageSpec(id=f"embedding-{number}", type=StageKind.EMBEDDING, model=card.name, tokens=tokens)
        chain.append((stage, 4 * card.hidden_size * batch))
    memory, io = MemoryDemand(vram=spec.memory), IoDemand(bytes=spec.io)
    chain.append((StageSpec(id=f"retrieval-{number}", type=StageKind.RETRIEVAL, memory=memory, io=io), results))
    if template.rerank is not None:
        card, total = template.rerank, max(1, query + spec.result_tokens)
        sequences = -(-total // card.max_context)
        tokens = TokenWork(new=-(-total // sequences), batch=sequences * batch)
        stage = StageSpec(id=f"rerank-{number}", type=StageKind.RERANK, model=card.name, tokens=tokens)
        chain.append((stage, results))
    return chain
