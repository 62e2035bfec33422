"""Messages as plain documents, and back: ``read(document(message)) == message``.

A document is ``{"type": NAME, field: value, …}``. What comes from a socket or a journal is checked field by field, down
to the last value of a mapping: nothing that JSON could not hold gets into the controller.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, fields
from typing import Any

from iegopt.control.messages import CAUSES, COMMANDS, EVENTS, HOW, ROLES, AttemptKey, Message
from iegopt.errors import SpecError
from iegopt.spec.explain_error import nearest
from iegopt.units import a_kind, shown

__all__ = ["document", "plain", "read"]

_DEEPEST = 64
_PARTS_SHOWN = 4
"""Of the path to what is nested too deep."""
_INFINITY = math.inf
_LONGEST_ID = 1000
"""Characters of a request's id, which every message about it repeats, and every KV cache and file of it bears."""
_LARGEST = 2**63
"""Whole numbers end below it, as they do in msgpack and SQLite."""


def document(message: Message) -> dict[str, Any]:
    """A message as JSON-able data; mappings inside are not copied."""
    shape = _SHAPES[type(message).__name__]
    written: dict[str, Any] = {"type": shape.name}
    for name in shape.readers:
        value = getattr(message, name)
        written[name] = _written(value) if type(value) is tuple else value
    return written


def read(data: object, source: str = "message") -> Message:
    """The message that a document holds.

    Parameters
    ----------
    source
        Name of where it came from, for the error.

    Raises
    ------
    SpecError
        In one line: source, path, the value and what was expected.
    """
    if not isinstance(data, dict):
        raise SpecError(source, "", f"{shown(data)}: expected a mapping with type")
    name = data.get("type")
    if not isinstance(name, str) or name not in _SHAPES:
        guess = nearest(name, _SHAPES)
        hint = f"Maybe {guess}?" if guess else "Expected the name of an event or a command"
        raise SpecError(source, "type", f"{shown(name)}: no such message. {hint}")
    shape = _SHAPES[name]
    values: dict[str, Any] = {}
    for field, reader in shape.readers.items():
        if field in data:
            values[field] = reader(data[field], source, field)
        elif field not in shape.optional:
            raise SpecError(source, field, "missing, and required")
    if len(data) > len(values) + 1:
        key = next(key for key in data if key != "type" and key not in shape.readers)
        raise SpecError(source, shown(key), f"unknown key. Known in {name}: {', '.join(shape.readers)}")
    message: Message = shape.message(**values)
    return message


def plain(value: object, source: str, where: str, depth: int = 0) -> Any:
    """A value of JSON as it is: no other type, no NaN, no number beyond 64 bits, keys of text.

    Raises
    ------
    SpecError
        Naming the path of the first value that is none.
    """
    kind = type(value)
    scalar = _SCALARS.get(kind)
    if scalar is not None:
        return scalar(value, source, where)
    if depth >= _DEEPEST:
        begun = ".".join(where.split(".")[:_PARTS_SHOWN])[:_LONGEST_ID]
        raise SpecError(source, f"{begun}.…", f"nested deeper than {_DEEPEST} levels")
    if isinstance(value, list | tuple):
        return [
            entry if _is_simple(entry) else plain(entry, source, f"{where}.{i}", depth + 1)
            for i, entry in enumerate(value)
        ]
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str or not key.isascii():
                _text(key, source, f"{where}.{shown(key)}")
        return {
            key: entry if _is_simple(entry) else plain(entry, source, f"{where}.{key}", depth + 1)
            for key, entry in value.items()
        }
    raise SpecError(source, where, f"{a_kind(kind)}: expected text, a number, true, false, null, a list or a mapping")


def _written(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_written(entry) for entry in value]
    return value


def _is_simple(value: Any) -> bool:
    """Whether a value is plain at a glance: most are, and need no path for an error."""
    kind = type(value)
    if kind is str:
        return bool(value.isascii())
    if kind is float:
        return bool(-_INFINITY < value < _INFINITY)
    return (kind is int and -_LARGEST <= value < _LARGEST) or value is None or kind is bool


Reader = Callable[[Any, str, str], Any]


def _text(value: Any, source: str, where: str) -> str:
    if type(value) is str and value.isascii():
        return value
    if not isinstance(value, str):
        raise SpecError(source, where, f"{shown(value)}: expected text")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise SpecError(source, where, f"a lone surrogate at {error.start}: expected text in Unicode") from None
    return value


def _id(value: Any, source: str, where: str) -> str:
    if len(_text(value, source, where)) > _LONGEST_ID:
        raise SpecError(source, where, f"{len(value)} characters: expected at most {_LONGEST_ID}")
    return str(value)


