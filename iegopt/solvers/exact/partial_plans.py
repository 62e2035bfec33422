"""What partial plans of a beam have to know: the order of the stages, the memory still free, affinities.

``chosen`` is (N, V) candidates of N partial plans, counted within their stage.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Affinity
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.compiled import as_ints, kernels
from iegopt.solvers.exact.couplings import pairs_of
from iegopt.solvers.exact.reduction import Reduction

__all__ = ["Course", "FreeMemory", "Memory", "course", "rest_of_penalty"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


_PER_DOUBLE = 4
"""By how much a stage of twice as many options is larger."""


@dataclass(frozen=True)
class Course:
    """An order of the stages, parents first.

    Attributes
    ----------
    order
        Stages.
    joining, closing
        Per place in the order the couplings (coupling, other end) that lead to stages before: those that the bound of
        the node knows in full, and those that are split.
    rules
        Per place the preferred affinities of over two stages whose last stands there, by their place in the problem.
    ahead
        Per place the stages up to it that something later depends on: an edge, an affinity, shared weights.
    """

    order: tuple[int, ...]
    joining: tuple[tuple[tuple[int, int], ...], ...]
    closing: tuple[tuple[tuple[int, int], ...], ...]
    rules: tuple[tuple[int, ...], ...]
    ahead: tuple[tuple[int, ...], ...]

    @cached_property
    def ahead_of(self) -> tuple[Ints, ...]:
        """``ahead`` as arrays."""
        return tuple(np.array(stages, dtype=np.int64) for stages in self.ahead)


def course(c: Candidates, sized: bool = False) -> Course:
    """An order in which few stages are ahead at any time; if ``sized``, few combinations of their options."""
    sizes = tuple(round(_PER_DOUBLE * math.log2(1 + part.stop - part.start)) if sized else 1 for part in c.of)
    rules = tuple(() if rule.required else tuple(set(rule.stages)) for rule in c.problem.affinities)
    return _course(c.reduction, c.ends, rules, _sharing(c), sizes)


@lru_cache(maxsize=64)
def _course(
    reduction: Reduction,
    ends: tuple[tuple[int, int], ...],
    rules: tuple[tuple[int, ...], ...],
    sharing: tuple[int, ...],
    sizes: tuple[int, ...],
) -> Course:
    V = len(reduction.order)
    needs: list[set[int]] = [set() for _ in range(V)]  # stages that look at a stage, or are looked at
    below = [(*parents, v) for v, parents in enumerate(reduction.parents)]
    for group in (*below, *(ends[e] for e in reduction.dropped), *rules, sharing):
        for v in group:
            needs[v].update(set(group) - {v})
    place: dict[int, int] = {}
    children: list[list[int]] = [[] for _ in range(V)]
    for v, parents in enumerate(reduction.parents):
        for w in set(parents):
            children[w].append(v)
    unplaced = [len(set(parents)) for parents in reduction.parents]
    missing, frees = [len(own) for own in needs], [0] * V  # what a stage waits for; sizes of those that it frees
    open_stages = {v for v in range(V) if not unplaced[v]}
    while open_stages:
        # The stage after which the placed ones that still wait for another have the fewest combinations of options.
        v = min(open_stages, key=lambda v: ((missing[v] > 0) * sizes[v] - frees[v], sizes[v], v))
        place[v] = len(place)
        open_stages.remove(v)
        for w in children[v]:
            unplaced[w] -= 1
            if not unplaced[w]:
                open_stages.add(w)
        for w in needs[v]:
            missing[w] -= 1
        for w in (v, *needs[v]):
            if w in place and missing[w] == 1:
                frees[next(u for u in needs[w] if u not in place)] += sizes[w]
    closing: list[list[tuple[int, int]]] = [[] for _ in range(V)]
    for e in reduction.dropped:
        first, last = sorted(ends[e], key=place.__getitem__)
        closing[place[last]].append((e, first))
    ending: list[list[int]] = [[] for _ in range(V)]
    for i, stages in enumerate(rules):
        if len(stages) > 2:  # the couplings have all of the others
            ending[max(place[v] for v in stages)].append(i)
    order = tuple(place)
    until = [max((place[w] for w in needs[v]), default=-1) for v in range(V)]
    ahead = [tuple(v for v in order[: i + 1] if until[v] > i) for i in range(V)]
    joining = [
        tuple((e, p) for p, own in zip(reduction.parents[v], reduction.couplings[v], strict=True) for e in own)
        for v in order
    ]
    return Course(order, tuple(joining), tuple(map(tuple, closing)), tuple(map(tuple, ending)), tuple(ahead))


def _sharing(c: Candidates) -> tuple[int, ...]:
    """Stages with candidates whose weights another one shares."""
    key = c.weight_key
    if not (key >= 0).any():
        return ()
    pairs = np.unique(np.stack([key, c.stage])[:, key >= 0], axis=1)
    _, own, count = np.unique(pairs[0], return_inverse=True, return_counts=True)
    return tuple(np.unique(pairs[1][count[own] > 1]).tolist())


class Memory:
    """What the stages of partial plans take, and what of it matters later.

    Attributes
    ----------
    later (V, D + 1)
        By place what the stages after it could take; 0 of devices that no plan overfills.
    """

    def __init__(self, c: Candidates, order: Sequence[int]) -> None:
        self._c = c
        self._key = c.weight_key
        self._weight = np.where(self._key >= 0, c.weight_share, 0)
        self._keyed = bool((self._weight > 0).any())
        self._sharing = frozenset(_sharing(c))
        self._need = c.share + self._weight
        self.later = _needs_later(c, self._need, order)

    def need(self, chosen: Ints, first: Ints, placed: Sequence[int], stage: int) -> Ints:
        """(G or 1, m) memory that options of a stage take from each of their devices; ``first`` (G,) of each group."""
        part = self._c.of[stage]
        share = self._c.share[part]
        if not self._keyed:
            return share[None, :]
        new = np.ones((1, len(share)), dtype=np.bool_)
        if stage in self._sharing:
            for w in placed:
                if w in self._sharing:
                    own = self._key[self._c.of[w]][chosen[first, w]]
                    new = new & (own[:, None] != self._key[part][None, :])
        return np.asarray(share[None, :] + np.where(new, self._weight[part], 0))


class FreeMemory(Memory):
    """With it the free memory of the devices that plans could overfill, as steps by numpy keep it.

    ``free`` (N, F + 1) has a column for each of these, and one for all other devices, which is the last. It never
    counts more than the stages to come could take, so that equal rows mean equal room.
    """

    def __init__(self, c: Candidates, order: Sequence[int]) -> None:
        super().__init__(c, order)
        used = np.flatnonzero(self.later[0] > 0)
        column = np.full(len(c.capacity), len(used))
        column[used] = np.arange(len(used))
        self._column = column[c.devices]
        self._later = np.append(self.later[:, used], np.full((c.V, 1), NO_LIMIT), axis=1)
        self.free = np.append(c.capacity[used], NO_LIMIT)[None, :]

    def fits(self, taken: Ints, plan: Ints, option: Ints, stage: int) -> Bools:
        """(P,) whether ``taken`` (P,) fits where partial plans ``plan`` (P,) of N take ``option`` (P,) each."""
        option = option + self._c.of[stage].start
        fits: Bools = (self.free[plan, self._column.take(option, 1)] >= taken).all(axis=0)
        if self._some_too_large:
            fits &= (taken <= self._c.capacity[self._c.devices[:, option]]).all(axis=0)
        return fits

    def spared(self, place: int, stage: int) -> Bools:
        """(m,) which options of a stage use no device that the stages to come could overfill."""
        matters = self._later[place] > 0
        matters[-1] = False
        return np.asarray(~matters[self._column[:, self._c.of[stage]]].any(axis=0))

    def take(self, taken: Ints, plan: Ints, option: Ints, place: int, stage: int) -> Ints:
        """(P, F + 1) what is free after that."""
        column = self._column.take(option + self._c.of[stage].start, 1)
        free = self.free.take(plan, 0)
        free[np.arange(len(plan)), column] -= taken
        np.minimum(free, self._later[place], out=free)
        free[:, -1] = NO_LIMIT
        return free

    @cached_property
    def _some_too_large(self) -> bool:
        """Whether an option takes more than all of a device."""
        return bool((self._need > self._c.capacity[self._c.devices]).any())


def _needs_later(c: Candidates, need: Ints, order: Sequence[int]) -> Ints:
    """(V, D + 1) ``Memory.later`` where options take ``need`` (n,) from each of their devices."""
    core, shape = kernels(), (c.V, len(c.capacity))
    if core is not None:
        later: Ints = np.empty(shape, dtype=np.int64)
        ptr = np.array([0, *(part.stop for part in c.of)])
        core.needs_later(need, as_ints(c.devices), ptr, np.array(order), c.capacity, later)
        return later
    most, by = np.zeros(c.V * shape[1], dtype=np.int64), np.argsort(need)
    # Of several options on a device the last counts, which is the largest.
    most[(c.stage * shape[1] + c.devices).T[by].ravel()] = np.repeat(need[by], len(c.devices))
    total = np.cumsum(most.reshape(shape)[list(order)][::-1], axis=0)[::-1]
    later = np.append(total[1:], np.zeros((1, len(c.capacity)), dtype=np.int64), axis=0)
    later[:, total[0] <= c.capacity] = 0
    return later


def rest_of_penalty(c: Candidates, rule: Affinity, chosen: Ints, stage: int) -> Ints:
    """(N, m) ticks that a broken rule costs more than its couplings say, with every option of its last stage."""
    topology = c.problem.topology
    group = np.arange(topology.S)
    if rule.level >= 0:
        group = np.where(topology.group[rule.level] >= 0, topology.group[rule.level], -1 - group)
    of = group[c.problem.options.site[c.option]]
    shape = len(chosen), c.of[stage].stop - c.of[stage].start
    broken, charged = np.zeros(shape, dtype=np.bool_), np.zeros(shape, dtype=np.int64)
    for u, v, ticks in pairs_of(rule):
        at = [of[c.of[w]][None, :] if w == stage else of[c.of[w]][chosen[:, w]][:, None] for w in (u, v)]
        breaks = (at[0] == at[1]) == rule.apart
        broken |= breaks
        charged += np.where(breaks, ticks, 0)
    return np.where(broken, rule.penalty, 0) - charged
