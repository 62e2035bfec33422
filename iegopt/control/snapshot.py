"""The state of a controller as one plain document, and back: ``restored(policy, cards, written(core)) == core``.

A journal that holds such a document needs none of the events before it. What a field is written as follows from its
annotation (``_form``); what is derived from other fields, and what is only there for speed, is made anew.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from typing import Any, Union, get_args, get_origin, get_type_hints

from iegopt.control.core import Core
from iegopt.control.growth import template_of
from iegopt.control.policy import ControlPolicy
from iegopt.control.request_run import RequestRun
from iegopt.errors import InputError
from iegopt.graph.limits import Cards
from iegopt.spec.base import Spec
from iegopt.spec.explain_error import validate

__all__ = ["restored", "written"]

_VERSION = 2
_READABLE = (1, 2)
"""In version 1 a pool expected nobody (``Pool.expected``)."""
_ELSEWHERE = {Core: ("policy", "cards"), RequestRun: ("template",)}
"""Fields that the document does not hold."""


def written(core: Core) -> dict[str, Any]:
    """The state between two events as a document, which shares mappings with it."""
    assert not core.settle, "an event is being handled"
    return {"version": _VERSION, **_form(Core).write(core)}


def restored(policy: ControlPolicy, cards: Cards, document: dict[str, Any]) -> Core:
    """The state that was written.

    Raises
    ------
    InputError
        Where it was written by another version, or is damaged.
    """
    version = document.get("version") if isinstance(document, dict) else None
    if version not in _READABLE:
        raise InputError(f"a snapshot of version {version}: expected {_VERSION}")
    core = Core(policy, cards)
    try:
        if version == 1:
            document = document | {"pool": {"expected": {}} | document["pool"]}
        for name, form in _fields_of(Core).items():
            setattr(core, name, form.read(document[name]))
        for run in core.runs.values():
            run.template = template_of(run.request, run.inputs, cards)
    except (KeyError, TypeError, ValueError, AttributeError, InputError) as error:
        raise InputError(f"a snapshot that is damaged: {type(error).__name__}: {error}") from error
    core.resume()
    return core


@dataclass(frozen=True)
class _Form:
    """How a value is written as plain data, and read again."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _same(value: Any) -> Any:
    return value


_PLAIN = _Form(_same, _same)


@cache
def _form(hint: Any) -> _Form:
    """The form of the values of an annotation."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in (str, int, float, bool, None, Any):
        return _PLAIN
    if origin in (Union, types.UnionType):
        return _choice(inner)
    if origin is dict:
        return _mapping(*inner)
    if origin is list or (origin is tuple and inner[1:] == (...,)):
        return _many(origin, _form(inner[0]))
    if origin is tuple:
        return _each(tuple, [_form(one) for one in inner])
    if isinstance(hint, type) and issubclass(hint, Spec):
        return _Form(hint.document, lambda data: validate(hint, data, "snapshot"))
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _Form(str, hint)
    if isinstance(hint, type) and issubclass(hint, tuple):
        return _each(hint._make, [_form(one) for one in get_type_hints(hint).values()])  # type: ignore[attr-defined]
    if is_dataclass(hint):
        return _record(hint)
    raise TypeError(f"{hint}: no form for such a field")


def _choice(hints: tuple[Any, ...]) -> _Form:
    """One of several classes with its name, or ``None``."""
    forms = {hint.__name__: _form(hint) for hint in hints if hint is not types.NoneType}
    if len(forms) == 1:
        (form,) = forms.values()
        return _Form(
            lambda value: None if value is None else form.write(value),
            lambda data: None if data is None else form.read(data),
        )

    def write(value: Any) -> Any:
        name = type(value).__name__
        return None if value is None else [name, forms[name].write(value)]

    return _Form(write, lambda data: None if data is None else forms[data[0]].read(data[1]))


def _mapping(key: Any, value: Any) -> _Form:
    """A mapping; one whose keys are tuples as a list of pairs."""
    form = _form(value)
    if key is str and form is _PLAIN:
        return _Form(dict, dict)
    if key is str:
        return _Form(
            lambda entries: {name: form.write(entry) for name, entry in entries.items()},
            lambda data: {name: form.read(entry) for name, entry in data.items()},
        )
    return _Form(
        lambda entries: [[list(name), form.write(entry)] for name, entry in entries.items()],
        lambda data: {tuple(name): form.read(entry) for name, entry in data},
    )


def _many(kind: Callable[[Any], Any], form: _Form) -> _Form:
    if form is _PLAIN:
        return _Form(list, kind)
    return _Form(lambda values: [form.write(v) for v in values], lambda data: kind(form.read(v) for v in data))


def _each(kind: Callable[[Any], Any], forms: list[_Form]) -> _Form:
    return _Form(
        lambda values: [form.write(v) for form, v in zip(forms, values, strict=True)],
        lambda data: kind([form.read(v) for form, v in zip(forms, data, strict=True)]),
    )


def _record(kind: Any) -> _Form:
    def write(record: Any) -> dict[str, Any]:
        return {name: form.write(getattr(record, name)) for name, form in _fields_of(kind).items()}

    def read(data: dict[str, Any]) -> Any:
        left_out = dict.fromkeys(_ELSEWHERE.get(kind, ()))
        return kind(**left_out, **{name: form.read(data[name]) for name, form in _fields_of(kind).items()})

    return _Form(write, read)


@cache
def _fields_of(kind: Any) -> dict[str, _Form]:
    """The fields of a record that its equality depends on, as far as they are not derived."""
    hints = get_type_hints(kind)
    own = [field for field in fields(kind) if field.init and field.compare]
    return {field.name: _form(hints[field.name]) for field in own if field.name not in _ELSEWHERE.get(kind, ())}
