"""Rows of a long benchmark, kept in a file as they are measured, so that it can be run in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Rows"]

Row = dict[str, Any]


class Rows:
    """Rows by name; a row that ``file`` has is not measured again.

    Parameters
    ----------
    file
        Read first, if it is there, and written after every row; ``None``: nothing is kept.
    """

    def __init__(self, file: Path | None) -> None:
        self.file = file
        self.known: dict[str, Row] = json.loads(file.read_text(encoding="utf-8")) if file and file.exists() else {}

    def get(self, name: str, measure: Callable[..., Row], *arguments: Any) -> Row:
        """The row of that name, which ``measure`` finds where it is not known; it is told when it is new."""
        if name not in self.known:
            self.known[name] = measure(*arguments)
            print(" ".join(f"{key} {value}" for key, value in self.known[name].items()), flush=True)
            if self.file is not None:
                self.file.write_text(json.dumps(self.known, indent=1) + "\n", encoding="utf-8")
        return self.known[name]
