"""The output of a stage as it grows: its text, its tool calls, and whether it is over."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from iegopt_runtime.lm.jobs import Stop
from iegopt_runtime.lm.text import StopStrings, TextStream, Tokenizer
from iegopt_runtime.lm.tool_calls import CallScanner, Scan

__all__ = ["Output", "Reason"]

Reason = Literal["eos", "length", "string", "call", "context", "preempted"]


class Output:
    """Tokens accepted one by one; the text of each depends on those before it alone, so it is the same wherever the
    sequence goes on."""

    def __init__(
        self, tokenizer: Tokenizer, stop: Stop, eos: Collection[int], max_tokens: int, goes_on: bool = False
    ) -> None:
        self.tokens: list[int] = []
        self.reason: Reason | None = "length" if max_tokens == 0 else None
        self._stop = stop
        self._eos = eos
        self._max_tokens = max_tokens
        self._goes_on = goes_on
        self._stream = TextStream(tokenizer)
        self._strings = StopStrings(stop.strings)
        self._calls = CallScanner()

    def accept(self, token: int) -> str:
        """The text to show after this token; ``reason`` is set where it is the last."""
        self.tokens.append(token)
        if self._stop.eos and token in self._eos:
            self.reason = "eos"
            return self._rest()
        shown = self._calls.feed(self._strings.feed(self._stream.push(token)))
        if self._strings.met is not None:
            self.reason = "string"
        elif self._calls.calls and self._stop.calls == "first":
            self.reason = "call"
        elif len(self.tokens) >= self._max_tokens:
            self.reason = "length"
            if self._goes_on:
                return shown
        return shown + self._rest() if self.reason else shown

    def scan(self) -> Scan:
        """Text and calls so far."""
        return self._calls.scan()

    def _rest(self) -> str:
        """What was held back and is now certain to be text."""
        if self._strings.met is not None:
            return self._calls.end()
        tail = self._strings.feed(self._stream.end()) + self._strings.end()
        return self._calls.feed(tail) + self._calls.end()
