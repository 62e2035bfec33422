"""A plan whose whole neighbourhood is kept priced: every shift of a stage and every swap of two, by array operations.

For every option o of every stage the tables keep

    potential[o] = cost(o) + Σ over the other stages of the pair cost of o and their choice

up to date by two rows of the pair matrix a move, so that the exact change of the objective is a difference of
potentials. Two stages v, w that take each other's sites by options a, b (from v', w') change it by

    potential[a] − potential[v'] + potential[b] − potential[w'] − p(a, w') − p(b, v') + p(v', w') + p(a, b)

where the edge between both would be counted against where the other was. Overload is measured in fractions
of a device's capacity.

Source of the tables: Taillard, Robust taboo search for the quadratic assignment problem, Parallel Computing 17 (1991).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.errors import InternalError
from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.evaluate import device_load, objective
from iegopt.solvers.search.moves import cheapest_by_site

__all__ = ["MOST_PAIRED", "MoveTables", "untabled"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_PAIRED = 2_000
"""Options of a problem with edges up to which the matrix of their pairs is stated: 32 MB."""
_LEAST_WORTH = 0.1
"""What a device is worth at least, in parts of the mean."""


def untabled(problem: Problem) -> str | None:
    """What of a problem the tables cannot state, ``None`` where they can state all."""
    if problem.timed:
        return "start times, overlaps and the makespan"
    if problem.has_path_limits:
        return "limits along paths"
    if problem.budget < NO_LIMIT:
        return "a budget of time"
    if problem.affinities:
        return "affinities"
    if bool((problem.options.weight_key >= 0).any()):
        return "weights that stages share"
    return None


class MoveTables:
    """Mutable; ``start`` and ``move`` are the only things that change the plan.

    Parameters
    ----------
    check
        Recompute everything in full after every move and raise ``InternalError`` on a difference.
    worth (D,)
        What the memory of every device is worth, in any unit; as much everywhere, where it is not given.

    Attributes
    ----------
    choice (V,), value
        The plan, which may overload devices, and its objective in ticks.
    excess (D,)
        Load − capacity.
    overload
        Σ over the devices of the excess above 0, as fractions of their capacities, weighted by what they are worth
        against the mean; exactly 0 for a feasible plan.
    """

    def __init__(self, problem: Problem, check: bool = False, worth: Floats | None = None) -> None:
        self.problem, self.check = problem, check
        options, topology = problem.options, problem.topology
        self.stage = options.stage
        self.pairs = _pair_costs(problem)
        self.scale = 1.0 / np.maximum(problem.capacity, 1)
        if worth is not None and worth.any():
            self.scale *= np.maximum(worth / worth.mean(), _LEAST_WORTH)
        self.choice = options.ptr[:-1].copy()
        self.potential = options.cost.copy()
        self.excess = -problem.capacity
        self.value = 0
        # One entry for every device of every option's site.
        width = topology.width[options.site]
        self._first = np.cumsum(width) - width
        within = np.arange(int(width.sum())) - np.repeat(self._first, width)
        self._device = topology.device_index[np.repeat(topology.device_ptr[options.site], width) + within]
        self._need = np.repeat(options.share, width)
        self._own_at = np.repeat(self.stage, width) * topology.D + self._device
        self._entry_scale = self.scale[self._device]
        self._own = np.zeros((problem.V, topology.D), dtype=np.int64)
        self.single = bool((topology.width == 1).all())
        self._pair = np.triu_indices(problem.V, 1)
        self._at = np.stack([cheapest_by_site(problem, v) for v in range(problem.V)])

    @property
    def overload(self) -> float:
        return float((np.maximum(self.excess, 0) * self.scale).sum())

    @property
    def feasible(self) -> bool:
        return bool((self.excess <= 0).all())

    def start(self, choice: Ints) -> None:
        """Take over a plan."""
        problem = self.problem
        self.choice = choice.copy()
        self.potential = problem.options.cost.copy()
        if self.pairs is not None:
            self.potential += self.pairs[choice].sum(axis=0)
        self.value = objective(problem, choice)
        self.excess = -problem.capacity
        self._own = np.zeros_like(self._own)
        for v, option in enumerate(choice.tolist()):
            self._bear(v, option, 1)

    def shifts(self) -> tuple[Ints, Floats]:
        """(O,) change of the objective in ticks and of the overload by giving every option to its stage."""
        delta = self.potential - self.potential[self.choice].take(self.stage)
        load = self.excess.take(self._device)
        free = load - self._own.take(self._own_at)
        emptied = np.maximum(free, 0)
        added = (np.maximum(free + self._need, 0) - emptied) * self._entry_scale
        if self.single:
            here = self.choice
            left = (emptied[here] - np.maximum(load[here], 0)) * self._entry_scale[here]
        else:
            left = (emptied - np.maximum(load, 0)) * self._entry_scale
            left = np.add.reduceat(left, self._first)[self.choice]
            added = np.add.reduceat(added, self._first)
        return delta, added + left.take(self.stage)

    def swaps(self) -> tuple[Ints, Ints, Ints, Floats]:
        """Two stages to each other's sites, for all V (V − 1) / 2 pairs; sites of one device only.

        Returns
        -------
        The options that the first and the second stage of every pair take (−1: there is none, or both share a site),
        the change of the objective in ticks, and of the overload; the last two mean nothing beside a −1.
        """
        options, choice = self.problem.options, self.choice
        v, w = self._pair
        site = options.site[choice]
        offers = self._at[:, site]
        a, b = offers[v, w], offers[w, v]
        a = np.where((a < 0) | (b < 0) | (site[v] == site[w]), -1, a)
        at_v, at_w = choice[v], choice[w]
        potential, pairs = self.potential, self.pairs
        delta = (potential[a] - potential[at_v]) + (potential[b] - potential[at_w])
        if pairs is not None:
            delta += pairs[at_v, at_w] + pairs[a, b] - pairs[a, at_w] - pairs[b, at_v]
        device = self.problem.topology.device_index[site]
        own, share, excess = options.share[choice], options.share, self.excess[device]
        positive, scale = np.maximum(excess, 0), self.scale[device]
        added = (np.maximum(excess[w] - own[w] + share[a], 0) - positive[w]) * scale[w]
        added += (np.maximum(excess[v] - own[v] + share[b], 0) - positive[v]) * scale[v]
        return a, b, delta, added

    def swapped(self, number: int) -> tuple[int, int]:
        """The stages of a pair of ``swaps``."""
        return int(self._pair[0][number]), int(self._pair[1][number])

    def move(self, stage: int, option: int) -> None:
        """Give a stage an option."""
        before = int(self.choice[stage])
        self.value += int(self.potential[option]) - int(self.potential[before])
        if self.pairs is not None:
            self.potential += self.pairs[option]
            self.potential -= self.pairs[before]
        self._bear(stage, before, -1)
        self._bear(stage, option, 1)
        self.choice[stage] = option
        if self.check:
            self._recompute()

    def _bear(self, stage: int, option: int, sign: int) -> None:
        """Put a stage's share on the devices of an option, or take it off."""
        options = self.problem.options
        devices = self.problem.topology.devices_of(int(options.site[option]))
        share = sign * options.share[option]
        self._own[stage, devices] += share
        self.excess[devices] += share

    def _recompute(self) -> None:
        full = MoveTables(self.problem)
        full.start(self.choice)
        same = full.value == self.value and all(
            np.array_equal(mine, new)
            for mine, new in (
                (self.potential, full.potential),
                (self.excess, full.excess),
                (self.excess + self.problem.capacity, device_load(self.problem, self.choice)),
            )
        )
        if not same:
            raise InternalError(f"tabu search: objective {self.value} by deltas, {full.value} in full, or loads differ")


def _pair_costs(problem: Problem) -> Ints | None:
    """(O, O) ticks that two options of different stages cost together, whichever way their edges run; or ``None``."""
    edges = np.flatnonzero(problem.edges.weight > 0).tolist()
    if not edges:
        return None
    count, ptr = len(problem.options.site), problem.options.ptr
    matrix = np.zeros((count, count), dtype=np.int64)
    for e in edges:
        u, v = int(problem.edges.source[e]), int(problem.edges.target[e])
        source, target = np.arange(ptr[u], ptr[u + 1]), np.arange(ptr[v], ptr[v + 1])
        ticks = edge_ticks(problem, e, source[:, None], target[None, :])[1]
        matrix[ptr[u] : ptr[u + 1], ptr[v] : ptr[v + 1]] += ticks
        matrix[ptr[v] : ptr[v + 1], ptr[u] : ptr[u + 1]] += ticks.T
    return matrix
