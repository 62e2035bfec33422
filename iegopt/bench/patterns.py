"""Runs by name, ``instance:solver:limit``: a part of it, or a pattern with * and ?."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from iegopt.errors import InputError

__all__ = ["fitting", "run_name"]


def run_name(instance: str, solver: str, limit: float) -> str:
    """``instance:solver:limit`` of a run; ``limit`` in seconds."""
    return f"{instance}:{solver}:{limit:g}s"


def fitting(names: Sequence[str], patterns: Sequence[str]) -> list[bool]:
    """Which names fit one of the patterns; all where there is no pattern.

    Raises
    ------
    InputError
        A pattern that fits no name.
    """
    if not patterns:
        return [True] * len(names)
    wide = [pattern if any(c in pattern for c in "*?[") else f"*{pattern}*" for pattern in patterns]
    for pattern, asked in zip(wide, patterns, strict=True):
        if not any(fnmatchcase(name, pattern) for name in names):
            such = f"; runs are called such as {names[0]}" if names else ""
            raise InputError(f"no run fits {asked}{such}")
    return [any(fnmatchcase(name, pattern) for pattern in wide) for name in names]
