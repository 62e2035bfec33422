"""Requests that give their graph whole."""

from __future__ import annotations

from typing import Any

from iegopt.control.messages import Answer, Stream

from .hand import Hand

MODEL = "Llama-2-7B"


def stage(name: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"id": name, "type": kind, **fields}


def edge(source: str, target: str, **fields: Any) -> dict[str, Any]:
    return {"from": source, "to": target, **fields}


def llm(name: str, kind: str, context: int = 0, new: int = 0, output: int = 0) -> dict[str, Any]:
    return stage(name, kind, model=MODEL, tokens={"context": context, "new": new, "output": output})


def graph(stages: list[dict[str, Any]], edges: list[dict[str, Any]]) -> dict[str, Any]:
    return {"graph": {"name": "own", "stages": stages, "edges": edges}}


def begun(request: dict[str, Any], **inputs: Any) -> Hand:
    hand = Hand(places={"prefill": "gpu-a", "decode": "gpu-b", "kv_migrate": "gpu-b"})
    hand.workers()
    hand.submit("r", request, **inputs)
    return hand


def test_a_text_is_found_behind_many_routers_that_split_and_join() -> None:
    """Each split doubles the ways back to the decode: all of them together would take for ever."""
    stages, edges, last = [llm("decode", "decode", context=3, output=4)], [], "decode"
    for n in range(40):
        left, right, joined = f"left-{n}", f"right-{n}", f"joined-{n}"
        stages += [stage(name, "router") for name in (left, right, joined)]
        edges += [edge(last, left), edge(last, right), edge(left, joined), edge(right, joined)]
        last = joined
    limits = {"dag_constraints": {"max_depth": 100, "max_nodes": 200}}
    hand = begun(graph(stages, edges) | limits, tokens=[7, 8, 9])
    hand.until(*(spec["id"] for spec in stages))
    assert hand.start_of(last).work["text"] == "jk"
    assert hand.answer()["status"] == "complete"


def test_a_prefill_without_a_tokenizer_takes_the_tokens_handed_in() -> None:
    stages = [llm("prefill", "prefill", new=3), llm("decode", "decode", context=3, output=4)]
    hand = begun(graph(stages, [edge("prefill", "decode", kv=True, bytes="1MB")]), tokens=[7, 8, 9])
    assert hand.start_of("prefill").work["tokens"] == [7, 8, 9]
    hand.until("prefill", "decode")
    assert hand.answer()["status"] == "complete"
    assert hand.answer()["text"] == "ijk"  # there is no output stage: the decode's own


def test_the_first_token_reaches_the_decode_through_a_migration_of_the_kv() -> None:
    stages = [
        llm("prefill", "prefill", new=3),
        llm("move", "kv_migrate", context=3),
        llm("decode", "decode", context=3, output=4),
    ]
    edges = [edge("prefill", "move", kv=True, bytes="1MB"), edge("move", "decode", kv=True, bytes="1MB")]
    hand = begun(graph(stages, edges), tokens=[7, 8, 9])
    hand.until("prefill")
    assert hand.of(Stream) == [Stream("r", "decode", 0, (9,), "i")]
    work = hand.start_of("move").work
    assert (work["tier"], work["kv"]["from"], work["kv"]["id"]) == ("L0", "r/prefill", "r/move")
    hand.accept("move")
    hand.finish("move", kv={"id": "r/move", "tokens": 3, "bytes": 9, "copies": [], "pushed": False})
    decode = hand.start_of("decode").work
    assert decode["tokens"] == [7, 8, 9, 9]
    assert (decode["kv"]["from"], decode["generated"]) == ("r/move", 1)
    hand.until("decode")
    assert isinstance(hand.commands[-1], Answer) or hand.answer()["status"] == "complete"


def test_two_decodes_may_continue_one_prefill() -> None:
    stages = [
        llm("prefill", "prefill", new=3),
        llm("left", "decode", context=3, output=4),
        llm("right", "decode", context=3, output=4),
    ]
    edges = [edge("prefill", name, kv=True, bytes="1MB") for name in ("left", "right")]
    hand = begun(graph(stages, edges), tokens=[7, 8, 9])
    hand.until("prefill")
    assert {c.stage for c in hand.of(Stream)} == {"left", "right"}
    hand.until("left", "right")
    assert hand.answer()["tokens"] == [9, 10, 11, 9, 10, 11]


def test_a_search_needs_no_prompt_of_tokens() -> None:
    stages = [stage("embed", "embedding"), stage("find", "retrieval"), stage("rank", "rerank")]
    hand = begun(graph(stages, [edge("embed", "find"), edge("find", "rank")]), text="bridges")
    assert hand.start_of("embed").work["texts"] == ["bridges"]
    hand.until("embed")
    assert hand.start_of("find").work["query"] == "bridges"
    hand.until("find", "rank")
    assert hand.answer()["status"] == "complete"


def test_a_tool_of_a_given_graph_gets_the_arguments_handed_in_and_its_result_is_prefilled() -> None:
    stages = [
        stage("tokenize", "tokenize"), stage("weather", "tool"), llm("prefill", "prefill", new=3),
        llm("decode", "decode", context=3, output=4), stage("route", "router"), stage("output", "output"),
    ]  # fmt: skip
    edges = [
        edge("tokenize", "prefill"), edge("weather", "prefill"), edge("prefill", "decode", kv=True, bytes="1MB"),
        edge("decode", "route"), edge("route", "output"),
    ]  # fmt: skip
    hand = begun(graph(stages, edges), text="how is it", arguments={"city": "Ulm"})
    assert hand.start_of("tokenize").work["model"] == MODEL
    assert hand.start_of("weather").work["arguments"] == {"city": "Ulm"}
    hand.until("tokenize", "weather")
    work = hand.start_of("prefill").work
    assert work["append"] == [{"role": "tool", "name": "weather", "content": "sunny"}]
    hand.accept("prefill")
    hand.finish("prefill", appended=[50])
    assert hand.start_of("decode").work["tokens"] == [1, 2, 3, 4, 50, 9]
    hand.until("decode")
    assert hand.start_of("route").work == {"text": "ijk", "calls": [], "context": None}
    hand.until("route")
    assert hand.start_of("output").work["text"] == "ijk"
    hand.until("output")
    assert hand.answer()["usage"]["tool_calls"] == 1
    decisions = {name: found["decision"] for name, found in hand.answer()["stages"].items() if found["decision"]}
    assert decisions == {"route": "finish"}


def test_a_prompt_and_what_a_tool_adds_to_it_are_one_prefill_and_what_is_added_later_another() -> None:
    stages = [
        stage("tokenize", "tokenize"), stage("weather", "tool"), llm("prefill", "prefill", new=3),
        llm("again", "re_prefill", context=3, new=2), llm("decode", "decode", context=5, output=4),
    ]  # fmt: skip
    edges = [
        edge("tokenize", "prefill"), edge("weather", "prefill"), edge("prefill", "again", kv=True, bytes="1MB"),
        edge("again", "decode", kv=True, bytes="1MB"),
    ]  # fmt: skip
    hand = begun(graph(stages, edges), text="how is it")
    hand.until("tokenize", "weather")
    hand.accept("prefill")
    hand.finish("prefill", appended=[50])
    assert hand.start_of("again").work["segments"] == [["prefill", 5]]
    hand.accept("again")
    hand.finish("again", appended=[60, 61])
    assert hand.start_of("decode").work["segments"][:2] == [["prefill", 5], ["prefill", 2]]
