"""The initial graph of a request: shapes, tokens, bytes, and the effect of every field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iegopt.errors import InputError, LimitError
from iegopt.graph.builder import Graph, build_graph
from iegopt.spec.graph import EdgeSpec, GraphSpec
from iegopt.spec.llm import LlmCard
from iegopt.spec.request import AgentConfig, RequestSpec
from iegopt.spec.stage import Parallelism, Precision, StageKind, StageSpec
from tests.cost.cards import encoder, llm

TOOLS = [{"name": "search", "latency": 0.3, "result_tokens": 100}, {"name": "sql", "result_tokens": 50}]
RETRIEVAL = {"embedding_model": "bge", "rerank_model": "bge", "result_tokens": 1000}
KV = llm().kv_bytes_per_token()


def _cards(name: str) -> LlmCard | None:
    return encoder() if name == "bge" else None


def _request(**fields: Any) -> RequestSpec:
    base = {"model": "Llama-2-70B", "prompt_tokens": 1000, "output_tokens": 200}
    return RequestSpec.model_validate({key: v for key, v in (base | fields).items() if v is not None})


def _build(**fields: Any) -> Graph:
    return build_graph(_request(**fields), llm(), cards=_cards)


def _agent(**fields: Any) -> dict[str, Any]:
    return {"tools": TOOLS, "lookahead": 1, **fields}


def _stage(graph: Graph, name: str) -> StageSpec:
    return next(s for s in graph.spec.stages if s.id == name)


def _edges(graph: Graph) -> dict[tuple[str, str], EdgeSpec]:
    return {(e.source, e.target): e for e in graph.spec.edges}


def _tokens(graph: Graph, name: str) -> tuple[int, int, int, int]:
    tokens = _stage(graph, name).tokens
    assert tokens is not None
    return tokens.context, tokens.new, tokens.output, tokens.batch


def test_chat_is_a_chain() -> None:
    graph = _build(batch=2)
    assert [s.id for s in graph.spec.stages] == ["tokenize", "prefill", "decode", "output"]
    assert _tokens(graph, "prefill") == (0, 1000, 0, 2)
    assert _tokens(graph, "decode") == (1000, 0, 200, 2)
    edges = _edges(graph)
    assert list(edges) == [("tokenize", "prefill"), ("prefill", "decode"), ("decode", "output")]
    assert [e.bytes for e in edges.values()] == [4 * 1000 * 2, round(KV * 1000 * 2), 4 * 200 * 2]
    assert [e.kv for e in edges.values()] == [False, True, False]
    assert graph.growth == ()


def test_kv_of_the_source_and_of_the_real_card() -> None:
    for heads, size in ((64, 10.7e9), (8, 1.34e9)):
        spec = build_graph(_request(prompt_tokens=4096), llm(kv_heads=heads)).spec
        assert next(e for e in spec.edges if e.kv).bytes == pytest.approx(size, rel=0.01)


def test_prompt_text_is_counted_or_estimated() -> None:
    estimated = _build(prompt_tokens=None, prompt="x" * 400)
    assert (estimated.token_estimate, _tokens(estimated, "prefill")[1]) == (True, 100)
    request = _request(prompt_tokens=None, prompt="x" * 400)
    counted = build_graph(request, llm(), tokenizer=len)
    assert (counted.token_estimate, _tokens(counted, "prefill")[1]) == (False, 400)
    assert not _build().token_estimate


def test_itl_becomes_the_latency_sla_of_every_decode() -> None:
    graph = _build(sla={"itl": 0.02, "ttft": 0.2}, agent=_agent())
    assert _stage(graph, "decode").latency_sla == pytest.approx(0.02 * 128)
    assert _stage(graph, "decode-1").latency_sla == pytest.approx(0.02 * 200)
    assert _stage(graph, "prefill").latency_sla is None
    assert _stage(_build(), "decode").latency_sla is None


def test_parallelism_and_precision_reach_the_llm_stages_alone() -> None:
    gang = Parallelism(degree=4)
    graph = _build(parallelism=gang, precision="fp8", agent=_agent())
    for stage in graph.spec.stages:
        of_llm = stage.type in (StageKind.PREFILL, StageKind.DECODE, StageKind.RE_PREFILL)
        assert stage.parallelism == (gang if of_llm else None)
        assert stage.compute.precision == (Precision.FP8 if of_llm else None)


def test_one_round_of_an_agent() -> None:
    graph = _build(agent=_agent(), batch=2)
    assert [s.id for s in graph.spec.stages] == [
        "tokenize", "prefill", "decode", "agent_decision", "output", "tool-1-search", "tool-1-sql", "re_prefill-1",
        "decode-1",
    ]  # fmt: skip
    assert _tokens(graph, "decode") == (1000, 0, 128, 2)
    assert _tokens(graph, "re_prefill-1") == (1128, 150, 0, 2)
    assert _tokens(graph, "decode-1") == (1278, 0, 200, 2)
    sizes = {ends: (e.bytes, e.kv) for ends, e in _edges(graph).items()}
    assert sizes == {
        ("tokenize", "prefill"): (8000, False),
        ("prefill", "decode"): (round(KV * 1000 * 2), True),
        ("decode", "tool-1-search"): (4 * 128 * 2, False),
        ("decode", "tool-1-sql"): (4 * 128 * 2, False),
        ("tool-1-search", "re_prefill-1"): (4 * 100 * 2, False),
        ("tool-1-sql", "re_prefill-1"): (4 * 50 * 2, False),
        ("decode", "re_prefill-1"): (round(KV * 1128 * 2), True),
        ("re_prefill-1", "decode-1"): (round(KV * 1278 * 2), True),
        ("decode-1", "agent_decision"): (4 * 200 * 2, False),
        ("agent_decision", "output"): (4 * 200 * 2, False),
    }


def test_tool_fields_become_its_demand() -> None:
    tool = {"name": "t", "latency": 0.25, "flops": 5e9, "memory": 7, "io": 9}
    stage = _stage(_build(agent=_agent(tools=[tool])), "tool-1-t")
    assert (stage.fixed_time, stage.compute.flops, stage.memory.vram) == (0.25, 5e9, 7)
    assert stage.io is not None
    assert stage.io.bytes == 9


def test_retrieval_follows_the_tools() -> None:
    graph = _build(agent=_agent(retrieval=RETRIEVAL))
    assert _tokens(graph, "embedding-1") == (0, 150, 0, 1)
    # 1150 tokens in three sequences of at most 512.
    assert _tokens(graph, "rerank-1") == (0, 384, 0, 3)
    assert _tokens(graph, "re_prefill-1") == (1128, 1150, 0, 1)
    edges = _edges(graph)
    assert edges["tool-1-search", "embedding-1"].bytes == 4 * 100
    assert edges["embedding-1", "retrieval-1"].bytes == 4 * 1024
    assert edges["retrieval-1", "rerank-1"].bytes == edges["rerank-1", "re_prefill-1"].bytes == 4 * 1000
    assert ("retrieval-1", "re_prefill-1") not in edges
    retrieval = _stage(graph, "retrieval-1")
    assert retrieval.memory.vram == 10**9
    assert retrieval.io is not None
    assert retrieval.io.bytes == 5 * 10**7


def test_retrieval_without_tools_or_models_hangs_on_the_decode() -> None:
    edges = _edges(_build(agent={"retrieval": {"result_tokens": 10}}))
    assert edges["decode", "retrieval-1"].bytes == 4 * 128
    assert edges["retrieval-1", "re_prefill-1"].bytes == 40


def test_long_query_is_cut_to_the_embedding_model() -> None:
    tools = [{"name": "t", "result_tokens": 1500}]
    assert _tokens(_build(agent=_agent(tools=tools, retrieval=RETRIEVAL)), "embedding-1")[1] == 512


def test_lookahead_rounds_reuse_the_cache_and_prefill_increments_only() -> None:
    graph = _build(agent=_agent(lookahead=2, tools=TOOLS[:1]))
    assert _tokens(graph, "decode-1") == (1228, 0, 128, 1)
    assert _tokens(graph, "re_prefill-2") == (1356, 100, 0, 1)
    assert _tokens(graph, "decode-2") == (1456, 0, 200, 1)
    edges = _edges(graph)
    assert edges["decode-1", "re_prefill-2"].kv
    assert ("decode-2", "agent_decision") in edges
    assert ("decode-1", "agent_decision") not in edges


def test_short_outputs_cap_the_call_too() -> None:
    assert _tokens(_build(agent=_agent(), output_tokens=16), "decode") == (1000, 0, 16, 1)


def test_lookahead_zero_decides_and_keeps_the_template() -> None:
    graph = _build(agent=_agent(lookahead=0))
    assert [s.id for s in graph.spec.stages] == ["tokenize", "prefill", "decode", "agent_decision", "output"]
    assert [t.name for t in graph.growth[0].tools] == ["search", "sql"]


def test_agent_without_tools_only_decides() -> None:
    graph = _build(agent={})
    assert [s.id for s in graph.spec.stages][-2:] == ["agent_decision", "output"]
    assert graph.growth == ()


def test_agent_argument_wins_over_the_requests_own() -> None:
    graph = build_graph(_request(agent=_agent()), llm(), AgentConfig(lookahead=0))
    assert len(graph.spec.stages) == 5


def test_the_default_limits_hold_one_whole_round() -> None:
    graph = _build(agent=_agent(retrieval=RETRIEVAL))
    assert len(graph.spec.stages) == 12


def test_limits_are_checked_at_build() -> None:
    with pytest.raises(LimitError, match="max_agent_rounds"):
        _build(agent=_agent(lookahead=2, tools=TOOLS[:1]), dag_constraints={"max_agent_rounds": 1})


def test_a_given_graph_is_taken_as_it_is() -> None:
    spec = GraphSpec(stages=(StageSpec(id="a", type=StageKind.TOOL),))
    graph = build_graph(RequestSpec(graph=spec), None)
    assert graph == Graph(spec, (), token_estimate=False)
    two = spec.model_copy(update={"stages": (*spec.stages, StageSpec(id="b", type=StageKind.TOOL))})
    limited = RequestSpec.model_validate({"graph": two, "dag_constraints": {"max_nodes": 1}})
    with pytest.raises(LimitError, match="max_nodes"):
        build_graph(limited, None)


def test_models_without_cards_are_refused() -> None:
    with pytest.raises(InputError, match="request request: no card of model Llama-2-70B"):
        build_graph(_request(), None)
    with pytest.raises(InputError, match="no card of model bge"):
        build_graph(_request(agent=_agent(retrieval=RETRIEVAL)), llm())


def test_growth_template_is_data() -> None:
    graph = _build(agent=_agent(retrieval=RETRIEVAL), batch=3)
    template = graph.growth[0]
    assert (template.llm.batch, template.embedding, template.rerank) == (3, encoder(), encoder())
    assert replace(template, tools=()).tools == ()


@pytest.mark.parametrize("count", [0, -5, 3.7, "7", None])
def test_a_tokenizer_that_counts_no_tokens_is_named(count: Any) -> None:
    request = RequestSpec(model="Llama-2-70B", prompt="hello", output_tokens=10)
    with pytest.raises(InputError, match=f"the tokenizer counts {count!r} tokens in the prompt"):
        build_graph(request, llm(), tokenizer=lambda text: count)
