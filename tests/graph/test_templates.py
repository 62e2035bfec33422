"""Growth of a running graph."""

from __future__ import annotations

import pytest

from iegopt.errors import InputError
from iegopt.graph.builder import Graph, build_graph
from iegopt.graph.templates import expand
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import AgentConfig, RequestSpec, ToolSpec
from iegopt.spec.stage import StageSpec
from tests.cost.cards import llm

TOOLS = (ToolSpec(name="search", result_tokens=100), ToolSpec(name="sql", result_tokens=0))


def _graph(lookahead: int = 0) -> Graph:
    request = RequestSpec(model="Llama-2-70B", prompt_tokens=1000, output_tokens=200)
    return build_graph(request, llm(), AgentConfig(tools=TOOLS, lookahead=lookahead))


def _stage(spec: GraphSpec, name: str) -> StageSpec:
    return next(s for s in spec.stages if s.id == name)


def test_growth_equals_unrolling() -> None:
    start = _graph()
    grown = expand(start.spec, "decode", start.growth[0], 1, emitted=128, output_tokens=200)
    assert grown == _graph(lookahead=1).spec


def test_what_was_emitted_is_what_is_held() -> None:
    start = _graph()
    grown = expand(start.spec, "decode", start.growth[0], 1, emitted=37, output_tokens=50, tools=["search"])
    decode, again, following = (_stage(grown, n).tokens for n in ("decode", "re_prefill-1", "decode-1"))
    assert decode is not None
    assert again is not None
    assert following is not None
    assert decode.output == 37
    assert (again.context, again.new) == (1037, 100)
    assert (following.context, following.output) == (1137, 50)
    assert {s.id for s in grown.stages} - {s.id for s in start.spec.stages} == {
        "tool-1-search", "re_prefill-1", "decode-1",
    }  # fmt: skip


def test_what_followed_the_decode_follows_the_new_one() -> None:
    start = _graph()
    grown = expand(start.spec, "decode", start.growth[0], 1, emitted=37, output_tokens=50)
    edge = next(e for e in grown.edges if e.target == "agent_decision")
    assert (edge.source, edge.bytes) == ("decode-1", 200)


def test_the_graph_it_grew_from_is_untouched() -> None:
    start, again = _graph(), _graph()
    expand(start.spec, "decode", start.growth[0], 1, emitted=37, output_tokens=50)
    assert start == again


@pytest.mark.parametrize(
    ("decode", "tools", "message"),
    [
        ("prefill", None, "prefill: expected a decode"),
        ("nobody", None, "nobody: expected a decode"),
        ("decode", ["ftp"], "tool ftp: expected one of search, sql"),
        ("decode", ["sql"], "round 1 after decode brings no tokens"),
    ],
)
def test_impossible_growth_is_refused(decode: str, tools: list[str] | None, message: str) -> None:
    start = _graph()
    with pytest.raises(InputError, match=message):
        expand(start.spec, decode, start.growth[0], 1, emitted=1, output_tokens=1, tools=tools)


def test_a_decode_grows_once() -> None:
    grown = _graph(lookahead=1)
    with pytest.raises(InputError, match="decode: another stage continues its KV cache already"):
        expand(grown.spec, "decode", grown.growth[0], 2, emitted=1, output_tokens=1)
