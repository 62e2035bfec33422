"""The grain of a problem: the greatest number of ticks of which every cost is a multiple.

The costs of any two plans then differ by a multiple of it, so that a bound may be rounded up to one, and what is to
be better than a plan must be better by a grain. Costs from a model have a grain of one tick; those that were counted in
whole units, such as published sets, one of a unit.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

import numpy as np

from iegopt.problem.arrays import Problem
from iegopt.problem.transfer import edge_ticks

__all__ = ["grain_of", "grain_seconds", "next_value"]

_SAMPLE = 64
"""Options that are looked at first."""
_MOST_PAIRS = 400_000
"""Pairs of options in all up to which edges are looked at: a tenth of a second, which no clock ends."""

_EDGE_NEEDS, _CELL_NEEDS = 6e-5, 4e-8
"""Seconds that an edge takes, and more for every pair of its options, as measured on one core of a server."""

_known: WeakKeyDictionary[Problem, int] = WeakKeyDictionary()


def grain_of(problem: Problem) -> int:
    """Ticks; 1 where nothing more is known."""
    grain = _known.get(problem)
    if grain is None:
        grain = _known[problem] = _measured(problem)
    return grain


def grain_seconds(problem: Problem) -> float:
    """Roughly what it takes to find out, as measured on one core of a server; 0 where it is known or soon seen."""
    if problem in _known or not _coarse(problem):
        return 0.0
    cells = _cells(problem)
    return _EDGE_NEEDS * problem.E + _CELL_NEEDS * cells if cells <= _MOST_PAIRS else 0.0


def next_value(problem: Problem, bound: int) -> int:
    """The least value of a plan, in ticks, that is not below a bound."""
    grain = grain_of(problem)
    return -(-bound // grain) * grain


def _measured(problem: Problem) -> int:
    if not _coarse(problem):
        return 1
    cost, edges = problem.options.cost, problem.edges
    grain = int(np.gcd.reduce([*(rule.penalty for rule in problem.affinities), int(np.gcd.reduce(cost))]))
    if _cells(problem) > _MOST_PAIRS:
        return 1
    ptr = problem.options.ptr.tolist()
    for e, (u, v) in enumerate(zip(edges.source.tolist(), edges.target.tolist(), strict=True)):
        if grain == 1:
            break
        source, target = np.arange(ptr[u], ptr[u + 1])[:, None], np.arange(ptr[v], ptr[v + 1])[None, :]
        grain = int(np.gcd(grain, np.gcd.reduce(edge_ticks(problem, e, source, target)[1], axis=None)))
    return max(1, grain)


def _coarse(problem: Problem) -> bool:
    """Whether a look at a few options leaves a grain of more than a tick."""
    return problem.makespan_weight == 0 and int(np.gcd.reduce(problem.options.cost[:_SAMPLE])) != 1


def _cells(problem: Problem) -> int:
    count = np.diff(problem.options.ptr)
    return int((count[problem.edges.source] * count[problem.edges.target]).sum())
