"""Requests on real worker processes: prefill on one, decode on another, tools and documents on a third."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from iegopt.control.messages import Finished
from iegopt.control.policy import ControlPolicy
from iegopt.errors import InputError
from iegopt_runtime.lm.jobs import Embed, Generate, Stop, Vectors
from iegopt_runtime.lm.tokenizers import FolderTokenizer
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.processes import of_run
from tests.runtime.conftest import Client
from tests.runtime.hosted import Hosted, hosted
from tests.runtime.local import local_cluster, tiny_request

pytestmark = pytest.mark.slow

TOOLS = {
    "search": {"python": "tests.runtime.tools_of_tests:echo"},
    "fail": {"python": "tests.runtime.tools_of_tests:fail"},
    "binary": {"python": "tests.runtime.tools_of_tests:binary"},
    "hang": {"python": "tests.runtime.tools_of_tests:hang", "timeout": "300ms"},
    "flood": {"python": "tests.runtime.tools_of_tests:flood", "output": "200B"},
}
DOCUMENTS = [{"text": "Paris is the capital of France."}, {"text": "Lead aprons hang in room 12."}]


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosted]:
    folder = tmp_path_factory.mktemp("runtime")
    tools, documents = folder / "tools.json", folder / "documents.jsonl"
    tools.write_text(json.dumps({"tools": TOOLS}))
    documents.write_text("\n".join(map(json.dumps, DOCUMENTS)))
    patient = ControlPolicy(slow_factor=1e4)  # on a busy machine every stage of the tiny model is slow
    with hosted(local_cluster(), tools=tools, documents=documents, policy=patient) as runtime:
        yield runtime
    assert of_run(runtime.runtime.folder.run) == []
    assert not runtime.runtime.folder.path.exists()


@pytest.fixture(scope="module")
def text(registry: Registry) -> FolderTokenizer:
    return FolderTokenizer.read(registry.find("tiny").folder())


def undisturbed(client: Client, tokens: list[int], output: int) -> list[int]:
    job = Generate("whole", "tiny", tuple(tokens), "fp32", max_tokens=output, stop=Stop())
    return list(client.run(job).tokens)


def test_tokens_are_those_of_one_uninterrupted_run(here: Hosted, client: Client) -> None:
    draw = random.Random(7)
    prompts = [draw.choices(range(256), k=draw.randint(1, 150)) for _ in range(12)]
    moved = 0
    requests = [(tiny_request(f"r{n}", 24), {"tokens": prompt}) for n, prompt in enumerate(prompts)]
    for prompt, answer in zip(prompts, here.answers(requests), strict=True):
        assert answer["status"] == "complete", answer["reason"]
        assert answer["tokens"] == undisturbed(client, prompt, 24)
        assert answer["recoveries"] == []
        moved += [answer["stages"][name]["device"] for name in ("prefill", "decode")] == ["prefiller", "decoder"]
    assert moved >= 6


def test_what_is_streamed_is_what_is_answered(here: Hosted) -> None:
    pieces, answer, story = here.heard(tiny_request(output=20), text="Tell me.")
    assert [token for piece in pieces for token in piece.tokens] == answer["tokens"]
    assert "".join(piece.text for piece in pieces) == answer["text"]
    assert answer["usage"]["generated"] == len(answer["tokens"])
    assert any("plan 1 is in force" in line for line in story)


def calls(tokenizer: FolderTokenizer, /, *names: str, **arguments: Any) -> list[int]:
    """Tokens with which a decode asks for tools."""
    written = "".join(
        f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>" for name in names
    )  # fmt: skip
    return tokenizer.encode(written)


def agent(tools: tuple[str, ...] = ("search",), **more: Any) -> dict[str, Any]:
    return {
        "tools": [{"name": name, "result_tokens": 40} for name in tools], "max_rounds": 3, "lookahead": 1, **more,
    }  # fmt: skip


def scripted(tokenizer: FolderTokenizer, rounds: int, /, *names: str, **arguments: Any) -> dict[str, list[int]]:
    """What forces the decodes of the first rounds to call tools; a stage's first token is chosen by its prefill."""
    script: dict[str, list[int]] = {}
    for number in range(rounds):
        forced = calls(tokenizer, *names, **arguments)
        mark = f"-{number}" if number else ""
        script["re_prefill" + mark if number else "prefill"] = forced[:1]
        script["decode" + mark] = forced
    return script


