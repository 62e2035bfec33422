"""Tokens to text, piece by piece: nothing is shown before it is certain, and nothing twice."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

__all__ = ["StopStrings", "TextStream", "Tokenizer", "overlap"]

UNFINISHED = "�"
LONGEST_LETTER = 8
"""Tokens after which bytes that make no letter are shown as they are."""


class Tokenizer(Protocol):
    """What is used of a tokenizer."""

    def decode(self, token_ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...


class TextStream:
    """Detokenises incrementally. A letter may take several tokens, and a token's text may depend on the one before."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._tokens: list[int] = []
        self._context = self._read = 0

    def push(self, token: int) -> str:
        """The text that this token completes."""
        self._tokens.append(token)
        before, now = self._decode(self._context, self._read), self._decode(self._context, len(self._tokens))
        if now.endswith(UNFINISHED) and len(self._tokens) - self._read < LONGEST_LETTER:
            return ""
        self._context, self._read = self._read, len(self._tokens)
        return now[len(before) :]

    def end(self) -> str:
        """What is left, unfinished letters included."""
        before, now = self._decode(self._context, self._read), self._decode(self._context, len(self._tokens))
        self._context = self._read = len(self._tokens)
        return now[len(before) :]

    def _decode(self, begin: int, end: int) -> str:
        return self._tokenizer.decode(self._tokens[begin:end], skip_special_tokens=False)


class StopStrings:
    """Holds text back as long as it may be the beginning of a stop string; the string itself is never shown."""

    def __init__(self, strings: Sequence[str]) -> None:
        self._strings = tuple(text for text in strings if text)
        self._held = ""
        self.met: str | None = None

    def feed(self, piece: str) -> str:
        """The text that may be shown; ``met`` is set where a stop string has appeared."""
        self._held += piece
        found = [(self._held.find(text), text) for text in self._strings if text in self._held]
        if found:
            at, self.met = min(found)
            shown, self._held = self._held[:at], ""
            return shown
        keep = max((overlap(self._held, text) for text in self._strings), default=0)
        shown, self._held = self._held[: len(self._held) - keep], self._held[len(self._held) - keep :]
        return shown

    def end(self) -> str:
        rest, self._held = self._held, ""
        return rest


def overlap(text: str, tag: str) -> int:
    """Length of the longest end of ``text`` with which ``tag`` begins, short of all of it."""
    return next((n for n in range(min(len(tag) - 1, len(text)), 0, -1) if text.endswith(tag[:n])), 0)
