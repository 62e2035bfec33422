"""The report of a benchmark as Markdown, for a file in a repository."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from iegopt.cli.rows import Rows

__all__ = ["bench_markdown"]


def bench_markdown(parts: Sequence[Rows], facts: Sequence[str]) -> str:
    """Facts as a list, every table under its title."""
    top = "".join(f"- {_escaped(fact)}\n" for fact in facts)
    return "\n".join([top, *(f"### {_escaped(part.title)}\n\n{_table(part)}" for part in parts)])


def _table(part: Rows) -> str:
    heads = [_escaped(head.rstrip("|")) for head in part.heads]
    rule = ["--:" if head.endswith("|") else "---" for head in part.heads]
    rows = [heads, rule, *([_escaped(cell) for cell in row] for row in part.cells)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _escaped(words: str) -> str:
    """Text that is nothing but text in Markdown, in a cell too."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>|#" else c for c in words)
