"""Ruin and recreate by the compiled kernel (``kernels.rebuild``), where nothing but memory couples the stages."""

from __future__ import annotations

import random

import numpy as np
import numpy.typing as npt

from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import lag
from iegopt.solvers.evaluate import device_load, feasible, objective
from iegopt.solvers.exact.compiled import as_ints, kernels
from iegopt.solvers.exact.link_prices import ticks_of
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.passes import packed
from iegopt.solvers.exact.relaxation import Relaxation
from iegopt.solvers.search.tables import untabled

__all__ = ["CompiledRebuild", "compilable", "layout_seconds"]

Ints = npt.NDArray[np.int64]
_ROUND_PER_STAGE, _ROUND_PER_OPTION = 1.2e-3, 1e-6
"""Seconds of a round per stage and per allowed option."""
_OPTION_NEEDS = 8e-8
"""Seconds that laying out takes per option, as measured on one core of a server."""


def compilable(relaxed: Relaxation) -> bool:
    """Whether this process has the kernel, and it can state the problem."""
    return kernels() is not None and not relaxed.messages.dense and untabled(relaxed.problem) is None


def layout_seconds(problem: Problem) -> float:
    """What the kernel's arrays take to be laid out."""
    return lag() * _OPTION_NEEDS * len(problem.options.site)


class CompiledRebuild:
    """Steps from a feasible plan; ``check`` recomputes it after every call.

    Attributes
    ----------
    best
        The best (objective, plan) so far.
    round_seconds, rounds
        How long a round lasts; in turn, how many stages it takes off at most, and the heat it starts from, in parts of
        what a stage's options differ by: as measured on tight problems of 50 stages.
    """

    rounds = ((25, 0.8), (8, 0.1))

    def __init__(self, relaxed: Relaxation, best: tuple[int, Ints], rng: random.Random, check: bool) -> None:
        problem = self._problem = relaxed.problem
        self._check = check
        self.round_seconds = _ROUND_PER_STAGE * problem.V + _ROUND_PER_OPTION * int(problem.allowed.sum())
        self._layout, self._prices = packed(relaxed.messages, relaxed.forest)
        self._graph, self._least = _graph(relaxed), _least(relaxed)
        self._groups = _groups(problem)
        self._state = np.array([rng.randrange(1, 2**63)], dtype=np.uint64)
        self._values = np.array([best[0], best[0]], dtype=np.int64)
        self._best = as_ints(best[1]).copy()
        self.restart()

    @property
    def best(self) -> tuple[int, Ints]:
        return int(self._values[1]), self._best.copy()

    def restart(self) -> None:
        """Go back to the best plan."""
        self._values[0] = self._values[1]
        self._choice = self._best.copy()
        self._free = self._problem.capacity - device_load(self._problem, self._best)

    def go(self, heat: float, most: int, steps: int) -> None:
        """Take steps that take at most ``most`` stages off, at a heat in ticks."""
        core = kernels()
        assert core is not None
        core.rebuild(
            self._layout, self._prices, self._graph, self._least, self._groups, most, heat, steps, self._state,
            self._values, self._free, self._choice, self._best,
        )  # fmt: skip
        if self._check:
            self._recompute()

    def _recompute(self) -> None:
        problem = self._problem
        for value, plan in zip(self._values.tolist(), (self._choice, self._best), strict=True):
            if value != objective(problem, plan) or not feasible(problem, plan):
                raise InternalError(f"rebuild: {value} by deltas, {objective(problem, plan)} in full, or infeasible")
        if not np.array_equal(self._free, problem.capacity - device_load(problem, self._choice)):
            raise InternalError("rebuild: free memory by deltas is not what it is in full")


def _graph(relaxed: Relaxation) -> tuple[Ints, ...]:
    problem, messages = relaxed.problem, relaxed.messages
    options, topology = problem.options, problem.topology
    ends: list[list[tuple[int, int]]] = [[] for _ in range(problem.V)]
    for e, (u, w) in enumerate(zip(messages.source, messages.target, strict=True)):
        ends[u].append((e, w))
        ends[w].append((e, u))
    flat = [pair for own in ends for pair in own]
    offer = np.flatnonzero(problem.allowed)
    cell = options.stage[offer] * topology.S + messages.position[offer]
    if not (cell[1:] > cell[:-1]).all():
        by = np.lexsort([options.cost[offer], cell])
        offer, cell = offer[by], cell[by]
    return (
        as_ints(np.cumsum([0, *map(len, ends)])),
        as_ints([e for e, _ in flat]),
        as_ints([w for _, w in flat]),
        as_ints(np.append(0, np.cumsum(np.bincount(cell, minlength=problem.V * topology.S)))),
        as_ints(offer),
        as_ints(options.site),
        as_ints(options.cost),
        as_ints(options.share),
        as_ints(topology.device_ptr),
        as_ints(topology.device_index),
    )


def _least(relaxed: Relaxation) -> tuple[Ints, Ints]:
    """(V, N) of what no option below a node of the tree costs less; (E, links) of what no edge pays less on a link."""
    problem, messages, prices = relaxed.problem, relaxed.messages, relaxed.messages.prices
    options, sites = problem.options, problem.topology.S
    cost = np.full((problem.V, sites), UNREACHABLE)
    np.minimum.at(cost, (options.stage, messages.position), np.where(problem.allowed, options.cost, UNREACHABLE))
    levels = [cost]
    for level in messages.tree.levels:
        levels.append(np.minimum.reduceat(levels[-1], level.start, axis=1))
    paid = prices.ticks.min(axis=0)
    for e, hidden in enumerate(problem.edges.hidden):
        if hidden is not None:
            paid[e] = ticks_of(prices.least[:, e].min(axis=0), problem.edges.weight[e])
    return as_ints(np.concatenate(levels, axis=1)), as_ints(paid)


def _groups(problem: Problem) -> Ints:
    """(L, S) the group of every site at every level that has several, a group of its own where it has none."""
    group, sites = problem.topology.group, np.arange(problem.topology.S)
    rows = [np.where(row >= 0, row, -1 - sites) for row in group]
    several = [row for row in rows if len(row) and (row != row[0]).any()]
    return as_ints(np.stack(several)) if several else np.zeros((0, len(sites)), dtype=np.int64)