def byte_tokens(written: str) -> int:
    """Tokens of a text of the tiny model; ``<s>`` and ``<e>`` begin and end a turn."""
    return len(written.replace("<s>", "#").replace("<e>", "#").encode())


@pytest.mark.parametrize("compression", ["none", "int8"])
def test_an_agent_grows_its_graph_and_prefills_increments_only(
    here: Hosted, text: FolderTokenizer, compression: str
) -> None:
    request = tiny_request(
        "agent", 120, agent=agent(retrieval={"result_tokens": 40}),
        dag_constraints={"max_depth": 40, "max_token_budget": 4000},
        kv_transfer_config={"compression": compression, "overlap_compute": True},
    )  # fmt: skip
    asked = f"Where, with {compression}?"  # what was prefilled before is not again
    answer = here.answer(request, text=asked, script=scripted(text, 2, "search", text="capital of France"))
    assert answer["status"] == "complete", answer["reason"]
    stages = answer["stages"]
    assert {"tool-1-search", "tool-2-search", "re_prefill-1", "re_prefill-2", "decode-2"} <= set(stages)
    assert answer["usage"]["rounds"] == 2
    assert answer["usage"]["tool_calls"] == 2
    # Written out as the model's template and tokenizer have it: ChatML, a token for each byte and each mark.
    prompt = byte_tokens(f"<s>user\n{asked}<e>\n<s>assistant\n")
    call = byte_tokens(
        '<tool_call>{"name": "search", "arguments": {"text": "capital of France"}}</tool_call>'
    )  # fmt: skip
    found = f"[1] {DOCUMENTS[0]['text']}\n[2] {DOCUMENTS[1]['text']}"
    added = byte_tokens(
        f"<e>\n<s>tool\ncapital of France<e>\n<s>tool\n{found}<e>\n<s>assistant\n"
    )  # fmt: skip
    # The last token that a decode or a prefill chooses has no KV yet: whoever goes on computes it.
    held = {
        "prefill": (prompt, 0),
        "decode": (1, prompt),
        "re_prefill-1": (1 + added, prompt + call - 1),
        "decode-1": (1, prompt + call + added),
        "re_prefill-2": (1 + added, prompt + 2 * call + added - 1),
        "decode-2": (1, prompt + 2 * call + 2 * added),
    }
    assert {name: (stages[name]["computed"], stages[name]["reused"]) for name in held} == held
    assert (stages["prefill"]["moved"] < prompt * 512) is (compression == "int8")
    assert answer["usage"]["prefilled"] == sum(computed for computed, _ in held.values())
    assert [stages[name]["computed"] for name in ("tokenize", "tool-1-search", "output")] == [None] * 3


@pytest.mark.parametrize(
    ("limits", "rounds", "limit"),
    [
        ({"max_agent_rounds": 1}, 3, "max_agent_rounds"),
        ({"max_tool_calls": 1}, 3, "max_tool_calls"),
        ({"max_nodes": 8}, 3, "max_nodes"),
        ({"max_depth": 6}, 3, "max_depth"),
        ({"max_token_budget": 260}, 3, "max_token_budget"),
        ({"max_kv_cache_size": "70kB"}, 3, "max_kv_cache_size"),
    ],
)
def test_a_limit_ends_a_run_with_what_there_is(
    here: Hosted, text: FolderTokenizer, limits: dict[str, Any], rounds: int, limit: str
) -> None:
    constraints = {"max_depth": 40, "max_token_budget": 4000} | limits
    request = tiny_request("limited", 100, agent=agent(lookahead=0), dag_constraints=constraints)
    answer = here.answer(request, text="Go on.", script=scripted(text, rounds, "search", text="more"))
    assert answer["status"] == "partial", answer
    assert answer["limit"] == limit
    assert answer["reason"]
    assert answer["tokens"]


