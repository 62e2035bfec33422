from __future__ import annotations

from typing import Any

import pytest

from iegopt import library
from iegopt.errors import InputError, LimitError
from iegopt.graph.builder import build_graph
from iegopt.graph.limits import check_limits, depth, first_prefill, kv_cache_size, rounds, token_use
from iegopt.spec.graph import GraphSpec
from iegopt.spec.llm import LlmCard
from iegopt.spec.policy import DagConstraints, TerminationPolicy
from iegopt.spec.request import AgentConfig, RequestSpec, ToolSpec
from iegopt.spec.stage import StageKind
from tests.cost.cards import llm

KV = llm().kv_bytes_per_token()


def _cards(name: str) -> LlmCard | None:
    return llm() if name == "Llama-2-70B" else None


def _graph() -> GraphSpec:
    """tokenize → prefill → decode → (a | b) → re → out, the KV from decode to re as well."""
    model = {"model": "Llama-2-70B"}
    return GraphSpec.model_validate(
        {
            "stages": [
                {"id": "tokenize", "type": "tokenize"},
                {"id": "prefill", "type": "prefill", "tokens": {"new": 1000, "batch": 2}, **model},
                {"id": "decode", "type": "decode", "tokens": {"context": 1000, "output": 100, "batch": 2}, **model},
                {"id": "a", "type": "tool"},
                {"id": "b", "type": "tool"},
                {"id": "re", "type": "re_prefill", "tokens": {"context": 1100, "new": 50, "batch": 2}, **model},
                {"id": "out", "type": "output"},
                {"id": "log", "type": "tool"},
            ],
            "edges": [
                {"from": "tokenize", "to": "prefill"}, {"from": "prefill", "to": "decode"},
                {"from": "decode", "to": "a"}, {"from": "decode", "to": "b"}, {"from": "a", "to": "re"},
                {"from": "b", "to": "re"}, {"from": "decode", "to": "re"}, {"from": "re", "to": "out"},
                {"from": "out", "to": "log"},
            ],
        }
    )  # fmt: skip


def test_measures() -> None:
    spec = _graph()
    assert first_prefill(spec) == "prefill"
    assert depth(spec) == 5
    assert rounds(spec) == 1
    assert token_use(spec) == 2 * (1000 + 100 + 50)
    assert kv_cache_size(spec, _cards) == round(2 * 1150 * KV)


def test_depth_without_prefill_or_output_is_the_longest_path() -> None:
    spec = GraphSpec.model_validate(
        {"stages": [{"id": i, "type": "tool"} for i in "abc"], "edges": [{"from": "a", "to": "b"}]}
    )
    assert first_prefill(spec) is None
    assert depth(spec) == 2


def test_explicit_kv_cache_size_counts() -> None:
    spec = GraphSpec.model_validate(
        {"stages": [{"id": "p", "type": "prefill", "memory": {"kv_cache_size": 8 * 10**9}}]}
    )
    assert kv_cache_size(spec, _cards) == 8 * 10**9


@pytest.mark.parametrize(
    ("limit", "enough", "used"),
    [
        ("max_depth", 5, "5 stages from first prefill to output"),
        ("max_nodes", 8, "8 stages"),
        ("max_tool_calls", 3, "3 tool calls"),
        ("max_agent_rounds", 1, "1 agent rounds"),
        ("max_token_budget", 2300, "2300 tokens"),
        ("max_kv_cache_size", round(2 * 1150 * KV), "0.753664 GB"),
    ],
)
def test_each_limit_holds_to_the_unit(limit: str, enough: int, used: str) -> None:
    generous: dict[str, Any] = {"max_tool_calls": 9}
    check_limits(_graph(), DagConstraints.model_validate(generous | {limit: enough}), _cards)
    with pytest.raises(LimitError, match=f"{limit}: the graph needs {used}, allowed") as caught:
        check_limits(_graph(), DagConstraints.model_validate(generous | {limit: enough - 1}), _cards)
    assert caught.value.limit == limit


def test_unknown_model_is_refused() -> None:
    with pytest.raises(InputError, match="stage prefill: no card of model Llama-2-70B"):
        kv_cache_size(_graph(), lambda name: None)


def test_a_prompt_longer_than_the_context_is_refused() -> None:
    """4,096 tokens are all that Llama-2 takes, and one more is refused by name."""
    card = library.llm("Llama-2-70B")
    request = RequestSpec(model="Llama-2-70B", prompt_tokens=4096, output_tokens=1)
    assert build_graph(request, card, cards=library.llm).spec.stages
    with pytest.raises(InputError, match="4097 tokens are more than the context of Llama-2-70B, which ends at 4096"):
        build_graph(request.model_copy(update={"prompt_tokens": 4097}), card, cards=library.llm)


def test_truncate_gives_up_rounds_that_the_limits_do_not_allow() -> None:
    """One round makes depth 10 at most; two are planned only where the limit allows them."""
    card = library.llm("Llama-3.1-70B")
    agent = AgentConfig(tools=(ToolSpec(name="search"),), max_rounds=3, lookahead=3)
    request = RequestSpec(model="Llama-3.1-70B", prompt_tokens=1000, output_tokens=100, agent=agent)
    with pytest.raises(LimitError, match="max_depth"):
        build_graph(request, card, cards=library.llm)
    truncate = DagConstraints(termination_policy=TerminationPolicy(budget_exhaustion="truncate"))
    spec = build_graph(request.model_copy(update={"dag_constraints": truncate}), card, cards=library.llm).spec
    planned = sum(stage.type is StageKind.RE_PREFILL for stage in spec.stages)
    assert planned == 2


@pytest.mark.parametrize("kind", ["prefill", "re_prefill", "decode"])
def test_an_encoder_does_not_generate(kind: str) -> None:
    tokens = {"output": 5} if kind == "decode" else {"new": 5}
    stage = {"id": "a", "type": kind, "model": "bge-m3", "tokens": tokens}
    with pytest.raises(InputError, match="stage a: bge-m3 is an encoder"):
        check_limits(GraphSpec.model_validate({"stages": [stage]}), DagConstraints(), library.llm)
    check_limits(
        GraphSpec.model_validate({"stages": [{**stage, "type": "embedding", "tokens": {"new": 5}}]}),
        DagConstraints(),
        library.llm,
    )
