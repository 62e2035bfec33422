"""Standard task graphs (Kasahara, Tobita): makespan on identical processors, without communication.

``.stg``: number of tasks, then ``task duration predecessors predecessor…`` for these and the two dummies, comments
from ``#``. ``Case50_P_OPT.csv``: ``50/rand0000.stg,P,optimal makespan``.
"""

from __future__ import annotations

import csv
from functools import cache
from pathlib import Path

from iegopt.bench.public.assignment import Published
from iegopt.bench.schedule import TaskGraph
from iegopt.errors import SpecError
from iegopt.problem.arrays import TICKS_PER_SECOND
from iegopt.spec.text import file_name, read_text

__all__ = ["PROCESSORS", "load", "published"]

PROCESSORS = (2, 4, 8, 16)


def load(path: Path, processors: int) -> TaskGraph:
    """Read a graph for a number of processors (raises ``SpecError``)."""
    lines = [line.split("#")[0].split() for line in read_text(path).splitlines()]
    rows = [[int(word) for word in line] for line in lines if line and all(map(str.isdigit, line))]
    tasks = rows[1:]
    if len(tasks) != rows[0][0] + 2 or [row[0] for row in tasks] != [*range(len(tasks))]:
        raise SpecError(file_name(path), "", f"{len(tasks)} tasks: expected {rows[0][0]} and two dummies, in order")
    return TaskGraph(
        f"{path.stem}-p{processors}",
        tuple(row[1] * TICKS_PER_SECOND for row in tasks),
        tuple(tuple(row[3:]) for row in tasks),
        processors,
    )


def published(path: Path, processors: int) -> Published | None:
    """The optimal makespan, ``None`` where the tables have none."""
    return _values(path.parent / f"Case50_{processors}_OPT.csv").get(path.name)


@cache
def _values(table: Path) -> dict[str, Published]:
    if not table.is_file():
        return {}
    rows = csv.reader(read_text(table).splitlines())
    return {Path(name).name: Published(int(value) * TICKS_PER_SECOND, True) for name, _, value, *_ in rows}
