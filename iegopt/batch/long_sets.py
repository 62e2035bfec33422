"""Which sets of long prefills an instance can take: a prefill cannot be split, which summed-up classes do not see.

The prefills S of an instance j take at least, for every deadline D of S,

    Σ_{i ∈ S, D_i ≤ D} P_ij  ≤  F·D

F is the share of its time that is free of what stays there (``iegopt.batch.pinned``). What is put aside is so in favour
of a request of a high enough priority on the instance, the head: one of S, or another one, which takes time itself,
for its decode or for its prefill.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from iegopt.batch.fitting import Fitting
from iegopt.batch.model import BatchModel
from iegopt.batch.pinned import free_beside
from iegopt.solvers.clock import Clock

__all__ = ["LongSets", "long_sets"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

LONG = 0.3
"""Part of the time until its deadline that a long prefill takes wherever it can run."""
WHOLE = 0.5
"""Part of it that two on one instance cannot both take."""
MOST, SETS, LISTED = (24, 12, 6), 1_500, 10_000
"""Long prefills looked at, those that take the largest part; fewer where they make more sets than that, or these are
listed more often, once for each lot of instances that takes other ones."""

Family = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class LongSets:
    """Sets of long prefills.

    Attributes
    ----------
    rows (H,), never
        The requests; others that no instance can take.
    alone (H, J), whole (H,)
        Which instances can take each, and whether it takes more than half of any.
    families
        The largest sets that an instance can take, of indices into ``rows``, and how many instances take just these.
    """

    rows: Ints
    never: Ints
    alone: Bools
    whole: Bools
    families: dict[Family, int]


@dataclass(frozen=True, eq=False)
class _Room:
    """What instances (J,) have for a set under a head: a share of their time, of which an ``other`` request than those
    of the set, where it is the head, prefills for ``work`` seconds by ``by``."""

    head: int
    other: bool
    free: Floats
    work: Floats
    by: float


def long_sets(
    model: BatchModel, fitting: Fitting, rows: Ints, heads: Ints, stays: Callable[[int], Bools], clock: Clock
) -> LongSets | None:
    """The sets of the long ones among ``rows``; ``None`` where they are too many, or time is up.

    Parameters
    ----------
    rows, heads
        Requests of a level and above, and all of these priorities that a plan may place.
    stays
        Of a priority: running stages (R,) that stay where nothing above it is placed.
    """
    least = _least(fitting, heads, clock)
    rooms = _rooms(model, fitting, least, stays, clock)
    if clock.left <= 0.0:
        return None
    work = np.array([least[i] for i in rows.tolist()]).reshape(len(rows), model.J)
    by = np.array([fitting.by(i) for i in rows.tolist()])
    most = np.maximum.reduce([room.free for room in rooms]) * np.maximum(by, 0.0)[:, None]
    part = np.divide(work, most, out=np.full_like(work, inf), where=most > 0.0).min(axis=1, initial=inf)
    turn = np.argsort(-part, kind="stable")
    never = rows[part > 1.0]
    turn = turn[(part[turn] >= LONG) & (part[turn] <= 1.0)]
    for count in MOST:
        kept = turn[:count]
        kept = kept[np.argsort(by[kept], kind="stable")]
        sets = _Sets(model, fitting, rooms, rows[kept], work[kept], by[kept], clock)
        takes = sets.all(clock)
        if clock.left <= 0.0:
            return None
        families = None if takes is None else _families(takes, model.J)
        if takes is not None and families is not None:
            nowhere = np.zeros(model.J, dtype=bool)
            alone = np.array([takes.get((n,), nowhere) for n in range(len(kept))]).reshape(len(kept), model.J)
            return LongSets(rows[kept], never, alone, part[kept] > WHOLE, families)
    return None


def _least(fitting: Fitting, rows: Ints, clock: Clock) -> dict[int, Floats]:
    """What each of ``rows`` takes at least (J,), as far as there is time."""
    return {i: fitting.least_together(i) for i in rows.tolist() if clock.left > 0.0}


def _rooms(
    model: BatchModel, fitting: Fitting, least: Mapping[int, Floats], stays: Callable[[int], Bools], clock: Clock
) -> list[_Room]:
    """The rooms under every head, of which each takes ``least``; fewer where time is up."""
    running, nothing = model.running, np.zeros(model.J)
    found: list[_Room] = []
    mine: dict[int, list[int]] = {}
    for i in least:
        mine.setdefault(int(model.queue.priority[i]), []).append(i)
    for head in sorted(mine):
        # What prefills elsewhere than it decodes may go in favour of a request there.
        kept = np.where(running.instance == running.decode, stays(head), stays(min(mine)))
        free = np.maximum(0.0, free_beside(model, kept))
        beside = np.zeros(model.J)
        for i in mine[head]:
            if clock.left <= 0.0:
                return found
            beside = np.maximum(beside, free_beside(model, kept, decode=i))
        found += [
            _Room(head, False, free, nothing, inf),
            _Room(head, True, np.minimum(free, beside), nothing, inf),
            _Room(
                head, True, free, np.minimum.reduce([least[i] for i in mine[head]]), max(map(fitting.by, mine[head]))
            ),
        ]
    return found


class _Sets:
    """Sets of requests, which are in the order of their deadlines."""

    def __init__(
        self, model: BatchModel, fitting: Fitting, rooms: list[_Room], rows: Ints, work: Floats, by: Floats,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._rooms, self._work, self._by = rooms, work, by.tolist()
        self._heads = model.queue.priority[rows].tolist()
        free = np.array([room.free for room in rooms])
        self._alone = [fitting.on(i, free, clock) for i in rows.tolist()]

    def all(self, clock: Clock) -> dict[tuple[int, ...], Bools] | None:
        """Every set that some instance takes, and which ones do (J,); ``None`` where they are too many."""
        found: dict[tuple[int, ...], Bools] = {}
        waits: list[tuple[int, ...]] = [()]
        while waits and clock.left > 0.0:
            members = waits.pop()
            for n in range(members[-1] + 1 if members else 0, len(self._by)):
                larger = (*members, n)
                takes = self._takes(larger)
                if takes.any():
                    found[larger] = takes
                    waits.append(larger)
            if len(found) > SETS:
                return None
        return found

    def _takes(self, members: tuple[int, ...]) -> Bools:
        """(J,) where some head leaves time for all."""
        top = min(self._heads[n] for n in members)
        found = np.zeros(self._work.shape[1], dtype=bool)
        for at, room in enumerate(self._rooms):
            if room.head < top if room.other else room.head == top:
                alone = np.logical_and.reduce([self._alone[n][at] for n in members])
                if (alone & ~found).any():
                    found |= alone & self._in_time(members, room)
        return found

    def _in_time(self, members: tuple[int, ...], room: _Room) -> Bools:
        jobs = [(self._by[n], self._work[n]) for n in members]
        if room.by < inf:
            jobs = sorted([*jobs, (room.by, room.work)], key=lambda job: job[0])
        done, fits = np.zeros_like(room.free), np.ones(len(room.free), dtype=bool)
        for by, work in jobs:
            done = done + work
            fits &= done <= room.free * by
        return fits


def _families(takes: dict[tuple[int, ...], Bools], J: int) -> dict[Family, int] | None:
    """Of every instance the sets that no other that it takes includes; ``None`` where these are too many."""
    largest = {members: there.copy() for members, there in takes.items()}
    for members, there in takes.items():
        for n in members:
            smaller = tuple(m for m in members if m != n)
            if smaller in largest:
                largest[smaller] &= ~there
    names = sorted(largest)
    rows = np.array([largest[name] for name in names]).reshape(len(names), J)
    there = rows[:, rows.any(axis=0)]
    if not there.size:
        return {}
    columns, count = np.unique(there, axis=1, return_counts=True)
    if columns.sum() > LISTED:
        return None
    return {
        tuple(names[n] for n in np.flatnonzero(column).tolist()): int(many)
        for column, many in zip(columns.T, count, strict=True)
    }
