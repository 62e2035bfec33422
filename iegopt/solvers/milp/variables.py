"""The mixed-integer programme under construction: columns, rows, and the columns of the placement model.

    x[o] ∈ {0, 1}   option o is chosen
    y[A]  = Σ_A x   some option of a set of one stage is chosen
    w ∈ [0, 1]      a surcharge is due:  w ≥ y[A] − y[B]; one per edge, level and group
    w[a, b]         an edge between two classes of options, with its marginals; only for dense matrices of pairs
    W[k] ∈ [0, 1]   the weights of key k are loaded
    p[r] ∈ [0, 1]   the preferred affinity r is broken
    finish[v] ≥ 0   finish time in units of ``time_unit`` ticks

Only the x are integers: with them fixed, every other column has an integral best value. The relaxation in w and y
is as tight as one product variable per pair of sites with both marginals (a transport on a tree).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.surcharges import EdgeTerms, PairTable, Surcharge

__all__ = ["Due", "EdgeColumns", "Row", "Sense", "Variables"]

Ints = npt.NDArray[np.int64]
Sense = Literal["<=", ">=", "=="]


@dataclass(frozen=True)
class Row:
    """Σ coefficient·column (sense) right-hand side."""

    terms: dict[int, float]
    sense: Sense
    rhs: float


@dataclass(frozen=True)
class Due:
    """A column and the ticks of cost and time that it stands for."""

    column: int
    cost: int
    time: int


@dataclass(frozen=True)
class EdgeColumns:
    """The terms of an edge with the columns that pay them."""

    terms: EdgeTerms
    due: tuple[Due, ...]


class Variables:
    """Columns and rows.

    Parameters
    ----------
    options
        Per stage the option indices that the programme may choose.

    Attributes
    ----------
    upper, integer
        Per column the upper bound (``None``: none) and whether it is an integer; every lower bound is 0.
    rows
        The rows so far.
    """

    def __init__(self, problem: Problem, options: Sequence[Ints]) -> None:
        self.problem = problem
        self.options = options
        self.upper: list[float | None] = []
        self.integer: list[bool] = []
        self.rows: list[Row] = []
        self._inside: dict[tuple[int, bytes], int] = {}
        self.x: dict[int, int] = {o: self.column(integer=True) for own in options for o in own.tolist()}
        for own in options:
            self.add({self.x[o]: 1 for o in own.tolist()}, "==", 1)

    def column(self, upper: float | None = 1.0, *, integer: bool = False) -> int:
        """A new column with lower bound 0."""
        self.upper.append(upper)
        self.integer.append(integer)
        return len(self.upper) - 1

    def add(self, terms: dict[int, float], sense: Sense, rhs: float) -> None:
        """A new row."""
        self.rows.append(Row(terms, sense, rhs))

    def inside(self, stage: int, options: Ints) -> int:
        """y[A]: the stage takes one of ``options``, a subset of its own."""
        if len(options) == 1:
            return self.x[int(options[0])]
        key = (stage, options.tobytes())
        if key not in self._inside:
            y = self.column()
            self.add({y: -1.0, **{self.x[o]: 1.0 for o in options.tolist()}}, "==", 0)
            self._inside[key] = y
        return self._inside[key]

    def loaded(self, users: Ints) -> int:
        """W[k] ≥ Σ x over the options of one stage that use the weights, for every stage."""
        loaded = self.column()
        stage = self.problem.options.stage[users]
        for v in np.unique(stage).tolist():
            self.add({loaded: -1.0, **{self.x[o]: 1.0 for o in users[stage == v].tolist()}}, "<=", 0)
        return loaded

    def edge(self, terms: EdgeTerms) -> EdgeColumns:
        """w of an edge, linked to the options of its ends."""
        edges = self.problem.edges
        u, v = int(edges.source[terms.edge]), int(edges.target[terms.edge])
        if terms.table is not None:
            return EdgeColumns(terms, self._pairs(u, v, terms.table))
        return EdgeColumns(terms, tuple(self._surcharge(u, v, term) for term in terms.surcharges))

    def _surcharge(self, u: int, v: int, term: Surcharge) -> Due:
        """w ≥ y[A] − y[B]; and w ≤ y[A], w ≤ 1 − y[B] where the programme would like it to be due."""
        w = self.column()
        inside, met = self.inside(u, term.source), self.inside(v, term.target)
        self.add({inside: 1, met: -1, w: -1}, "<=", 0)
        if term.cost < 0 or term.time < 0:
            self.add({w: 1, inside: -1}, "<=", 0)
            self.add({w: 1, met: 1}, "<=", 1)
        return Due(w, term.cost, term.time)

    def _pairs(self, u: int, v: int, table: PairTable) -> tuple[Due, ...]:
        """w[a, b] with Σ_b w[a, b] = y[a] and Σ_a w[a, b] = y[b]."""
        rows, columns = table.cost.shape
        w = [[self.column() for _ in range(columns)] for _ in range(rows)]
        for a in range(rows):
            self.add({**dict.fromkeys(w[a], 1.0), self.inside(u, table.source[a]): -1.0}, "==", 0)
        for b in range(columns):
            self.add({**{row[b]: 1.0 for row in w}, self.inside(v, table.target[b]): -1.0}, "==", 0)
        return tuple(
            Due(w[a][b], int(table.cost[a, b]), int(table.time[a, b])) for a in range(rows) for b in range(columns)
        )
