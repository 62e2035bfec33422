"""Graphs that grow while they run, and stop at each of the limits of ``dag_constraints``."""

from __future__ import annotations

from typing import Any

import pytest

from iegopt.control.messages import Answer, MakePlan, Start
from iegopt.control.states import State

from .hand import AGENT, CHAT, Hand, kv

SEARCH = {"name": "search", "arguments": {"q": "weather"}}
CLOCK = {"name": "clock", "arguments": {}}


def agent(**limits: Any) -> dict[str, Any]:
    return AGENT | ({"dag_constraints": limits} if limits else {})


def at_first_call(hand: Hand, request: dict[str, Any], *calls: dict[str, Any]) -> None:
    """An agent whose first decode has called tools."""
    hand.workers()
    hand.submit(request=request)
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.finish("decode", calls=list(calls), stop="call")


def test_a_call_grows_the_graph_without_another_plan() -> None:
    hand = Hand()
    at_first_call(hand, AGENT, SEARCH)
    assert set(hand.run().stages) == {
        "tokenize", "prefill", "decode", "tool-1-search", "re_prefill-1", "decode-1", "agent_decision", "output",
    }  # fmt: skip
    assert sum(isinstance(c, MakePlan) for c in hand.sent) == 1
    assert hand.start_of("tool-1-search").work == {
        "name": "search", "arguments": {"q": "weather"}, "key": "r/tool-1-search", "timeout": 30.0,
    }  # fmt: skip
    hand.until("tool-1-search")
    again = hand.start_of("re_prefill-1").work
    assert again["tokens"] == [1, 2, 3, 4, 9, 10, 11]
    assert again["segments"] == [["prefill", 4], ["decode", 3]]
    assert again["append"] == [{"role": "tool", "name": "search", "content": "sunny"}]
    assert again["kv"]["from"] == "r/decode"
    assert again["kv"]["tokens"] == 6
    hand.until("re_prefill-1")
    following = hand.start_of("decode-1").work
    assert following["tokens"] == [1, 2, 3, 4, 9, 10, 11, 20, 21, 9]
    assert following["segments"] == [["prefill", 4], ["decode", 3], ["prefill", 2], ["decode", 1]]
    hand.until("decode-1", "agent_decision", "output")
    answer = hand.answer()
    assert answer["status"] == "complete"
    assert answer["tokens"] == [9, 10, 11, 9, 10, 11]
    assert answer["decision"] == "finish"
    assert answer["usage"]["rounds"] == 1
    assert answer["usage"]["tokens"] == 4 + 3 + 2 + 3


def test_a_round_beyond_those_planned_ahead_asks_for_a_plan_of_what_is_left() -> None:
    hand = Hand()
    at_first_call(hand, AGENT, SEARCH)
    hand.until("tool-1-search", "re_prefill-1")
    hand.accept("decode-1")
    hand.finish("decode-1", calls=[SEARCH, CLOCK], stop="call")
    (asked,) = hand.of(MakePlan)
    stages = {spec["id"]: spec for spec in asked.graph["stages"]}
    assert {"tool-2-search", "tool-2-clock", "re_prefill-2", "decode-2"} <= set(stages)
    assert not {"tokenize", "prefill", "decode", "decode-1"} & set(stages)
    assert stages["re_prefill-2"]["affinity"] == {"kv_cache_location": "gpu-b"}
    assert {c.stage for c in hand.of(Start)} == {"tool-2-search", "tool-2-clock"}
    assert "sla" not in asked.request  # limits in time are for the first plan
    assert asked.request["dag_constraints"]["max_compute_time"] == "10000h"


def test_a_tool_may_be_called_twice_in_a_round() -> None:
    hand = Hand()
    at_first_call(hand, AGENT, SEARCH, SEARCH | {"arguments": {"q": "news"}})
    starts = {c.stage: c.work["arguments"] for c in hand.of(Start)}
    assert starts == {"tool-1-search": {"q": "weather"}, "tool-1-search-2": {"q": "news"}}
    hand.until("tool-1-search", "tool-1-search-2")
    assert [a["role"] for a in hand.start_of("re_prefill-1").work["append"]] == ["tool", "tool"]