@pytest.mark.parametrize(
    ("request_of", "inputs", "words"),
    [
        ({"model": "Llama-2-70B"}, {"text": "x"}, "no plan"),
        ({"model": "no-such-model"}, {"text": "x"}, "no-such-model"),
        ({}, {"tokens": [1] * 5000}, "context"),
        ({}, {"tokens": [1, -1]}, "expected a token"),
        ({}, {"tokens": [999]}, "999"),
        ({}, {"messages": [{"role": "king", "content": "x"}]}, "role"),
        ({}, {"messages": [{"role": "user"}]}, "messages.0.content: missing: expected text"),
    ],
)
def test_a_bad_request_is_told_why_and_others_are_answered(
    here: Hosted, request_of: dict[str, Any], inputs: dict[str, Any], words: str
) -> None:
    bad, good = here.answers([(tiny_request(**request_of), inputs), (tiny_request(), {"text": "y"})])
    assert bad["status"] in ("failed", "refused")
    assert words in bad["reason"]
    assert good["status"] == "complete"


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("fail", {"message": "no such city"}, "no such city"),
        ("hang", {}, "0.3 s"),
        ("binary", {}, "no text"),
        ("unknown", {}, "unknown"),
    ],
)
def test_a_bad_tool_is_told_to_the_one_who_called_it(
    here: Hosted, text: FolderTokenizer, tool: str, arguments: dict[str, Any], words: str
) -> None:
    known = tuple(TOOLS)
    request = tiny_request("tools", 90, agent=agent(known, lookahead=0), dag_constraints={"max_depth": 40})
    inputs = {"text": "Call it.", "script": scripted(text, 1, tool, **arguments)}
    called, good = here.answers([(request, inputs), (tiny_request(), {"text": "y"})])
    assert words in called["reason"]
    assert called["status"] in ("partial", "failed")
    assert good["status"] == "complete"


def test_a_flood_is_cut_off_and_told(here: Hosted, text: FolderTokenizer) -> None:
    request = tiny_request("flood", 90, agent=agent(("flood",), lookahead=0), dag_constraints={"max_depth": 40})
    answer = here.answer(request, text="Call it.", script=scripted(text, 1, "flood", size=10_000))
    assert answer["status"] == "complete", answer["reason"]


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"text": "\ud800"}, "surrogate"),
        ({"text": "x", "documents": object()}, "inputs.documents"),
        ({"tokens": [2**70]}, "64 bits"),
    ],
)
def test_what_is_no_data_is_refused_at_once_and_others_are_answered(
    here: Hosted, inputs: dict[str, Any], words: str
) -> None:
    with pytest.raises(InputError, match=words):
        here.answer(tiny_request(), **inputs)
    assert here.answer(tiny_request(), text="y")["status"] == "complete"


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"txet": "x"}, "Maybe text"),
        ({"text": "x", "documents": "no"}, "inputs.documents"),
        ({"text": "x", "script": "no"}, "inputs.script"),
        ({"text": "y" * 4_000_001}, "at most 4000000"),
    ],
)
def test_a_wrong_input_is_told(here: Hosted, inputs: dict[str, Any], words: str) -> None:
    answer = here.answer(tiny_request(), **inputs)
    assert answer["status"] == "refused"
    assert words in answer["reason"]


def test_one_id_is_one_request(here: Hosted) -> None:
    async def twice() -> tuple[dict[str, Any], dict[str, Any]]:
        first = here.runtime.run(tiny_request(), {"text": "x"}, request_id="same")
        second = here.runtime.run(tiny_request(), {"text": "x"}, request_id="same")
        with pytest.raises(InputError, match="another request of this id"):
            here.runtime.run(tiny_request(), {"text": "z"}, request_id="same")
        return await first.answer(), await second.answer()

    first, second = here.wait(twice())
    assert first == second
    assert first["status"] == "complete"


