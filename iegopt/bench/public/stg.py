"""Standard task graphs (Kasahara, Tobita): makespan on identical processors, without communication, P | prec | Cmax.

``.stg``: number of tasks, then ``task duration predecessors predecessor…`` for these and the two dummies, comments
from ``#``. ``Case50_P_OPT.csv``: ``50/rand0000.stg,P,optimal makespan``, or ``…,P,lower bound,best known makespan``.
"""

from __future__ import annotations

import csv
import dataclasses
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt

from iegopt.bench.public.assignment import Published, assemble, separate_sites
from iegopt.errors import SpecError
from iegopt.problem.arrays import TICKS_PER_SECOND, Edges, Problem
from iegopt.spec.text import file_name, read_text

__all__ = ["PROCESSORS", "load", "published", "task_graph"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PROCESSORS = (2, 4, 8, 16)


def load(path: Path, processors: int) -> Problem:
    """Read a graph for a number of processors (raises ``SpecError``)."""
    lines = [line.split("#")[0].split() for line in read_text(path).splitlines()]
    rows = [[int(word) for word in line] for line in lines if line and all(map(str.isdigit, line))]
    expected, tasks = rows[0][0] if rows else 0, rows[1:]
    if len(tasks) != expected + 2 or [row[0] for row in tasks] != [*range(len(tasks))]:
        raise SpecError(file_name(path), "", f"{len(tasks)} tasks: expected {expected} and two dummies, in order")
    for row in tasks:
        if max(row[3:], default=-1) >= row[0]:
            raise SpecError(file_name(path), "", f"task {row[0]} after {max(row[3:])}: expected predecessors before it")
    duration = [row[1] * TICKS_PER_SECOND for row in tasks]
    return task_graph(f"{path.stem}-p{processors}", duration, [row[3:] for row in tasks], processors)


def task_graph(
    name: str,
    duration: Sequence[int] | Ints,
    predecessors: Sequence[Sequence[int]],
    processors: int,
    sizes: Sequence[Sequence[float]] | None = None,
    seconds_per_byte: Floats | None = None,
) -> Problem:
    """Least makespan of tasks on processors, one task at a time on each; option ``v · processors + p``.

    Parameters
    ----------
    duration (V,) or (V, processors)
        Ticks.
    predecessors (V,)
        Of every task, all of them before it in this order.
    sizes (V,)
        Bytes from each of these predecessors; ``None``: none.
    seconds_per_byte (processors, processors)
        Links; ``None``: a second a byte.
    """
    V = len(duration)
    nothing = np.zeros((V, processors), dtype=np.int64)
    topology = separate_sites(processors, pair_seconds_per_byte=seconds_per_byte)
    free = assemble(name, topology, nothing, nothing, nothing[0], None)
    pairs = np.array([(u, v) for v, own in enumerate(predecessors) for u in own], dtype=np.int64).reshape(-1, 2)
    none = np.zeros(len(pairs))
    size = none if sizes is None else np.array([b for own in sizes for b in own], dtype=np.float64)
    time = np.array(duration, dtype=np.int64).reshape(V, -1)
    return dataclasses.replace(
        free,
        options=dataclasses.replace(free.options, time=np.ascontiguousarray(time + nothing).ravel()),
        edges=Edges(
            source=pairs[:, 0].copy(),
            target=pairs[:, 1].copy(),
            bytes=size,
            weight=none,
            chunk=none,
            hidden=(None,) * len(pairs),
            kind=("control" if sizes is None else "data",) * len(pairs),
        ),
        makespan_weight=1.0,
        no_overlap=True,
    )


def published(path: Path, processors: int) -> Published | None:
    """The optimal or, where a bound below it stands beside it, best known makespan; ``None`` where there is none."""
    return _values(path.parent / f"Case50_{processors}_OPT.csv").get(path.name)


@cache
def _values(table: Path) -> dict[str, Published]:
    if not table.is_file():
        return {}
    rows = csv.reader(read_text(table).splitlines())
    return {
        Path(name).name: Published(int(values[-1]) * TICKS_PER_SECOND, len(values) == 1) for name, _, *values in rows
    }
