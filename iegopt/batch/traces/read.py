"""Traces of requests in two public formats.

==============  ==================================================================================================
Mooncake JSONL  ``{"timestamp": ms, "input_length": tokens, "output_length": tokens, "hash_ids": [block, …]}`` a line,
                a block for every 512 tokens of the prompt; equal ids are equal prefixes (Qin et al., FAST 2025)
Azure CSV       ``TIMESTAMP,ContextTokens,GeneratedTokens``, the time as ``2023-11-16 18:15:46.6805900`` (Patel et al.,
                ISCA 2024); it says nothing of prefixes
==============  ==================================================================================================
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from os import PathLike
from pathlib import Path

from iegopt.errors import SpecError
from iegopt.spec.text import file_name
from iegopt.units import shown

__all__ = ["MOONCAKE_BLOCK", "Arrival", "Trace", "read_trace"]

MOONCAKE_BLOCK = 512
"""Tokens of a block of a Mooncake trace."""

MOST_TOKENS = 2**31
_AZURE = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")
_MOST_BLOCK = 2**63
_DAY = datetime(2000, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Arrival:
    """A request: seconds after the first one of its trace, tokens in and out, hashes of the blocks of its prompt."""

    at: float
    prompt: int
    output: int
    blocks: tuple[int, ...] = ()


@dataclass(frozen=True)
class Trace:
    """Requests in the order of their arrival; the first arrives at 0."""

    name: str
    arrivals: tuple[Arrival, ...]

    @property
    def duration(self) -> float:
        """Seconds from the first arrival to the last."""
        return self.arrivals[-1].at

    @property
    def has_prefixes(self) -> bool:
        return any(arrival.blocks for arrival in self.arrivals)


def read_trace(path: str | PathLike[str]) -> Trace:
    """The requests of a file, JSONL where it begins with a brace, else CSV.

    Raises
    ------
    SpecError
        Naming the file and, where one is wrong, the line: what stood there and what was expected.
    """
    file = file_name(path)
    found: list[Arrival] = []
    parse: Callable[[str, str, str], Arrival] | None = None
    for number, line in _lines(path, file):
        if parse is None:
            parse = _mooncake if line.startswith("{") else _azure
            if parse is _azure:
                _check_header(line, file, number)
                continue
        found.append(parse(line, file, f"line {number}"))
    if not found:
        raise SpecError(file, "", "no requests: expected a Mooncake JSONL or an Azure CSV trace")
    found.sort(key=lambda arrival: arrival.at)
    first = found[0].at
    return Trace(Path(path).name, tuple(replace(arrival, at=arrival.at - first) for arrival in found))


def _lines(path: str | PathLike[str], file: str) -> Iterator[tuple[int, str]]:
    """Lines that are not empty, with their numbers; one at a time, since traces are long."""
    try:
        with Path(path).open("rb") as stream:
            for number, raw in enumerate(stream, 1):
                try:
                    line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
                except UnicodeDecodeError:
                    raise SpecError(file, f"line {number}", "not UTF-8: expected JSONL or CSV text") from None
                if line:
                    yield number, line
    except OSError as error:
        raise SpecError(file, "", f"cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise SpecError(file, "", "cannot be read: not a file name") from None


def _mooncake(line: str, file: str, where: str) -> Arrival:
    try:
        row = json.loads(line)
    except (json.JSONDecodeError, RecursionError, ValueError):
        raise SpecError(file, where, f"not JSON: {shown(line)}: expected one request a line") from None
    if not isinstance(row, dict):
        raise SpecError(file, where, f"{shown(row)}: expected a request with timestamp, input_length and output_length")

    def whole(key: str, least: int, unit: str) -> int:
        value = row.get(key)
        if not isinstance(value, int | float) or isinstance(value, bool) or value != value // 1 or value < least:
            got = "missing" if key not in row else shown(value)
            raise SpecError(file, where, f"{key}: {got}: expected a whole number of {unit}, at least {least}")
        if value > MOST_TOKENS:
            raise SpecError(file, where, f"{key}: {shown(value)}: expected at most {MOST_TOKENS} {unit}")
        return int(value)

    prompt = whole("input_length", 1, "tokens")
    blocks = row.get("hash_ids", [])
    wrong = [blocks] if not isinstance(blocks, list) else [b for b in blocks if not _is_block(b)]
    if wrong:
        allowed = f"a list of whole numbers from 0 to below {_MOST_BLOCK}"
        raise SpecError(file, where, f"hash_ids: {shown(wrong[0])}: expected {allowed}")
    most = -(-prompt // MOONCAKE_BLOCK)
    if len(blocks) > most:
        room = f"{prompt} tokens, {most} blocks of {MOONCAKE_BLOCK}"
        raise SpecError(file, where, f"hash_ids: {len(blocks)} blocks, but the prompt has {room}")
    at = whole("timestamp", 0, "milliseconds") / 1000
    return Arrival(at, prompt, whole("output_length", 1, "tokens"), tuple(blocks))


def _check_header(line: str, file: str, number: int) -> None:
    if tuple(cell.strip() for cell in line.split(",")) != _AZURE:
        expected = f"a Mooncake request in JSON, or the header {','.join(_AZURE)}"
        raise SpecError(file, f"line {number}", f"{shown(line)}: expected {expected}")


def _azure(line: str, file: str, where: str) -> Arrival:
    cells = [cell.strip() for cell in line.split(",")]
    if len(cells) != len(_AZURE):
        raise SpecError(file, where, f"{len(cells)} columns: expected {len(_AZURE)}: {', '.join(_AZURE)}")
    try:
        moment = datetime.fromisoformat(cells[0])
    except ValueError:
        expected = "a time such as 2023-11-16 18:15:46.68"
        raise SpecError(file, where, f"TIMESTAMP: {shown(cells[0])}: expected {expected}") from None
    tokens = []
    for name, cell in zip(_AZURE[1:], cells[1:], strict=True):
        if not (cell.isascii() and cell.isdigit() and len(cell) < 11 and 1 <= int(cell) <= MOST_TOKENS):
            raise SpecError(file, where, f"{name}: {shown(cell)}: expected a whole number of tokens, at least 1")
        tokens.append(int(cell))
    return Arrival(_since(moment), tokens[0], tokens[1])


def _since(moment: datetime) -> float:
    """Seconds since a fixed day; times without a zone are UTC."""
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - _DAY).total_seconds()


def _is_block(value: object) -> bool:
    return type(value) is int and 0 <= value < _MOST_BLOCK
