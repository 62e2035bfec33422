"""How the KV of a sequence was computed: the forward passes that made it, in their canonical form.

Floats depend on the shape of the pass that computes them, so two runs agree to the bit only where they pass the same
tokens together. Prompts and results of tools ("prefill") go in chunks that end at multiples of ``block_tokens`` of
their absolute position, the last one shorter; generated tokens ("decode") go one by one. A history is the list of
such segments, each ``(kind, tokens)``, in order; two prefills in a row stay two, since the first one's last pass ended
where it ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

__all__ = ["BLOCK_TOKENS", "Segment", "appended", "fast", "length", "passes", "read_segments", "split"]

BLOCK_TOKENS = 64

Segment = tuple[Literal["prefill", "decode"], int]


def read_segments(document: Iterable[Sequence[object]]) -> tuple[Segment, ...]:
    """Segments from plain data such as ``[["prefill", 130], ["decode", 12]]``.

    Raises
    ------
    ValueError
        A kind that is none of the two, or a count that is no positive integer.
    """
    read: list[Segment] = []
    for item in document:
        match tuple(item):
            case ("prefill", int(tokens)) if tokens > 0:
                read.append(("prefill", tokens))
            case ("decode", int(tokens)) if tokens > 0:
                read.append(("decode", tokens))
            case _:
                raise ValueError(f"segment {item!r}: expected ['prefill' or 'decode', a positive count]")
    return tuple(read)


def length(segments: Iterable[Segment]) -> int:
    """Tokens of all segments."""
    return sum(tokens for _, tokens in segments)


def appended(segments: tuple[Segment, ...], kind: Literal["prefill", "decode"], tokens: int) -> tuple[Segment, ...]:
    """The history after ``tokens`` more; a decode that goes on is one segment."""
    if not tokens:
        return segments
    if kind == "decode" and segments and segments[-1][0] == "decode":
        return (*segments[:-1], ("decode", segments[-1][1] + tokens))
    return (*segments, (kind, tokens))


def passes(segments: Iterable[Segment], block_tokens: int = BLOCK_TOKENS) -> list[int]:
    """Ends (absolute positions, rising) of the forward passes that make up a history."""
    ends: list[int] = []
    at = 0
    for kind, tokens in segments:
        stop = at + tokens
        if kind == "decode":
            ends.extend(range(at + 1, stop + 1))
        else:
            ends.extend(range((at // block_tokens + 1) * block_tokens, stop, block_tokens))
            ends.append(stop)
        at = stop
    return ends


def split(segments: Iterable[Segment], at: int) -> tuple[tuple[Segment, ...], tuple[Segment, ...]]:
    """The history of the first ``at`` tokens, and of those after. At the end of a pass this changes no pass."""
    before: list[Segment] = []
    after: list[Segment] = []
    for kind, tokens in segments:
        first = max(0, min(tokens, at - length(before)))
        before += [(kind, first)] if first else []
        after += [(kind, tokens - first)] if tokens > first else []
    return tuple(before), tuple(after)


def fast(segments: tuple[Segment, ...]) -> tuple[Segment, ...]:
    """The same tokens in chunks throughout: quicker to compute again, not the same to the bit."""
    tokens = length(segments)
    return (("prefill", tokens),) if tokens else ()