def test_many_requests_of_unlike_priority_are_all_answered(here: Hosted) -> None:
    async def all_of_them() -> list[str]:
        runs = [here.runtime.run(tiny_request(output=8), {"text": str(n)}, priority=n % 3) for n in range(90)]
        return [(await run.answer())["status"] for run in runs]

    assert here.wait(all_of_them()) == ["complete"] * 90


def test_a_cancelled_request_ends_with_what_there_is(here: Hosted) -> None:
    answer = here.cancelled(tiny_request(output=2000, dag_constraints={"max_token_budget": 4000}), 5, text="Go on.")
    assert answer["status"] == "cancelled"
    assert answer["reason"] == "not wanted any more"
    assert 5 <= len(answer["tokens"]) < 2000


@pytest.mark.parametrize("kind", ["kv_store", "kv_load", "kv_migrate"])
def test_a_stage_of_its_own_keeps_a_kv_cache(here: Hosted, client: Client, kind: str) -> None:
    work = {"model": "tiny"}
    stages = [
        {"id": "prefill", "type": "prefill", **work, "tokens": {"new": 30}, "affinity": {"device": "prefiller"}},
        {"id": "keep", "type": kind, **work, "tokens": {"context": 30}, "affinity": {"device": "decoder"}},
        {"id": "decode", "type": "decode", **work, "tokens": {"context": 30, "output": 12},
         "affinity": {"device": "decoder"}},
    ]  # fmt: skip
    edges = [
        {"from": "prefill", "to": "keep", "kv": True, "bytes": "8kB"},
        {"from": "keep", "to": "decode", "kv": True},
    ]
    prompt = list(range(40, 70))
    answer = here.answer(tiny_request(graph={"stages": stages, "edges": edges}), tokens=prompt)
    assert answer["status"] == "complete", answer["reason"]
    assert answer["tokens"] == undisturbed(client, prompt, 12)
    assert answer["stages"]["keep"]["moved"] > 0
    assert answer["stages"]["decode"]["moved"] == 0


def test_documents_of_the_request_are_found(here: Hosted) -> None:
    request = tiny_request(graph={"stages": [{"id": "find", "type": "retrieval"}]})
    answer = here.answer(request, text="aprons", documents=DOCUMENTS)
    assert answer["status"] == "complete", answer["reason"]


def test_a_model_embeds_the_query_and_vectors_find_what_is_nearest(here: Hosted, client: Client) -> None:
    texts = ("Lead aprons hang in room 12.", "The night shift ends at six.", "zzz zzz zzz")
    client.submit(Embed("v", "tiny", texts, "fp32"))
    found = client.end("v")
    assert isinstance(found, Vectors)
    documents = [{"text": text, "vector": list(row)} for text, row in zip(texts, found.rows, strict=True)]
    stages = [{"id": "embed", "type": "embedding", "model": "tiny"}, {"id": "find", "type": "retrieval"}]
    graph = {"stages": stages, "edges": [{"from": "embed", "to": "find", "bytes": "1kB"}]}
    results: list[dict[str, Any]] = []
    here.runtime.shell.watch(
        lambda event, _: results.append(event.result) if isinstance(event, Finished) and event.stage == "find" else None
    )
    for text in texts:
        answer = here.answer(tiny_request(graph=graph), text=text, documents=documents, k=2)
        assert answer["status"] == "complete", answer["reason"]
        best, other = results.pop()["documents"]
        assert (best["text"], best["score"]) == (text, pytest.approx(1.0, abs=1e-4))
        assert other["score"] < 0.999


def test_the_folder_holds_no_secret_for_others(here: Hosted) -> None:
    folder: Path = here.runtime.folder.path
    assert folder.stat().st_mode & 0o077 == 0
    assert (folder / "secret").stat().st_mode & 0o077 == 0
