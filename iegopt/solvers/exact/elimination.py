"""Exact elimination on graphs that are not trees (bucket elimination; Dechter, Artificial Intelligence 113, 1999).

Stages are eliminated one by one: all tables that speak of a stage are added up over its neighbours'
options, and the stage is minimised out. Exact for the problem without shared limits, in time and memory
exponential in the width of the order alone; with pruned options the tables of an agent's graph stay small.
The order is chosen greedily by the size of the next table, before any table is made.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.clock import Clock, lag

__all__ = ["MAX_CELLS", "Elimination", "eliminate"]

Ints = npt.NDArray[np.int64]

MAX_CELLS = 4_000_000
"""Cells of the largest table, 32 MB; beyond it elimination does not apply."""
_CELL_NEEDS = 2e-8
"""Seconds that a cell takes, as measured on one core of a server."""


@dataclass(frozen=True, eq=False)
class Elimination:
    """Optimum over the options of a mask, shared limits left out.

    Attributes
    ----------
    value
        Ticks.
    choice (V,)
        Options that attain it.
    width
        Neighbours of the widest eliminated stage: the width of the tree decomposition.
    """

    value: int
    choice: Ints
    width: int


@dataclass(frozen=True, eq=False)
class _Table:
    """A cost over the options of ``stages``, one axis for each, ascending."""

    stages: tuple[int, ...]
    cost: Ints


def eliminate(problem: Problem, mask: npt.NDArray[np.bool_], clock: Clock) -> Elimination | None:
    """Minimise option and edge costs over the options in a mask (O,).

    ``None`` where a stage has no option left, a table would exceed ``MAX_CELLS``, or the time is up.
    """
    domains = [_domain(problem, mask, v) for v in range(problem.V)]
    sizes = [len(domain) for domain in domains]
    if min(sizes) == 0:
        return None
    ends = list(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True))
    order = _order(ends, sizes)
    if order is None or clock.left < lag() * _CELL_NEEDS * sum(_cells(sizes, stage, near) for stage, near in order):
        return None
    tables = [_Table((v,), problem.options.cost[domain]) for v, domain in enumerate(domains)]
    for e, (u, v) in enumerate(ends):
        if clock.left <= 0:
            return None
        cost = edge_ticks(problem, e, domains[u][:, None], domains[v][None, :])[1]
        tables.append(_Table((u, v), cost) if u < v else _Table((v, u), cost.T))
    solved: list[tuple[int, tuple[int, ...], Ints]] = []
    for stage, around in order:
        if clock.left <= lag() * _CELL_NEEDS * _cells(sizes, stage, around):
            return None
        scope = tuple(sorted((*around, stage)))
        total = sum((_spread(t, scope, sizes) for t in tables if stage in t.stages), np.zeros(1, dtype=np.int64))
        axis = scope.index(stage)
        solved.append((stage, around, np.argmin(total, axis=axis)))
        tables = [t for t in tables if stage not in t.stages] + [_Table(around, np.min(total, axis=axis))]
    picked = _backtrack(solved)
    choice = np.array([domains[v][picked[v]] for v in range(problem.V)], dtype=np.int64)
    width = max((len(around) for _, around in order), default=0)
    return Elimination(int(sum(int(t.cost) for t in tables)), choice, width)


def _domain(problem: Problem, mask: npt.NDArray[np.bool_], stage: int) -> Ints:
    span = problem.options.of(stage)
    return np.asarray(span.start + np.flatnonzero(mask[span]), dtype=np.int64)


def _order(ends: list[tuple[int, int]], sizes: list[int]) -> list[tuple[int, tuple[int, ...]]] | None:
    """Every stage with its neighbours (ascending) when it is eliminated; ``None`` where a table would be too large."""
    around: dict[int, set[int]] = {v: set() for v in range(len(sizes))}
    for u, v in ends:
        around[u].add(v)
        around[v].add(u)
    order: list[tuple[int, tuple[int, ...]]] = []
    while around:
        cells = {v: _cells(sizes, v, near) for v, near in around.items()}
        stage = min(cells, key=lambda v: (cells[v], v))
        if cells[stage] > MAX_CELLS:
            return None
        near = around.pop(stage)
        for n in near:
            around[n] = (around[n] | near) - {n, stage}
        order.append((stage, tuple(sorted(near))))
    return order


def _cells(sizes: list[int], stage: int, near: Iterable[int]) -> int:
    return sizes[stage] * math.prod(sizes[n] for n in near)


def _spread(table: _Table, scope: tuple[int, ...], sizes: list[int]) -> Ints:
    """The table broadcast over the axes of a wider scope."""
    return table.cost.reshape([sizes[v] if v in table.stages else 1 for v in scope])


def _backtrack(solved: list[tuple[int, tuple[int, ...], Ints]]) -> dict[int, int]:
    picked: dict[int, int] = {}
    for stage, around, best in reversed(solved):
        picked[stage] = int(best[tuple(picked[n] for n in around)])
    return picked
