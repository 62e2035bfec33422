"""JSON text as plain data, under the same bounds as YAML and with keys given twice refused."""

from __future__ import annotations

import json
import re
from typing import Any

from iegopt.errors import SpecError
from iegopt.spec.text import MAX_DEPTH, MAX_NODES, check_unicode, line_and_column
from iegopt.units import shown

__all__ = ["parse_json"]

# Possessive, and satisfied by an unterminated string: one pass over any text, without a stack.
_STRING = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_STRUCTURE = re.compile(r"[\[\]{},:]")
_LONGEST_INTEGER = 40


def parse_json(text: str, file: str, nodes: int = MAX_NODES) -> Any:
    """Read one JSON value of at most ``nodes`` keys, values and collections.

    Raises
    ------
    SpecError
        With ``line L:C`` as its place where there is one: a syntax error, a key given twice, or a
        document beyond ``nodes`` or ``MAX_DEPTH``; with its path: text that is no Unicode.
    """
    _check_bounds(text, file, nodes)
    try:
        data = json.loads(text, object_pairs_hook=_mapping, parse_int=_integer)
    except json.JSONDecodeError as error:
        where = line_and_column(text, error.pos)
        raise SpecError(file, where, f"not JSON: {error.msg[0].lower()}{error.msg[1:]}") from None
    except _KeyTwice as error:
        problem = f"key {shown(error.key)} is given twice in one mapping"
        raise SpecError(file, _second_place(text, error.key), problem) from None
    check_unicode(data, text, file)
    return data


def _check_bounds(text: str, file: str, nodes: int) -> None:
    """Bound size and depth by the brackets, commas and colons outside strings, before anything is built.

    That counts what the YAML reader counts, keys as well as values; an empty collection once more.
    """
    values, depth = 0, 0
    for match in _STRUCTURE.finditer(_STRING.sub('""', text)):
        mark = match.group()
        values += mark not in "]}"
        depth += (mark in "[{") - (mark in "]}")
        if values > nodes:
            raise SpecError(file, "", f"holds more than {nodes} values, the most a document may hold")
        if depth > MAX_DEPTH:
            raise SpecError(file, "", f"nested deeper than {MAX_DEPTH} levels, the most a document may be")


class _KeyTwice(Exception):
    def __init__(self, key: str) -> None:
        self.key = key
        super().__init__(key)


def _mapping(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise _KeyTwice(key)
            seen.add(key)
    return result


def _integer(digits: str) -> int | str:
    # Python refuses to convert thousands of digits; as text, the spec refuses the value with its path.
    return int(digits) if len(digits) <= _LONGEST_INTEGER else digits


def _second_place(text: str, key: str) -> str:
    """Where the key stands for the second time; empty where the text alone cannot tell."""
    places = [m.start() for m in re.finditer(re.escape(json.dumps(key, ensure_ascii=False)) + r"\s*:", text)]
    return line_and_column(text, places[1]) if len(places) == 2 else ""
