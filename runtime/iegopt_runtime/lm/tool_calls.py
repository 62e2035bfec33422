"""Tool calls in what a model writes, found while it writes.

Formats: Hermes and Qwen (``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, several if need be), Llama 3 (the
answer is one JSON object with ``name`` and ``parameters``, often after ``<|python_tag|>``), and messages of OpenAI's
chat API (the answer is one JSON object with ``tool_calls``). What looks like a call and is none stays text, with a note
that says why.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iegopt_runtime.lm.text import overlap

__all__ = ["CallScanner", "Scan", "ToolCall", "calls_of_message"]

OPEN, CLOSE, PYTHON = "<tool_call>", "</tool_call>", "<|python_tag|>"
LONGEST_CALL = 1 << 16
"""Characters after which an open call is taken for text."""


@dataclass(frozen=True)
class ToolCall:
    """``arguments`` is a JSON object; ``call_id`` only where the format gives one."""

    name: str
    arguments: dict[str, Any]
    call_id: str | None = None

    def document(self) -> dict[str, Any]:
        return {"name": self.name, "arguments": self.arguments, "call_id": self.call_id}


@dataclass(frozen=True)
class Scan:
    """``text`` is what is no call, for people; ``notes`` say why something that looked like a call is none."""

    text: str
    calls: tuple[ToolCall, ...]
    notes: tuple[str, ...]


class CallScanner:
    """Reads output piece by piece. ``calls`` grows as soon as a call is complete."""

    def __init__(self) -> None:
        self.calls: list[ToolCall] = []
        self.notes: list[str] = []
        self._held = ""
        self._inside = ""
        self._json = _JsonEnd()
        self._begun = False
        self._text: list[str] = []

    def feed(self, piece: str) -> str:
        """The part of the output so far that is certainly no call and was not returned before."""
        self._held += piece
        shown = ""
        while step := self._step():
            shown += step[0]
            if not step[1]:
                break
        self._text.append(shown)
        return shown

    def end(self) -> str:
        """The output has ended: what is still held back is text."""
        rest = self._held
        if self._inside:
            self.notes.append(f"a tool call that is not finished: {_short(rest)}")
        self._held = self._inside = ""
        self._text.append(rest)
        return rest

    def scan(self) -> Scan:
        return Scan("".join(self._text), tuple(self.calls), tuple(self.notes))

    def _step(self) -> tuple[str, bool] | None:
        """Text to show, and whether to look again; ``None`` where nothing can be said yet."""
        if not self._held:
            return None
        if self._inside:
            return self._within()
        if not self._begun:
            start = self._held.lstrip()
            if not start or (PYTHON.startswith(start) and start != PYTHON):
                return None
            self._begun = True
            if start.startswith((PYTHON, "{")):
                self._inside = "json"
                self._json = _JsonEnd()
                return "", True
        at = self._held.find(OPEN)
        if at >= 0:
            shown, self._held, self._inside = self._held[:at], self._held[at:], OPEN
            return shown, True
        keep = overlap(self._held, OPEN)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown, False

    def _within(self) -> tuple[str, bool] | None:
        if self._inside == OPEN:
            at = self._held.find(CLOSE)
            end = at + len(CLOSE) if at >= 0 else None
            body = self._held[len(OPEN) : at]
        else:
            end = self._json.find(self._held)
            body = self._held[:end].lstrip().removeprefix(PYTHON)
        if end is None:
            return None if len(self._held) <= LONGEST_CALL else self._give_up(len(self._held), "too long")
        try:
            found = _found(json.loads(body), message=self._inside != OPEN)
        except (ValueError, RecursionError) as error:
            return self._give_up(end, str(error))
        self.calls += found.calls
        self.notes += found.notes
        self._held, self._inside = self._held[end:], ""
        return found.text, True

    def _give_up(self, end: int, why: str) -> tuple[str, bool]:
        """What was held is plain text after all."""
        shown, self._held, self._inside = self._held[:end], self._held[end:], ""
        # An answer that is some other JSON object is just that; only what was marked or named as a call is noted.
        if shown.lstrip().startswith((OPEN, PYTHON)) or any(word in shown for word in ('"name"', '"tool_calls"')):
            self.notes.append(f"no tool call, {why}: {_short(shown)}")
        return shown, True


class _JsonEnd:
    """Finds where a JSON object ends, reading each character once."""

    def __init__(self) -> None:
        self._at = self._depth = 0
        self._quoted = self._escaped = False

    def find(self, text: str) -> int | None:
        """The position after the closing brace of the first object in ``text``, of which more may follow."""
        for at in range(self._at, len(text)):
            letter = text[at]
            if self._quoted:
                self._quoted = self._escaped or letter != '"'
                self._escaped = letter == "\\" and not self._escaped
            elif letter == '"':
                self._quoted = True
            elif letter == "{":
                self._depth += 1
            elif letter == "}":
                self._depth -= 1
                if self._depth == 0:
                    return at + 1
        self._at = len(text)
        return None


def _found(read: object, *, message: bool) -> Scan:
    """The calls in an object that a model wrote, which may be a whole message. ``ValueError`` says what is wrong."""
    if message and isinstance(read, dict) and read.get("tool_calls"):
        found = calls_of_message(read)
        if not found.calls:
            raise ValueError("a message without a call that can be read")
        return found
    return Scan("", (_call(read),), ())


def calls_of_message(message: Mapping[str, Any]) -> Scan:
    """The calls of a message as the chat API of OpenAI writes them: arguments are JSON in a string."""
    calls: list[ToolCall] = []
    notes: list[str] = []
    entries = message.get("tool_calls") or ()
    for entry in entries if isinstance(entries, Sequence) else ():
        try:
            found = _call(entry["function"])
            calls.append(ToolCall(found.name, found.arguments, entry.get("id")))
        except (KeyError, TypeError, ValueError) as error:
            notes.append(f"no tool call, {error}: {_short(str(entry))}")
    content = message.get("content")
    return Scan(content if isinstance(content, str) else "", tuple(calls), tuple(notes))


def _call(read: object) -> ToolCall:
    """A call from its object; arguments may be written as JSON in a string. ``ValueError`` says what is wrong."""
    if not isinstance(read, dict) or not isinstance(read.get("name"), str) or not read["name"]:
        raise ValueError("expected an object with a name")
    arguments = read.get("arguments", read.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = json.loads(arguments or "{}")
    if not isinstance(arguments, dict):
        raise ValueError("its arguments are no object")
    return ToolCall(read["name"], arguments)


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."
