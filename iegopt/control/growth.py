"""How the graph of a running request grows and is counted anew (section 5.3 of the source; ``iegopt.graph.templates``).

A running request's graph holds what is decided: rounds planned ahead are only in the graph that the planner gets. Since
a round is called the same in both, a plan that looked ahead has places for the stages of the round that follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Many
from dataclasses import dataclass
from typing import Any

from iegopt.control.request_run import Ending, RequestRun
from iegopt.control.results import Call
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State
from iegopt.errors import InputError, LimitError
from iegopt.graph.builder import Graph, build_graph
from iegopt.graph.limits import Cards, check_limits, token_use
from iegopt.graph.templates import TOOL_CALL_TOKENS, GrowthTemplate, expand, tool_stage_ids
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import StageKind

__all__ = ["RETRIEVAL", "Growth", "ahead", "grow", "initial_graph", "prompt_tokens", "recounted", "template_of"]

RETRIEVAL = "retrieval"
"""What a model calls where it wants the retrieval of its agent and no tool."""


@dataclass(frozen=True)
class Growth:
    """A graph with one more round, and what each of its stages is asked."""

    graph: GraphSpec
    calls: dict[str, Call]


def initial_graph(request: RequestSpec, cards: Cards, tokens: int | None = None) -> Graph:
    """The graph of a request without rounds ahead.

    Parameters
    ----------
    tokens
        Of the prompt, where they have been counted.

    Raises
    ------
    InputError, LimitError
        As ``build_graph``.
    """
    if tokens is not None and request.graph is None:
        request = request.model_copy(update={"prompt": None, "prompt_tokens": tokens})
    agent = request.agent.model_copy(update={"lookahead": 0}) if request.agent is not None else None
    card = cards(request.model) if request.model is not None else None
    return build_graph(request, card, agent=agent, cards=cards)


def template_of(request: RequestSpec, inputs: Mapping[str, Any], cards: Cards) -> GrowthTemplate | None:
    """How the graph of a submission may grow, as it was when it was submitted."""
    return next(iter(initial_graph(request, cards, prompt_tokens(inputs)).growth), None)


def prompt_tokens(inputs: Mapping[str, Any]) -> int | None:
    """The tokens of the prompt, where they are handed in."""
    tokens = inputs.get("tokens")
    return len(tokens) if tokens is not None else None


def grow(run: RequestRun, decode: StageRun, calls: Many[Call], cards: Cards) -> Growth | Ending:
    """One more round after a decode that called tools, or why there is none."""
    template, agent = run.template, run.request.agent
    assert template is not None
    assert agent is not None
    if run.rounds >= agent.max_rounds:
        return Ending("partial", f"the model asks for round {run.rounds + 1}, allowed {agent.max_rounds}", "max_rounds")
    known = [tool.name for tool in template.tools]
    offered = [*known, RETRIEVAL] if template.retrieval is not None else known
    unknown = next((call.name for call in calls if call.name not in offered), None)
    if unknown is not None:
        return Ending("partial", f"the model called {unknown}: expected one of {', '.join(offered)}", None)
    number, tools = run.rounds + 1, [call for call in calls if call.name in known]
    try:
        graph = _expanded(run, decode, template, number, [call.name for call in tools], cards)
    except LimitError as error:
        return Ending("partial", f"round {number} is not begun: {error}", error.limit)
    except InputError as error:
        return Ending("partial", f"round {number} is not begun: {error}", None)
    asked = dict(zip(tool_stage_ids(number, [call.name for call in tools]), tools, strict=True))
    wanted = next((call for call in calls if call.name == RETRIEVAL and call not in tools), None)
    if wanted is not None:
        asked |= {f"{stage}-{number}": wanted for stage in ("embedding", "retrieval", "rerank")}
    return Growth(graph, asked)


def _expanded(
    run: RequestRun, decode: StageRun, template: GrowthTemplate, number: int, tools: Many[str], cards: Cards
) -> GraphSpec:
    """Within the limits; where ``budget_exhaustion`` is ``truncate``, the new decode gets the tokens that are left."""
    limits, output = run.request.dag_constraints, run.request.output_tokens or 1

    def with_output(tokens: int) -> GraphSpec:
        return expand(
            run.graph, decode.id, template, number, emitted=len(decode.emitted), output_tokens=tokens, tools=tools
        )

    graph = with_output(output)
    try:
        check_limits(graph, limits, cards)
    except LimitError as error:
        if error.limit != "max_token_budget" or limits.termination_policy.budget_exhaustion == "abort":
            raise
        left = limits.max_token_budget - (token_use(graph) - output)
        if left < 1:
            raise
        graph = with_output(left)
        check_limits(graph, limits, cards)
    return graph


def ahead(run: RequestRun, cards: Cards) -> GraphSpec:
    """The graph with the rounds that are planned ahead, as far as the limits allow."""
    graph, agent = run.graph, run.request.agent
    if run.template is None or agent is None or run.request.output_tokens is None:
        return graph
    last = next((s for s in reversed(run.decodes()) if not run.kv_targets(s.id)), None)
    if last is None or last.state is State.COMPLETED:
        return graph
    name, output = last.id, run.request.output_tokens
    for number in range(run.rounds + 1, run.rounds + 1 + min(run.lookahead, agent.max_rounds - run.rounds)):
        emitted = min(output, TOOL_CALL_TOKENS)
        try:
            longer = expand(graph, name, run.template, number, emitted=emitted, output_tokens=output)
            check_limits(longer, run.request.dag_constraints, cards)
        except InputError:  # a limit, or no more context: so far and no further
            return graph
        graph, name = longer, f"decode-{number}"
    return graph


def recounted(run: RequestRun, again: StageRun, new: int) -> GraphSpec:
    """The graph with the tokens that a re-prefill turned out to have, and those that its decodes begin with."""
    spec = next(stage for stage in run.graph.stages if stage.id == again.id)
    if spec.tokens is None or spec.tokens.new == new:
        return run.graph
    held = spec.tokens.context + new
    following = {stage.id for stage in run.kv_targets(again.id) if stage.kind is StageKind.DECODE}
    stages = []
    for stage in run.graph.stages:
        if stage.id == again.id:
            stage = stage.model_copy(update={"tokens": spec.tokens.model_copy(update={"new": new})})
        elif stage.id in following and stage.tokens is not None:
            stage = stage.model_copy(update={"tokens": stage.tokens.model_copy(update={"context": held})})
        stages.append(stage)
    llm = run.template.llm if run.template is not None else None
    edges = tuple(
        llm.kv(edge.source, edge.target, held) if llm is not None and edge.kv and edge.source == again.id else edge
        for edge in run.graph.edges
    )
    return run.graph.model_copy(update={"stages": tuple(stages), "edges": edges})
