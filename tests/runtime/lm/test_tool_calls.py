"""Tool calls are found however the output is cut into pieces; what is none stays text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iegopt_runtime.lm.tool_calls import CallScanner, ToolCall, calls_of_message

CALL = '<tool_call>\n{"name": "f", "arguments": {"a": "}{"}}\n</tool_call>'
FOUND = ("f", {"a": "}{"})


def scan(text: str, size: int = 1) -> tuple[str, list[tuple[str, dict[str, Any]]], int]:
    scanner = CallScanner()
    shown = "".join(scanner.feed(text[i : i + size]) for i in range(0, len(text), size)) + scanner.end()
    result = scanner.scan()
    assert result.text == shown
    return shown, [(call.name, call.arguments) for call in result.calls], len(result.notes)


def message(content: str | None, *arguments: str) -> str:
    """As the chat API of OpenAI writes it."""
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": a}} for n, a in enumerate(arguments)
    ]
    return json.dumps({"role": "assistant", "content": content, "tool_calls": calls})


CASES = [
    ("plain text", "plain text", [], 0),
    (CALL, "", [FOUND], 0),
    (f"first {CALL}\n{CALL} last", "first \n last", [FOUND, FOUND], 0),
    ('<|python_tag|>{"name": "f", "parameters": {"a": 1}}', "", [("f", {"a": 1})], 0),
    (' {"name": "f", "parameters": {"a": "\\"}"}}', "", [("f", {"a": '"}'})], 0),
    ('{"name": "f"}', "", [("f", {})], 0),
    ('<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', "", [("f", {"a": 1})], 0),
    (message(None, '{"a": 1}', '{"a": "}"}') + " x", " x", [("f", {"a": 1}), ("f", {"a": "}"})], 0),
    (message("Wait: ", "{}", "no"), "Wait: ", [("f", {})], 1),
    # Not calls.
    (message("Wait", "no"), None, [], 1),
    (message("Hello"), None, [], 1),
    ('{"answer": 42} is it', '{"answer": 42} is it', [], 0),
    ('{"name": 3}', '{"name": 3}', [], 1),
    ("<tool_call>nonsense</tool_call> x", "<tool_call>nonsense</tool_call> x", [], 1),
    ('<tool_call>{"name": "f", "arguments": []}</tool_call>', None, [], 1),
    ('<tool_call>{"name": "f"', '<tool_call>{"name": "f"', [], 1),
    ("<|python_tag|>print(1)", "<|python_tag|>print(1)", [], 1),
    ("a <tool_cal", "a <tool_cal", [], 0),
    ("", "", [], 0),
    ("  ", "  ", [], 0),
]


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(("text", "shown", "calls", "notes"), CASES)
def test_what_is_a_call_and_what_is_text(text: str, shown: str | None, calls: list[Any], notes: int, size: int) -> None:
    assert scan(text, size) == (text if shown is None else shown, calls, notes)


@given(st.text(st.sampled_from('<tool_ca>/{}"name:fpython|argumets, '), max_size=80), st.integers(1, 9))
def test_pieces_do_not_matter_and_nothing_is_lost(text: str, size: int) -> None:
    whole = scan(text, len(text) or 1)
    assert scan(text, size) == whole
    assert whole[1] or whole[0] == text


@given(st.dictionaries(st.text(), st.recursive(st.none() | st.integers() | st.text(), st.lists, max_leaves=5)))
def test_every_argument_comes_back(arguments: dict[str, Any]) -> None:
    body = json.dumps({"name": "f", "arguments": arguments})
    if "</tool_call>" not in body:
        assert scan(f"<tool_call>{body}</tool_call>") == ("", [("f", arguments)], 0)
    assert scan(body) == ("", [("f", arguments)], 0)


def test_a_call_without_end_is_given_up() -> None:
    scanner = CallScanner()
    shown = scanner.feed("<tool_call>" + "x" * 70_000)
    assert len(shown) == 70_011
    assert "too long" in scanner.notes[0]


def test_calls_of_messages() -> None:
    message = {
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}},
            {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "no"}},
            {"id": "c3"},
        ],
    }
    result = calls_of_message(message)
    assert result.calls == (ToolCall("f", {"a": 1}, "c1"),)
    assert len(result.notes) == 2
    assert calls_of_message({"content": "hi"}).text == "hi"
