"""Generalised assignment, OR-Library types a to d (Chu and Beasley, Computers & OR 24(1), 1997).

``m n`` (agents, items), cost (m, n), resource (m, n), capacity (m,); minimise. Values: ``data.csv`` beside the
folder of the set, columns ``Path``, ``Optimum``, ``Best known solution value``.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from iegopt.bench.public.assignment import Published, assemble, numbers, separate_sites, take
from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.spec.text import read_text

__all__ = ["load", "published"]


def load(path: Path) -> Problem:
    """Read a file of the set (raises ``SpecError``)."""
    source = numbers(path)
    m, n = take(source, 2, path=path).tolist()
    cost, need = take(source, m, n, path=path), take(source, m, n, path=path)
    return assemble(path.name, separate_sites(m), cost.T, need.T, take(source, m, path=path), None)


def published(path: Path) -> Published | None:
    """The optimum, or the best known value where none is proven; ``None`` where the table has no row."""
    return _values(path.parent.parent / "data.csv").get(f"{path.parent.name}/{path.name}")


@cache
def _values(table: Path) -> dict[str, Published]:
    if not table.is_file():
        return {}
    return {
        row["Path"]: Published(int(row["Best known solution value"]) * TICKS_PER_SECOND, bool(row["Optimum"]))
        for row in csv.DictReader(read_text(table).splitlines())
        if row["Best known solution value"]
    }