def test_no_call_ends_the_rounds_planned_ahead() -> None:
    hand = Hand()
    hand.workers()
    hand.submit(request=AGENT)
    hand.until("tokenize", "prefill", "decode", "agent_decision", "output")
    assert hand.answer()["status"] == "complete"
    assert "re_prefill-1" not in hand.answer()["stages"]


def test_a_retrieval_looks_for_what_the_tools_returned_and_is_prefilled_after_them() -> None:
    retrieval = {"embedding_model": "bge-m3", "rerank_model": "bge-reranker-v2-m3"}
    request = CHAT | {"agent": {"tools": [{"name": "search"}], "retrieval": retrieval}}
    hand = Hand()
    at_first_call(hand, request, SEARCH)
    hand.until("tool-1-search")
    assert hand.start_of("embedding-1").work["texts"] == ["sunny"]
    hand.until("embedding-1")
    asked = hand.start_of("retrieval-1").work
    assert (asked["query"], asked["vector"], asked["k"]) == ("sunny", [0.1, 0.2], 4)
    hand.until("retrieval-1")
    assert hand.start_of("rerank-1").work["documents"] == [{"id": "d1", "text": "a text", "score": 0.5}]
    hand.until("rerank-1")
    roles = [a["role"] for a in hand.start_of("re_prefill-1").work["append"]]
    assert roles == ["tool", "documents"]


def test_a_model_may_ask_for_the_retrieval_alone() -> None:
    request = CHAT | {"agent": {"tools": [{"name": "search"}], "retrieval": {}}}
    hand = Hand()
    at_first_call(hand, request, {"name": "retrieval", "arguments": {"query": "bridges"}})
    assert [c.stage for c in hand.of(Start)] == ["retrieval-1"]
    assert hand.start_of("retrieval-1").work["query"] == "bridges"


def test_an_unknown_tool_ends_with_what_there_is() -> None:
    hand = Hand()
    at_first_call(hand, AGENT, {"name": "shell", "arguments": {}})
    answer = hand.answer()
    assert (answer["status"], answer["tokens"]) == ("partial", [9, 10, 11])
    assert answer["reason"] == "the model called shell: expected one of search, clock"


@pytest.mark.parametrize(
    ("limits", "limit", "said"),
    [
        ({"max_tool_calls": 1}, "max_tool_calls", "the graph needs 2 tool calls, allowed 1"),
        ({"max_nodes": 8}, "max_nodes", "the graph needs 9 stages, allowed 8"),
        ({"max_depth": 6}, "max_depth", "the graph needs 7 stages from first prefill to output, allowed 6"),
        ({"max_agent_rounds": 0}, "max_agent_rounds", "the graph needs 1 agent rounds, allowed 0"),
        ({"max_token_budget": 100}, "max_token_budget", "the graph needs 527 tokens, allowed 100"),
        ({"max_kv_cache_size": "20MB"}, "max_kv_cache_size", "the graph needs 0.2763 GB, allowed 0.02 GB"),
    ],
)
def test_growth_stops_at_each_limit_with_a_partial_result(limits: dict[str, Any], limit: str, said: str) -> None:
    hand = Hand()
    at_first_call(hand, agent(**limits), SEARCH, CLOCK)
    answer = hand.answer()
    assert (answer["status"], answer["limit"]) == ("partial", limit)
    assert answer["reason"].startswith(f"round 1 is not begun: dag_constraints.{limit}: {said}"), answer["reason"]
    assert answer["tokens"] == [9, 10, 11]
    assert hand.stage("output").withdrawn