def _whole(value: Any, source: str, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecError(source, where, f"{shown(value)}: expected a whole number")
    if not -_LARGEST <= value < _LARGEST:
        raise SpecError(source, where, "a number of more than 64 bits: expected less")
    return value


def _natural(value: Any, source: str, where: str) -> int:
    if type(value) is int and 0 <= value < _LARGEST:
        return value
    if _whole(value, source, where) < 0:
        raise SpecError(source, where, f"{value}: expected at least 0")
    return int(value)


def _positive(value: Any, source: str, where: str) -> int:
    if _whole(value, source, where) < 1:
        raise SpecError(source, where, f"{value}: expected at least 1")
    return int(value)


def _number(value: Any, source: str, where: str) -> float:
    if type(value) is float and -_INFINITY < value < _INFINITY:
        return value
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise SpecError(source, where, f"{shown(value)}: expected a finite number")
    return float(value)


def _duration(value: Any, source: str, where: str) -> float:
    seconds = _number(value, source, where)
    if seconds < 0:
        raise SpecError(source, where, f"{seconds:g}: expected at least 0")
    return seconds


_SCALARS: dict[type, Reader] = {
    str: _text,
    int: _whole,
    float: _number,
    bool: lambda value, source, where: value,
    type(None): lambda value, source, where: value,
}


def _flag(value: Any, source: str, where: str) -> bool:
    if not isinstance(value, bool):
        raise SpecError(source, where, f"{shown(value)}: expected true or false")
    return value


def _mapping(value: Any, source: str, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise SpecError(source, where, f"{shown(value)}: expected a mapping")
    found: dict[str, Any] = plain(value, source, where)
    return found


def _times(value: Any, source: str, where: str) -> dict[str, float]:
    if not isinstance(value, dict):
        raise SpecError(source, where, f"{shown(value)}: expected a mapping")
    return {_text(key, source, where): _duration(entry, source, f"{where}.{key}") for key, entry in value.items()}


def _attempt(value: Any, source: str, where: str) -> AttemptKey:
    if not isinstance(value, list | tuple) or len(value) != 3:
        raise SpecError(source, where, f"{shown(value)}: expected [request, stage, attempt]")
    request_id, stage, attempt = value
    return AttemptKey(
        _text(request_id, source, f"{where}.0"),
        _text(stage, source, f"{where}.1"),
        _natural(attempt, source, f"{where}.2"),
    )


def _or_none(reader: Reader) -> Reader:
    return lambda value, source, where: None if value is None else reader(value, source, where)


def _list_of(reader: Reader) -> Reader:
    def read_list(value: Any, source: str, where: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple):
            raise SpecError(source, where, f"{shown(value)}: expected a list")
        return tuple(reader(entry, source, f"{where}.{i}") for i, entry in enumerate(value))

    return read_list


def _one_of(choices: tuple[str, ...]) -> Reader:
    def read_choice(value: Any, source: str, where: str) -> str:
        if value not in choices:
            raise SpecError(source, where, f"{shown(value)}: expected one of {', '.join(choices)}")
        return str(value)

    return read_choice


# Annotations are text here, and each kind of field has one reader.
_READERS: dict[str, Reader] = {
    "str": _text,
    "int": _natural,
    "float": _number,
    "bool": _flag,
    "int | None": _or_none(_natural),
    "float | None": _or_none(_duration),
    "dict[str, Any]": _mapping,
    "dict[str, float]": _times,
    "dict[str, Any] | None": _or_none(_mapping),
    "tuple[str, ...]": _list_of(_text),
    "tuple[int, ...]": _list_of(_natural),
    "tuple[AttemptKey, ...]": _list_of(_attempt),
    "tuple[dict[str, Any], ...]": _list_of(_mapping),
}
_BY_NAME = {
    "request_id": _id,
    "cause": _one_of(CAUSES),
    "how": _one_of(HOW),
    "role": _one_of(ROLES),
    "slots": _positive,
}


@dataclass(frozen=True)
class _Shape:
    """A message class, a reader for each of its fields, and those that may be left out."""

    name: str
    message: type[Any]
    readers: dict[str, Reader]
    optional: frozenset[str]


def _shape(message: type[Any]) -> _Shape:
    own = fields(message)
    readers = {field.name: _BY_NAME.get(field.name) or _READERS[str(field.type)] for field in own}
    optional = frozenset(
        field.name for field in own if not (field.default is MISSING and field.default_factory is MISSING)
    )
    return _Shape(message.__name__, message, readers, optional)


_SHAPES = {message.__name__: _shape(message) for message in (*EVENTS, *COMMANDS)}
