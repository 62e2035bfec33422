"""Arguments are of the types that callers are told; anything else is one ``TypeError``."""

from __future__ import annotations

from numbers import Real
from typing import Any

from iegopt.errors import InputError

__all__ = ["check_milliseconds", "check_type"]


def check_type(name: str, value: Any, expected: type, *, optional: bool = False, made_by: str = "") -> None:
    """Raise ``TypeError`` with the argument, what it is, and what was expected, unless it is that.

    Parameters
    ----------
    made_by
        How one comes by such an argument.
    """
    if isinstance(value, expected) or (optional and value is None):
        return
    allowed = f"{_one(expected)}{' or None' if optional else ''}{f' ({made_by})' if made_by else ''}"
    raise TypeError(f"{name}: got {_one(type(value))}, expected {allowed}")


def check_milliseconds(name: str, value: Any) -> None:
    """Raise ``TypeError`` unless it is a number or ``None``, ``InputError`` where it is beyond all floats."""
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(f"{name}: got {_one(type(value))}, expected a number of milliseconds or None")
    try:
        float(value)
    except OverflowError:
        raise InputError(f"{name}: beyond 1e308, expected a number of milliseconds or None") from None


def _one(kind: type) -> str:
    article = "an" if kind.__name__[:1].lower() in "aeiou" else "a"
    return f"{article} {kind.__name__}"
