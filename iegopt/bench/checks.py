"""Whether what was read are results: every complaint names the file, the place in it, and what was expected."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from iegopt.errors import SpecError
from iegopt.units import shown

__all__ = ["check_row", "check_session", "check_suite"]

_Check = tuple[str, Callable[[Any], bool]]


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def _is_point(value: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and _is_number(value[0])
        and all(each is None or _is_number(each) for each in value[1:])
    )


_TEXT: _Check = ("a text", lambda value: isinstance(value, str))
_TEXT_OR_NULL: _Check = ("a text or null", lambda value: value is None or isinstance(value, str))
_WHOLE: _Check = ("a whole number", lambda value: type(value) is int)
_NUMBER_OR_NULL: _Check = ("a number or null", lambda value: value is None or _is_number(value))
_ABOVE_ZERO: _Check = ("a number above 0", lambda value: _is_number(value) and value > 0)
_FLAG: _Check = ("true or false", lambda value: isinstance(value, bool))
_OBJECT: _Check = ("an object", lambda value: isinstance(value, dict))
_POINTS: _Check = (
    "a list of [seconds, objective, bound]",
    lambda value: isinstance(value, list) and all(map(_is_point, value)),
)

_ROW = {
    "instance": _TEXT, "family": _TEXT, "solver": _TEXT, "engine": _TEXT, "hint": _TEXT_OR_NULL, "limit": _ABOVE_ZERO,
    "seed": _WHOLE, "repetition": _WHOLE, "status": _TEXT, "reason": _TEXT_OR_NULL, "objective": _NUMBER_OR_NULL,
    "bound": _NUMBER_OR_NULL, "seconds": _NUMBER_OR_NULL, "killed": _FLAG, "memory": _NUMBER_OR_NULL,
    "published": _NUMBER_OR_NULL, "published_optimal": _FLAG, "trajectory": _POINTS,
}  # fmt: skip
_SESSION = {
    "command": _TEXT, "date": _TEXT, "python": _TEXT, "processor": _TEXT, "cores": _WHOLE, "versions": _OBJECT,
}  # fmt: skip
_SUITE = {"name": _TEXT, "threads": _WHOLE}


def check_row(row: Any, file: str, where: str) -> None:
    """Raises ``SpecError`` where a row lacks what a report reads."""
    _check(row, _ROW, file, where, "a row, an object with instance, solver, limit, status and so on")
    if row["published_optimal"] and row["published"] is None:
        raise SpecError(file, where, "published_optimal, but published is null: expected a number")
    if row["status"] in ("optimal", "infeasible") and row["seconds"] is None:
        raise SpecError(file, where, f"{row['status']}, but seconds is null: expected a number")


def check_session(session: Any, file: str, where: str) -> None:
    """Raises ``SpecError`` where a session lacks what a report tells."""
    _check(session, _SESSION, file, where, "a session, an object with command, date, versions and so on")


def check_suite(suite: Any, file: str, where: str) -> None:
    """Raises ``SpecError`` where a suite has no name or threads."""
    _check(suite, _SUITE, file, where, "a suite, an object with name, instances, solvers and so on")


def _check(value: Any, keys: dict[str, _Check], file: str, where: str, expected: str) -> None:
    if not isinstance(value, dict):
        raise SpecError(file, where, f"{shown(value)}: expected {expected}")
    for key, (words, fits) in keys.items():
        if key not in value:
            raise SpecError(file, where, f"key {key} is missing: expected {expected}")
        if not fits(value[key]):
            raise SpecError(file, where, f"{key}: {shown(value[key])}: expected {words}")
