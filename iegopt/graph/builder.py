"""The graph builder (section 6.1 of the source): a request becomes its initial graph.

::

    tokenize ─▶ prefill ══▶ decode [ ─▶ agent_decision ] ─▶ output

An agent's ``lookahead`` rounds are unrolled between decode and decision by its growth template; more are added
only when a decode asks for them. Stages bear model and tokens, so that their demand follows for each variant;
edges bear their bytes.

``output_tokens`` is the most tokens of the answer, so the last decode has all of them, and a decode that calls tools
emits a call of ``TOOL_CALL_TOKENS``. One decision stands before the output, where it is asked whether another round
follows; the rounds that are unrolled are taken as decided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from iegopt.errors import InputError, LimitError
from iegopt.graph.limits import Cards, check_limits
from iegopt.graph.templates import TOOL_CALL_TOKENS, GrowthTemplate, LlmStages, expand, text_bytes
from iegopt.graph.tokens import estimate_tokens
from iegopt.spec.graph import EdgeSpec, GraphSpec
from iegopt.spec.llm import LlmCard
from iegopt.spec.request import AgentConfig, RequestSpec
from iegopt.spec.stage import StageKind, StageSpec

__all__ = ["Graph", "build_graph", "growth_template"]


@dataclass(frozen=True)
class Graph:
    """A request's graph as it stands, and how it may grow.

    ``token_estimate`` says that no tokenizer counted the prompt (``iegopt.graph.tokens``).
    """

    spec: GraphSpec
    growth: tuple[GrowthTemplate, ...]
    token_estimate: bool


def build_graph(
    request: RequestSpec,
    card: LlmCard | None,
    agent: AgentConfig | None = None,
    tokenizer: Callable[[str], int] | None = None,
    cards: Cards | None = None,
) -> Graph:
    """The initial graph of a request, within its ``dag_constraints``; a graph given in the request is taken as it is.

    Parameters
    ----------
    card
        Of ``request.model``; ``None`` where the request gives a graph.
    agent
        In place of ``request.agent``.
    tokenizer
        Counts the tokens of a prompt given as text; ``estimate_tokens`` without one.
    cards
        Finds the cards of further models: of the retrieval, and of a given graph's stages.

    Raises
    ------
    InputError
        A model without a card, or a prompt longer than its context.
    LimitError
        The graph exceeds a limit. Where ``budget_exhaustion`` is ``truncate``, rounds planned ahead are given up first.
    """
    find = _finder(card, cards)
    if request.graph is not None:
        check_limits(request.graph, request.dag_constraints, find)
        return Graph(request.graph, (), token_estimate=False)
    if card is None:
        raise InputError(f"request {request.id}: no card of model {request.model}")
    config = agent if agent is not None else request.agent
    prompt, estimated = _prompt_tokens(request, tokenizer)
    llm = LlmStages(card, request.batch, request.precision, request.parallelism, request.sla.itl)
    template = growth_template(config, llm, find) if config is not None else None
    assert request.output_tokens is not None
    initial = _initial(request.id, llm, prompt, request.output_tokens, decides=config is not None)
    rounds = config.lookahead if config is not None and template is not None else 0
    while True:
        spec = _unrolled(initial, template, rounds, request.output_tokens) if template is not None else initial
        try:
            check_limits(spec, request.dag_constraints, find)
            break
        except LimitError:
            if rounds == 0 or request.dag_constraints.termination_policy.budget_exhaustion == "abort":
                raise
            rounds -= 1  # truncate: plan as many rounds ahead as the limits allow
    return Graph(spec, (template,) if template is not None else (), estimated)


def growth_template(config: AgentConfig, llm: LlmStages, cards: Cards) -> GrowthTemplate | None:
    """The round of an agent, ``None`` where it has neither tools nor a retrieval.

    Raises
    ------
    InputError
        Where a model of the retrieval has no card.
    """
    retrieval = config.retrieval
    if retrieval is None:
        return GrowthTemplate(llm, config.tools) if config.tools else None
    embedding, rerank = (
        _card(cards, name) if name is not None else None for name in (retrieval.embedding_model, retrieval.rerank_model)
    )
    return GrowthTemplate(llm, config.tools, retrieval, embedding, rerank)


def _initial(name: str, llm: LlmStages, prompt: int, output: int, decides: bool) -> GraphSpec:
    stages = [
        StageSpec(id="tokenize", type=StageKind.TOKENIZE),
        llm.stage("prefill", StageKind.PREFILL, new=prompt),
        llm.stage("decode", StageKind.DECODE, context=prompt, output=output),
    ]
    edges = [
        EdgeSpec(source="tokenize", target="prefill", bytes=text_bytes(prompt, llm.batch)),
        llm.kv("prefill", "decode", prompt),
    ]
    tail = ["agent_decision", "output"] if decides else ["output"]
    for source, target in zip(["decode", *tail], tail, strict=False):
        stages.append(StageSpec(id=target, type=StageKind(target)))
        edges.append(EdgeSpec(source=source, target=target, bytes=text_bytes(output, llm.batch)))
    return GraphSpec(name=name, stages=tuple(stages), edges=tuple(edges))


def _unrolled(spec: GraphSpec, template: GrowthTemplate, lookahead: int, output: int) -> GraphSpec:
    """``lookahead`` rounds; every decode but the last emits a call."""
    call, decode = min(output, TOOL_CALL_TOKENS), "decode"
    for number in range(1, lookahead + 1):
        spec = expand(spec, decode, template, number, emitted=call, output_tokens=output)
        decode = f"decode-{number}"
    return spec


def _prompt_tokens(request: RequestSpec, tokenizer: Callable[[str], int] | None) -> tuple[int, bool]:
    """Tokens of the prompt, and whether they are an estimate."""
    if request.prompt_tokens is not None:
        return request.prompt_tokens, False
    assert request.prompt is not None
    if tokenizer is None:
        return estimate_tokens(request.prompt), True
    count = tokenizer(request.prompt)
    if not isinstance(count, int) or count < 1:
        raise InputError(
            f"request {request.id}: the tokenizer counts {count!r} tokens in the prompt: expected 1 or more"
        )
    return count, False


def _finder(card: LlmCard | None, cards: Cards | None) -> Cards:
    """The request's own card by its name, any other through ``cards``."""

    def find(name: str) -> LlmCard | None:
        if card is not None and name == card.name:
            return card
        return cards(name) if cards is not None else None

    return find


def _card(cards: Cards, name: str) -> LlmCard:
    found = cards(name)
    if found is None:
        raise InputError(f"no card of model {name}, which the agent's retrieval names")
    return found
