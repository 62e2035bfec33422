"""The additive problem as plain tables, for peers that know no topology: options, pairs, capacities.

Every pair of options has its cost; forbidden pairs of an affinity are a mask. Costs are divided by their greatest
common divisor, so that a set in whole seconds is not posed in nanoseconds.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, combinations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Affinity, Problem
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.surcharges import allowed_of

__all__ = ["Load", "Pair", "Tables", "pairs_of", "too_many_pairs"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Pair:
    """Costs (A, B), in units, and forbidden pairs (A, B) between the options of two stages."""

    u: int
    v: int
    cost: Ints
    forbidden: Bools


@dataclass(frozen=True, eq=False)
class Load:
    """A device's capacity, and the places (stage, index of its option, share) that count on it."""

    capacity: int
    terms: tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, eq=False)
class Tables:
    """A problem in tables.

    ``options`` are the allowed options of every stage, ``unary`` their costs, both per stage; one unit of cost is
    ``unit`` ticks.
    """

    options: tuple[Ints, ...]
    unary: tuple[Ints, ...]
    pairs: tuple[Pair, ...]
    loads: tuple[Load, ...]
    unit: int

    @staticmethod
    def of(problem: Problem) -> Tables:
        """Tabulate a problem for which ``not_additive`` has nothing to say."""
        options = tuple(allowed_of(problem, v) for v in range(problem.V))
        tables: dict[tuple[int, int], tuple[Ints, Bools]] = {}
        for u, v, cost, forbidden in _between(problem, options):
            key, part = ((u, v), (cost, forbidden)) if u < v else ((v, u), (cost.T, forbidden.T))
            old = tables.get(key)
            tables[key] = part if old is None else (old[0] + part[0], old[1] | part[1])
        unit = _unit(chain((problem.options.cost[own] for own in options), (cost for cost, _ in tables.values())))
        return Tables(
            options,
            tuple(problem.options.cost[own] // unit for own in options),
            tuple(
                Pair(u, v, cost if unit == 1 else cost // unit, forbidden)
                for (u, v), (cost, forbidden) in tables.items()
            ),
            tuple(_loads(problem, options)),
            unit,
        )

    def choice(self, indices: list[int]) -> Ints:
        """Option indices of the problem from indices into ``options`` of every stage."""
        return np.array([own[i] for own, i in zip(self.options, indices, strict=True)], dtype=np.int64)

    def indices(self, choice: Ints) -> list[int] | None:
        """The reverse; ``None`` where an option is not allowed."""
        found = [np.flatnonzero(own == o) for own, o in zip(self.options, choice.tolist(), strict=True)]
        return [int(place[0]) for place in found] if all(place.size for place in found) else None


def pairs_of(problem: Problem) -> int:
    """Pairs of allowed options over all edges and affinities: the cells that ``Tables`` will hold."""
    count = np.bincount(problem.options.stage[problem.allowed], minlength=problem.V)
    joined = {tuple(sorted(pair)) for rule in problem.affinities for pair in combinations(rule.stages, 2)}
    joined |= {
        tuple(sorted(pair)) for pair in zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)
    }
    return int(sum(count[u] * count[v] for u, v in joined))


def too_many_pairs(problem: Problem, most: int) -> str | None:
    """Why tables of all pairs do not pay, or ``None``."""
    pairs = pairs_of(problem)
    return f"{pairs:,} pairs of options, more than {most:,}" if pairs > most else None


def _unit(costs: Iterable[Ints]) -> int:
    """The greatest common divisor; most problems in nanoseconds have none, and show it at once."""
    unit = 0
    for values in costs:
        unit = math.gcd(unit, int(np.gcd.reduce(values, axis=None))) if values.size else unit
        if unit == 1:
            break
    return max(unit, 1)


def _between(problem: Problem, options: tuple[Ints, ...]) -> Iterator[tuple[int, int, Ints, Bools]]:
    for e in range(problem.E):
        u, v = int(problem.edges.source[e]), int(problem.edges.target[e])
        cost = edge_ticks(problem, e, options[u][:, None], options[v][None, :])[1]
        yield u, v, cost, np.zeros(cost.shape, dtype=np.bool_)
    for rule in problem.affinities:
        for u, v in combinations(rule.stages, 2):
            broken = _together(problem, rule, options[u], options[v]) == rule.apart
            nothing = np.zeros(broken.shape, dtype=np.int64)
            if rule.required:
                yield u, v, nothing, broken
            else:
                yield u, v, np.where(broken, rule.penalty, nothing), np.zeros_like(broken)


def _together(problem: Problem, rule: Affinity, first: Ints, second: Ints) -> Bools:
    a, b = problem.options.site[first][:, None], problem.options.site[second][None, :]
    if rule.level < 0:
        return np.asarray(a == b)
    group = problem.topology.group[rule.level]
    return np.asarray((a == b) | ((group[a] == group[b]) & (group[a] >= 0)))


def _loads(problem: Problem, options: tuple[Ints, ...]) -> Iterator[Load]:
    """The devices on which the stages' largest shares do not all fit."""
    terms: list[list[tuple[int, int, int]]] = [[] for _ in range(problem.topology.D)]
    most = np.zeros((problem.topology.D, problem.V), dtype=np.int64)
    for v, own in enumerate(options):
        for i, o in enumerate(own.tolist()):
            share = int(problem.options.share[o])
            if share:
                for d in problem.topology.devices_of(int(problem.options.site[o])).tolist():
                    terms[d].append((v, i, share))
                    most[d, v] = max(most[d, v], share)
    for d in np.flatnonzero(most.sum(axis=1) > problem.capacity).tolist():
        yield Load(int(problem.capacity[d]), tuple(terms[d]))
