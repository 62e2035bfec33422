"""A failed validation as one line: where, what stood there, what was expected, and a guess.

pydantic reports every mismatch, in its own words and with its own names for the branches of a
union. Here the most useful one is picked, its path is written in the words of the file, and the
number of the others is told.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from iegopt.errors import SpecError
from iegopt.spec.base import Spec
from iegopt.units import shown

__all__ = ["nearest", "validate"]

T = TypeVar("T")
_Path = tuple[str | int, ...]

_CONSIDERED = 1000
_MANY = 20 * _CONSIDERED
"""Problems from which they are not all told in Python: a kilobyte each."""
_LISTED = 110
_LONGEST_GUESS = 60

_TYPES = {
    "string_type": "text", "string_unicode": "text", "model_type": "a mapping", "model_attributes_type": "a mapping",
    "dict_type": "a mapping", "tuple_type": "a list", "list_type": "a list", "int_type": "a whole number",
    "int_parsing": "a whole number", "int_from_float": "a whole number", "float_type": "a number",
    "float_parsing": "a number", "bool_type": "true or false", "bool_parsing": "true or false",
    "finite_number": "a finite number",
}  # fmt: skip
_BOUNDS: dict[str, Callable[[dict[str, Any]], str]] = {
    "greater_than": lambda c: f"more than {c['gt']:.15g}",
    "greater_than_equal": lambda c: f"at least {c['ge']:.15g}",
    "less_than": lambda c: f"less than {c['lt']:.15g}",
    "less_than_equal": lambda c: f"at most {c['le']:.15g}",
    "string_too_short": lambda c: f"text of at least {c['min_length']} character",
    "string_too_long": lambda c: f"at most {c['max_length']} characters",
    "string_pattern_mismatch": lambda _: "letters, digits and _ . : / @ + -, beginning with a letter, a digit or _",
    "too_short": lambda c: f"at least {c['min_length']} {_entries(c['min_length'])}, got {c['actual_length']}",
    "too_long": lambda c: f"at most {c['max_length']} {_entries(c['max_length'])}, got {c['actual_length']}",
}


def validate(spec_type: type[T], data: object, file: str, where: str = "") -> T:
    """Read plain data as a spec, bare numbers needing their units.

    Parameters
    ----------
    spec_type
        A ``Spec``, or a ``tuple`` of them.
    file, where
        Name of the document, and the path inside it at which ``data`` stands.

    Raises
    ------
    SpecError
        One line about the most useful problem, and how many more there are.
    """
    try:
        found: T = _reader(spec_type).validate_python(data, context=_IN_A_DOCUMENT)
        return found
    except ValidationError as error:
        count = error.error_count()
        errors = _first_errors(spec_type, data) if count > _MANY else []
        errors = errors or error.errors(include_url=False)
    problems = _problems(errors[:_CONSIDERED], data)
    path, details = min(problems.items(), key=lambda item: item[1][0]["type"] == "missing")
    inner, problem = _inner_path(path, _problem(path, details, data, spec_type), data)
    more = len(problems) - 1 + count - len(errors[:_CONSIDERED])
    if more:
        problem += f" (and {more} more)"
    place = ".".join(shown(part) if isinstance(part, str) else str(part) for part in (*path, *inner))
    raise SpecError(file, ".".join(filter(None, (where, place))), problem)


_IN_A_DOCUMENT = {"document": True}


_READERS: dict[Any, TypeAdapter[Any]] = {}
"""Kept, since making one takes as long as reading a small document."""


def _reader(spec_type: Any) -> TypeAdapter[Any]:
    if spec_type not in _READERS:
        _READERS[spec_type] = TypeAdapter(spec_type)
    return _READERS[spec_type]


def nearest(word: object, choices: Iterable[str]) -> str | None:
    """The choice that the writer of ``word`` probably meant, where one suggests itself."""
    if not isinstance(word, str) or not 0 < len(word) <= _LONGEST_GUESS:
        return None
    folded = {_fold(choice): choice for choice in reversed(list(choices))}
    begun = [choice for key, choice in folded.items() if key.startswith(_fold(word)) and len(word) > 2]
    close = difflib.get_close_matches(_fold(word), folded, n=1)
    if close:
        return folded[close[0]]
    return begun[0] if len(begun) == 1 else None


def _fold(word: str) -> str:
    return word.lower().replace("-", "_").replace(" ", "_")


def _first_errors(spec_type: type[T], data: object) -> list[ErrorDetails]:
    """Errors of the data with the first entries of each collection alone; none where those have no fault."""
    try:
        TypeAdapter(spec_type).validate_python(_beginning(data), context={"document": True})
    except ValidationError as error:
        return error.errors(include_url=False)
    return []


def _beginning(data: object) -> object:
    if isinstance(data, dict):
        return {key: _beginning(value) for key, value in islice(data.items(), _CONSIDERED)}
    return [_beginning(value) for value in data[:_CONSIDERED]] if isinstance(data, list) else data


def _problems(errors: list[ErrorDetails], data: object) -> dict[_Path, list[ErrorDetails]]:
    """The errors by their path in the file; of a union, only the branch that the data resembles."""
    found: dict[_Path, list[ErrorDetails]] = {}
    whole: set[_Path] = set()
    inside: set[_Path] = set()
    for error in errors:
        path, unions = _path(error, data)
        if error["type"] == "too_short" and len(_at(path, data)) >= error["ctx"]["min_length"]:
            continue  # only because entries were refused, each with an error of its own
        found.setdefault(path, []).append(error)
        whole |= {union for union in unions if union == path}
        inside |= {union for union in unions if union != path}
    for path in whole & inside:
        del found[path]
    return found


def _path(error: ErrorDetails, data: object) -> tuple[_Path, list[_Path]]:
    """The location of an error as keys and indices that the file has, and where unions branched.

    pydantic puts the name of a branch among the keys; what the data does not have is such a name,
    unless it is the very key that is missing.
    """
    path: _Path = ()
    unions: list[_Path] = []
    location = error["loc"]
    at: Any = data
    for number, part in enumerate(location):
        if _has(at, part):
            at = at[part]
        elif part == "[key]":
            continue
        elif error["type"] != "missing" or number < len(location) - 1:
            unions.append(path)
            continue
        path += (part,)
    return path, unions


def _has(container: object, part: str | int) -> bool:
    if isinstance(container, list):
        return isinstance(part, int) and part < len(container)
    return isinstance(container, dict) and part in container


def _at(path: Sequence[str | int], data: Any) -> Any:
    for part in path:
        data = data[part]
    return data


def _inner_path(path: _Path, problem: str, data: Any) -> tuple[_Path, str]:
    """The path with which a check of a whole spec begins its message (``edges.3: no stage ...``)."""
    prefix, _, rest = problem.partition(": ")
    parts = tuple(prefix.split("."))
    if len(parts) > 1 and _has(_at(path, data), parts[0]):
        return parts, rest
    return (), problem


def _problem(path: _Path, details: list[ErrorDetails], data: object, spec_type: Any) -> str:
    error = details[0]
    kind, context = error["type"], error.get("ctx", {})
    if kind == "missing":
        return "missing: one more entry is expected" if isinstance(path[-1], int) else "missing, and required"
    if kind == "extra_forbidden":
        return _unknown_key(path, spec_type)
    if kind in ("value_error", "assertion_error"):
        return str(context["error"])
    if error["loc"][-1:] == ("[key]",):
        return f"unknown key.{_choice(path[-1], context.get('expected', ''))}"
    value = _at(path, data)
    if kind in ("enum", "literal_error"):
        return f"{shown(value)}: no such choice.{_choice(value, context['expected'])}"
    if kind in _TYPES:
        expected = " or ".join(dict.fromkeys(_TYPES[e["type"]] for e in details if e["type"] in _TYPES))
        return f"{shown(value)}: expected {expected}.{_conversion(value, kind)}".rstrip(".")
    if kind in _BOUNDS:
        return f"{shown(value)}: expected {_BOUNDS[kind](context)}"
    return f"{shown(value)}: {error['msg'][0].lower()}{error['msg'][1:]}"


def _conversion(value: object, kind: str) -> str:
    """What would make the value of the expected type."""
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f' Quote it: "{shown(value)}"'
    if kind == "tuple_type" and isinstance(value, str | bool | int | float):
        return f" Maybe [{shown(value)}]?"
    if kind.startswith("int") and isinstance(value, str) and re.fullmatch(r"[0-9_,]{1,9}", value.strip()):
        digits = re.sub("[_,]", "", value)
        return f" Maybe {int(digits)}?" if digits.strip() else ""
    if kind.startswith("int") and isinstance(value, float) and value.is_integer() and abs(value) < 1e9:
        return f" Maybe {int(value)}?"
    return ""


def _choice(value: object, expected: str) -> str:
    choices = re.findall(r"'([^']*)'", expected)
    guess = nearest(value, choices)
    return f" Maybe {guess}?" if guess else f" Expected {_list(choices)}"


def _unknown_key(path: _Path, spec_type: Any) -> str:
    key = str(path[-1])
    models = _models_at(path[:-1], _models(spec_type))
    fields = {name: field for model in models for name, field in _fields(model).items()}
    guess = nearest(key, fields)
    if guess:
        return f"unknown key. Maybe {guess}?"
    for name, field in fields.items():
        if any(key in _fields(model) for model in _models(field.annotation)):
            return f"unknown key. Maybe {name}.{key}?"
    return f"unknown key. Known here: {_list(fields)}"


def _fields(model: type[Spec]) -> dict[str, FieldInfo]:
    """The fields by the keys that a file uses."""
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _models(annotation: Any) -> list[type[Spec]]:
    """The specs that a value of this type may be, or be a collection of."""
    if isinstance(annotation, type) and issubclass(annotation, Spec):
        return [annotation]
    return [model for inner in get_args(annotation) for model in _models(inner)]


def _models_at(path: _Path, models: list[type[Spec]]) -> list[type[Spec]]:
    for part in path:
        fields = [field for model in models for name, field in _fields(model).items() if name == part]
        # An index or a key of a dictionary leads nowhere new: its values were flattened already.
        models = [model for field in fields for model in _models(field.annotation)] or models
    return models


def _list(words: Iterable[str]) -> str:
    text = ", ".join(words)
    return text if len(text) <= _LISTED else text[:_LISTED].rpartition(",")[0] + ", …"


def _entries(count: int) -> str:
    return "entry" if count == 1 else "entries"
