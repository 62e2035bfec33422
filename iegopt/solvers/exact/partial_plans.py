"""What partial plans of a beam have to know: the order of the stages, the memory still free, affinities.

``chosen`` is (N, V) candidates of N partial plans, counted within their stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Affinity
from iegopt.problem.hashing import hash_factors
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.compiled import as_ints, kernels
from iegopt.solvers.exact.couplings import pairs_of
from iegopt.solvers.exact.reduction import Reduction

__all__ = ["Course", "Memory", "course", "rest_of_penalty", "undominated"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_COMPARED, _SPANS = 32, (1, 2, 4, 8, 16, 33)
"""With how many next cheaper plans each is compared, and with which of them at a time."""
_EARLIER = np.tri(_COMPARED + 1, k=-1, dtype=np.bool_)
"""Pairs of a plan and one before it."""
_MANY, _CELLS = 200, 1 << 20
"""Plans from which on a look at the devices they use spares comparisons; cells compared at a time."""


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


def course(c: Candidates) -> Course:
    """An order in which few stages are ahead at any time."""
    rules = tuple(() if rule.required else tuple(set(rule.stages)) for rule in c.problem.affinities)
    return _course(c.reduction, c.ends, rules, _sharing(c))


@lru_cache(maxsize=64)
def _course(
    reduction: Reduction,
    ends: tuple[tuple[int, int], ...],
    rules: tuple[tuple[int, ...], ...],
    sharing: tuple[int, ...],
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
    missing, frees = [len(own) for own in needs], [0] * V  # what a stage waits for; how many wait for it alone
    open_stages = {v for v in range(V) if not unplaced[v]}
    while open_stages:
        # The stage after which the fewest placed ones still wait for another.
        v = min(open_stages, key=lambda v: ((missing[v] > 0) - frees[v], v))
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
                frees[next(u for u in needs[w] if u not in place)] += 1
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
    """Free memory of the devices that partial plans use so far and that the stages to come could overfill.

    ``free`` (N, F + 1) has a column for each of these, and with numpy one for all other devices, which is the last. It
    never counts more than the stages to come could take, so that equal rows mean equal room.
    """

    def __init__(self, c: Candidates, order: Sequence[int]) -> None:
        self._c = c
        self._key = c.weight_key
        self._weight = np.where(self._key >= 0, c.weight_share, 0)
        self._keyed = bool((self._weight > 0).any())
        self._sharing = frozenset(_sharing(c))
        self._need = c.share + self._weight
        self.later = _needs_later(c, self._need, order)
        """(V, D + 1) by place what the stages after it could take; 0 of devices that no plan overfills."""
        self.column = np.full(len(c.capacity), -1)
        """(D + 1,) the column of every device, −1 where it has none."""
        self.used = np.zeros(0, dtype=np.int64)
        """(F,) the device of every column."""
        self.free = np.full((1, 1), NO_LIMIT)

    def lasting(self, place: int) -> int:
        """How many of the columns go on after a place."""
        return int(np.count_nonzero(self.later[place][self.used]))

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

    def fits(self, taken: Ints, plan: Ints, option: Ints, stage: int) -> Bools:
        """(P,) whether ``taken`` (P,) fits where partial plans ``plan`` (P,) of N take ``option`` (P,) each."""
        devices = self._c.devices[:, self._c.of[stage].start + option]
        fits: Bools = (self.free[plan, self.column[devices]] >= taken).all(axis=0)
        if self._some_too_large:
            fits &= (taken <= self._c.capacity[devices]).all(axis=0)
        return fits

    def take(self, taken: Ints, plan: Ints, option: Ints, place: int, stage: int) -> Ints:
        """(P, F + 1) what is free after that; columns come and go."""
        devices, later = self._c.devices[:, self._c.of[stage].start + option], self.later[place]
        lasting, new = later[self.used] > 0, np.zeros(len(later), dtype=np.bool_)
        new[devices] = True
        new[self.used] = False
        new &= later > 0
        if new.any() or not lasting.all():
            fresh, known = np.flatnonzero(new), np.flatnonzero(lasting)
            self.column[self.used] = -1
            self.used = np.concatenate([self.used[known], fresh])
            self.column[self.used] = np.arange(len(self.used))
            free = np.empty((len(plan), len(self.used) + 1), dtype=np.int64)
            free[:, : len(known)] = self.free[plan[:, None], known]
            free[:, len(known) : -1] = self._c.capacity[fresh]
        else:
            free = self.free[plan]
        free[np.arange(len(plan)), self.column[devices]] -= taken
        np.minimum(free[:, :-1], later[self.used], out=free[:, :-1])
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


def undominated(ahead: Ints, free: Ints, spent: Ints) -> tuple[Ints, Ints, Ints]:
    """Of plans with equal rows ``ahead`` (N, K), those that leave more memory than each of a few next cheaper ones.

    More of some device that is: a plan falls where one of them leaves no less of any.

    Parameters
    ----------
    free (N, F), spent (N,)
        Free memory of devices, and cost so far.

    Returns
    -------
    Their indices, equal rows next to each other; the group of every one of them, and the first of every group.
    Rows are sorted by a hash, then by cost, memory left, and place, and compared in full to the one before.
    """
    if len(spent) == 1:
        one = np.zeros(1, dtype=np.int64)
        return one, one, one
    room = free.sum(axis=1)
    by = np.lexsort([-room, spent, ahead @ hash_factors(ahead.shape[1])])
    ahead, room = ahead[by], room[by]
    new = np.ones(len(by), dtype=np.bool_)
    new[1:] = (ahead[1:] != ahead[:-1]).any(axis=1)
    group = np.cumsum(new) - 1
    if group[-1] == len(by) - 1:
        return by, group, group
    kept = np.ones(len(by), dtype=np.bool_)
    if len(by) <= _COMPARED + 1:
        cheaper = (group[:, None] == group) & (room[:, None] <= room) & _EARLIER[: len(by), : len(by)]
        _drop(kept, by, free, *np.nonzero(cheaper))
    else:
        _drop_of_many(kept, by, free, room, np.arange(len(by)) - np.flatnonzero(new)[group])
    return by[kept], group[kept], np.flatnonzero(new[kept])


def _drop_of_many(kept: Bools, by: Ints, free: Ints, room: Ints, rank: Ints) -> None:
    """The same with ranks (N,) within the groups, from one next cheaper plan to ever more of those before."""
    used = _used(free[by]) if len(by) > _MANY else ()
    later = np.flatnonzero(rank)
    for begin, stop in pairwise(_SPANS):
        later = later[(rank[later] >= begin) & kept[later]]
        if not later.size:
            break
        earlier = later[:, None] - np.arange(begin, stop)
        # What uses another device, or has less free in all, leaves less of something.
        maybe = (rank[later][:, None] >= np.arange(begin, stop)) & (room[earlier] >= room[later][:, None])
        for bits in used:
            maybe &= (bits[earlier] & ~bits[later][:, None]) == 0
        i, step = np.nonzero(maybe)
        _drop(kept, by, free, later[i], earlier[i, step])


def _drop(kept: Bools, by: Ints, free: Ints, plans: Ints, cheaper: Ints) -> None:
    """Take from ``kept`` (N,) those of ``plans`` (P,), places in ``by``, of which cheaper ones leave as much of all."""
    some = max(1, _CELLS // max(1, free.shape[1]))
    for start in range(0, len(plans), some):
        own = plans[start : start + some]
        kept[own[(free[by[cheaper[start : start + some]]] >= free[by[own]]).all(axis=1)]] = False


def _used(free: Ints) -> npt.NDArray[np.uint64]:
    """(words, N) bits of the devices of which a plan leaves less than others do."""
    bits = np.packbits(free < free.max(axis=0), axis=1)
    padded = np.zeros((len(free), -(-bits.shape[1] // 8) * 8), dtype=np.uint8)
    padded[:, : bits.shape[1]] = bits
    return np.ascontiguousarray(padded.view(np.uint64).T)