def test_an_agent_s_own_rounds_are_limited() -> None:
    request = AGENT | {"agent": AGENT["agent"] | {"max_rounds": 1}}
    hand = Hand()
    at_first_call(hand, request, CLOCK)
    hand.until("tool-1-clock", "re_prefill-1")
    hand.accept("decode-1")
    hand.finish("decode-1", calls=[CLOCK], stop="call")
    answer = hand.answer()
    assert (answer["status"], answer["limit"]) == ("partial", "max_rounds")
    assert answer["reason"] == "the model asks for round 2, allowed 1"


def test_a_budget_that_truncates_gives_the_new_decode_what_is_left() -> None:
    policy = {"budget_exhaustion": "truncate"}
    hand = Hand()
    at_first_call(hand, agent(max_token_budget=4 + 3 + 256 + 5, termination_policy=policy), CLOCK)
    assert hand.run().spec("decode-1").tokens.output == 5  # type: ignore[union-attr]
    hand.until("tool-1-clock", "re_prefill-1")
    assert hand.start_of("decode-1").work["max_tokens"] == 5


def test_results_longer_than_expected_use_the_budget_up() -> None:
    hand = Hand()
    at_first_call(hand, agent(max_token_budget=600), CLOCK)
    hand.until("tool-1-clock")
    hand.accept("re_prefill-1")
    hand.finish("re_prefill-1", appended=[7] * 590)
    assert hand.run().spec("re_prefill-1").tokens.new == 590  # type: ignore[union-attr]
    assert hand.run().spec("decode-1").tokens.context == 597  # type: ignore[union-attr]
    assert hand.start_of("decode-1").work["max_tokens"] == 3
    hand.accept("decode-1")
    hand.finish("decode-1", tokens=[9, 10, 11], stop="length")
    answer = hand.answer()
    assert (answer["status"], answer["limit"]) == ("partial", "max_token_budget")
    assert answer["reason"] == "600 tokens are used, allowed 600"


def test_results_beyond_the_budget_end_the_request_after_their_prefill() -> None:
    hand = Hand()
    at_first_call(hand, agent(max_token_budget=600), CLOCK)
    hand.until("tool-1-clock")
    hand.accept("re_prefill-1")
    hand.finish("re_prefill-1", appended=[7] * 700)
    assert hand.answer()["limit"] == "max_token_budget"
    assert hand.answer()["tokens"] == [9, 10, 11, 9]


def test_what_runs_beside_a_reached_limit_is_finished() -> None:
    """Two tools run; the first fails for good, the second is finished before the answer."""
    hand = Hand()
    at_first_call(hand, AGENT, SEARCH, CLOCK)
    hand.accept("tool-1-search")
    hand.accept("tool-1-clock")
    hand.fail("tool-1-search", "error", transient=False, said="no network")
    assert hand.of(Answer) == []
    hand.finish("tool-1-clock")
    answer = hand.answer()
    assert (answer["status"], answer["reason"]) == ("failed", "stage tool-1-search: error: no network")
    assert answer["stages"]["tool-1-clock"]["state"] == "COMPLETED"
    assert hand.stage("tool-1-search").state is State.TERMINAL


def test_the_kv_of_a_round_is_named_by_its_copies() -> None:
    copy = {"tier": "L2", "addresses": {"file": "kv/r"}}
    hand = Hand(keep_copy="L2")
    hand.workers()
    hand.submit(request=AGENT)
    hand.until("tokenize", "prefill")
    assert hand.start_of("decode").work["keep_copy"] == "L2"
    hand.accept("decode")
    hand.finish("decode", calls=[CLOCK], stop="call", kv=kv("r/decode", 6, (copy,)))
    hand.until("tool-1-clock")
    sources = hand.start_of("re_prefill-1").work["kv"]["sources"]
    assert [(s["worker"], s["tier"], s["tokens"]) for s in sources] == [("gpu-b.lm", "L0", 6), ("gpu-b.lm", "L2", 6)]
