"""Variables of the CP-SAT model, each with the value that a given plan gives it.

    x[o]         option o is chosen                                   o ∈ the options of its stage
    y[A]         some option of the set A of one stage is chosen      y = Σ_A x
    d[e, …]      a surcharge of edge e is due                         y[A] ∧ ¬y[B] → d
    w[a, b]      an edge between two classes of options               only for dense matrices of pairs
    W[k]         the weights of key k are loaded                      x[o] → W[key(o)]
    p[r]         the preferred affinity r is broken
    finish[v]    finish time, for stages that a limit can reach

Only complete hints are safe with CP-SAT: it drops an incomplete one in presolve. So every variable is
born with a function from a plan to its value.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from iegopt.problem.arrays import Problem
from iegopt.solvers.surcharges import EdgeTerms, PairTable, Surcharge

__all__ = ["Due", "EdgeVariables", "Variables"]

Ints = npt.NDArray[np.int64]
Value = Callable[[Ints], int]


@dataclass(frozen=True)
class Due:
    """A literal and the ticks of cost and time that it stands for."""

    literal: cp_model.IntVar
    cost: int
    time: int


@dataclass(frozen=True)
class EdgeVariables:
    """The terms of an edge with the literals that pay them."""

    terms: EdgeTerms
    due: tuple[Due, ...]


class Variables:
    """The model under construction and its variables.

    Parameters
    ----------
    options
        Per stage the option indices that the model may choose.
    """

    def __init__(self, problem: Problem, options: Sequence[Ints]) -> None:
        self.problem = problem
        self.options = options
        self.model = cp_model.CpModel()
        self.x: dict[int, cp_model.IntVar] = {}
        self._value: list[tuple[cp_model.IntVar, Value]] = []
        self._inside: dict[tuple[int, bytes], cp_model.IntVar] = {}
        for v, own in enumerate(options):
            for o in own.tolist():
                self.x[o] = self._new(_takes(v, frozenset([o])))
            self.model.add_exactly_one([self.x[o] for o in own.tolist()])

    def _new(self, value: Value) -> cp_model.IntVar:
        variable = self.model.new_bool_var("")
        self._value.append((variable, value))
        return variable

    def inside(self, stage: int, options: Ints) -> cp_model.IntVar:
        """y[A]: the stage takes one of ``options``, a subset of its own."""
        if len(options) == 1:
            return self.x[int(options[0])]
        key = (stage, options.tobytes())
        if key not in self._inside:
            y = self._new(_takes(stage, frozenset(options.tolist())))
            self.model.add(cp_model.LinearExpr.sum([self.x[o] for o in options.tolist()]) == y)
            self._inside[key] = y
        return self._inside[key]

    def finish(self, stage: int, upper: int, times: Callable[[Ints], Ints]) -> cp_model.IntVar:
        """finish[v] in 0..upper; ``times`` gives the finish times (V,) of a plan."""
        variable = self.model.new_int_var(0, upper, "")
        self._value.append((variable, lambda choice: min(upper, int(times(choice)[stage]))))
        return variable

    def literal(self, value: Value) -> cp_model.IntVar:
        """A literal of the caller's, with its value in a plan."""
        return self._new(value)

    def integer(self, upper: int, value: Value) -> cp_model.IntVar:
        """An integer of the caller's in 0..upper, with its value in a plan."""
        variable = self.model.new_int_var(0, upper, "")
        self._value.append((variable, value))
        return variable

    def loaded(self, keys: Ints) -> cp_model.IntVar:
        """W[k], where ``keys`` are the options that use the weights of key k."""
        members = frozenset(keys.tolist())
        loaded = self._new(lambda choice: int(not members.isdisjoint(choice.tolist())))
        for o in keys.tolist():
            self.model.add_implication(self.x[o], loaded)
        return loaded

    def broken(self, holds: Callable[[Ints], bool]) -> cp_model.IntVar:
        """p[r]: the affinity whose truth in a plan is ``holds`` may be broken."""
        return self._new(lambda choice: int(not holds(choice)))

    def edge(self, terms: EdgeTerms, exact: bool = False) -> EdgeVariables:
        """d or w of an edge, linked to the options of its ends; ``exact``: never true where the ends do not ask it."""
        edges = self.problem.edges
        u, v = int(edges.source[terms.edge]), int(edges.target[terms.edge])
        if terms.table is not None:
            return EdgeVariables(terms, self._pairs(u, v, terms.table))
        alike: dict[tuple[int, int, int], list[Surcharge]] = defaultdict(list)
        due = []
        for term in terms.surcharges:
            if exact or term.cost < 0 or term.time < 0:
                due.append(self._exact(u, v, term))
            else:
                alike[term.tier, term.cost, term.time].append(term)
        due += [self._at_least(u, v, group) for group in alike.values()]
        return EdgeVariables(terms, tuple(due))

    def _at_least(self, u: int, v: int, alike: list[Surcharge]) -> Due:
        """One d for surcharges of equal amount at one tier: the source is in one A of them at most."""
        ends = [(self.inside(u, term.source), self.inside(v, term.target)) for term in alike]
        sets = [(frozenset(term.source.tolist()), frozenset(term.target.tolist())) for term in alike]
        d = self._new(lambda choice: int(any(_is_due(int(choice[u]), int(choice[v]), *pair) for pair in sets)))
        for inside, met in ends:
            self.model.add_bool_or([~inside, met, d])
        if sum(len(term.source) for term in alike) == len(self.options[u]):  # then d says "apart" of both ends
            for inside, met in ends:
                self.model.add_bool_or([~met, inside, d])
        return Due(d, alike[0].cost, alike[0].time)

    def _exact(self, u: int, v: int, term: Surcharge) -> Due:
        """d ⇔ y[A] ∧ ¬y[B], for a surcharge that the objective or a limit would like to be due."""
        inside, met = self.inside(u, term.source), self.inside(v, term.target)
        sets = frozenset(term.source.tolist()), frozenset(term.target.tolist())
        d = self._new(lambda choice: int(_is_due(int(choice[u]), int(choice[v]), *sets)))
        self.model.add_bool_or([~inside, met, d])
        self.model.add_implication(d, inside)
        self.model.add_implication(d, ~met)
        return Due(d, term.cost, term.time)

    def _pairs(self, u: int, v: int, table: PairTable) -> tuple[Due, ...]:
        """w[a, b] with Σ_b w[a, b] = y[a] and Σ_a w[a, b] = y[b]."""
        rows, columns = table.cost.shape
        sources = [_takes(u, frozenset(part.tolist())) for part in table.source]
        targets = [_takes(v, frozenset(part.tolist())) for part in table.target]
        w = [[self._new(_both(a, b)) for b in targets] for a in sources]
        total = cp_model.LinearExpr.sum
        for a in range(rows):
            self.model.add(total(w[a]) == self.inside(u, table.source[a]))
        for b in range(columns):
            self.model.add(total([row[b] for row in w]) == self.inside(v, table.target[b]))
        return tuple(
            Due(w[a][b], int(table.cost[a, b]), int(table.time[a, b])) for a in range(rows) for b in range(columns)
        )

    def hint(self, choice: Ints) -> None:
        """Hint every variable from a plan of options that the model has."""
        for variable, value in self._value:
            self.model.add_hint(variable, value(choice))


def _takes(stage: int, options: frozenset[int]) -> Value:
    return lambda choice: int(int(choice[stage]) in options)


def _both(a: Value, b: Value) -> Value:
    return lambda choice: a(choice) * b(choice)


def _is_due(source: int, target: int, a: frozenset[int], b: frozenset[int]) -> bool:
    return source in a and target not in b
