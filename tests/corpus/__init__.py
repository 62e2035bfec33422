"""Malformed documents, each with what its error line must say (``expected.yaml``).

A folder bears the top-level key that its files are read for: ``request/`` holds bad request files.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import yaml

__all__ = ["MalformedCase", "malformed_cases"]

_HERE = Path(__file__).resolve().parent


class MalformedCase(NamedTuple):
    key: str
    path: Path
    expected: str


def malformed_cases(*keys: str) -> list[MalformedCase]:
    """Every malformed file, or those read for these keys."""
    expected: dict[str, str] = yaml.safe_load((_HERE / "expected.yaml").read_text(encoding="utf-8"))
    cases = [MalformedCase(name.split("/")[0], _HERE / name, fragment) for name, fragment in expected.items()]
    return [case for case in cases if not keys or case.key in keys]
