"""When the stages of a plan run, and what memory that takes at the worst moment.

Without ``no_overlap`` every stage starts as soon as its inputs are there. With it, a list schedule: stages in the order
of their longest path to the end (Hu 1961; the upward rank of HEFT, Topcuoglu et al. 2002), each at the first moment
from which on all its devices are free long enough.
"""

from __future__ import annotations

from bisect import bisect, insort
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.transfer import chosen_transfers

__all__ = ["Dispatcher", "Timetable", "first_gap", "peak_load", "planned", "timetable", "transfer_ticks"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Timetable:
    """Start and finish (V,) of every stage, in ticks."""

    start: Ints
    finish: Ints

    @property
    def makespan(self) -> int:
        return int(self.finish.max(initial=0))


def timetable(problem: Problem, choice: Ints, start: Ints | None = None) -> Timetable:
    """The times of a plan: from its own ``start`` (V,), else as soon as possible, one after the other where asked."""
    if start is not None:
        return Timetable(start, start + problem.options.time[choice])
    return planned(problem, choice, transfer_ticks(problem, choice))


def planned(problem: Problem, choice: Ints, moved: Sequence[int], priority: Sequence[float] | None = None) -> Timetable:
    """The times of a plan whose transfers are known; ``priority`` as in ``Dispatcher.one_by_one``."""
    dispatcher = Dispatcher(problem)
    time: list[int] = problem.options.time[choice].tolist()
    if not problem.no_overlap:
        return dispatcher.earliest(time, moved)
    ranks = dispatcher.urgency(time, moved) if priority is None else priority
    site: list[int] = problem.options.site[choice].tolist()
    found = dispatcher.one_by_one(time, site, moved, ranks)
    if problem.peak_memory and (peak_load(problem, choice, found) > problem.capacity).any():
        return dispatcher.one_by_one(time, site, moved, ranks, careful=choice)
    return found


def transfer_ticks(problem: Problem, choice: Ints) -> list[int]:
    """(E,) ticks of transfer over every edge."""
    moved: list[int] = chosen_transfers(problem, choice).time.tolist()
    return moved


class Dispatcher:
    """Gives the stages of one problem their times, plan after plan.

    A plan is here the time and the site of every stage (V,) and the ticks of transfer ``moved`` over every edge (E,).
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.order: list[int] = problem.order.tolist()
        self.outgoing: list[list[tuple[int, int]]] = [[] for _ in range(problem.V)]
        self.incoming: list[list[tuple[int, int]]] = [[] for _ in range(problem.V)]
        """Per stage its edges, each with the stage at the other end."""
        for e, (u, v) in enumerate(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)):
            self.outgoing[u].append((e, v))
            self.incoming[v].append((e, u))
        self._place = [0] * problem.V
        for i, v in enumerate(self.order):
            self._place[v] = i
        self._devices: dict[int, tuple[int, ...]] = {}
        topology = problem.topology
        self._alone: list[int] | None = topology.device_index.tolist() if (topology.width == 1).all() else None
        """Per site its only device; ``None`` where there are gangs."""

    def earliest(self, time: Sequence[int], moved: Sequence[int]) -> Timetable:
        """Every stage as soon as its inputs are there."""
        start, finish = [0] * len(time), [0] * len(time)
        for v in self.order:
            begin = 0
            for e, u in self.incoming[v]:
                arrival = finish[u] + moved[e]
                if arrival > begin:
                    begin = arrival
            start[v], finish[v] = begin, begin + time[v]
        return Timetable(np.array(start, dtype=np.int64), np.array(finish, dtype=np.int64))

    def urgency(self, time: Sequence[int], moved: Sequence[int]) -> list[int]:
        """(V,) longest path from the start of every stage to the end, in ticks."""
        rank = list(time)
        for v in reversed(self.order):
            after = 0
            for e, w in self.outgoing[v]:
                path = moved[e] + rank[w]
                if path > after:
                    after = path
            rank[v] += after
        return rank

    def one_by_one(
        self, time: Sequence[int], site: Sequence[int], moved: Sequence[int], priority: Sequence[float],
        careful: Ints | None = None,
    ) -> Timetable:  # fmt: skip
        """List schedule without overlaps on any device.

        Parameters
        ----------
        priority (V,)
            Highest first among the stages whose predecessors are placed.
        careful (V,)
            The options of the plan: start no stage before the memory of its devices has room for it as well, where that
            ever happens.
        """
        incoming, outgoing, place, alone = self.incoming, self.outgoing, self._place, self._alone
        missing = [len(own) for own in incoming]
        busy: dict[int, list[tuple[int, int]]] = {}
        start, finish, placed = [0] * len(time), [0] * len(time), [False] * len(time)
        ready = [(-priority[v], place[v], v) for v in self.order if not missing[v]]
        heapify(ready)
        while ready:
            v = heappop(ready)[2]
            length, at = time[v], 0
            for e, u in incoming[v]:
                arrival = finish[u] + moved[e]
                if arrival > at:
                    at = arrival
            if alone is not None and careful is None:
                if length:
                    taken = busy.setdefault(alone[site[v]], [])
                    if taken and at < taken[-1][1]:
                        at = first_gap(taken[max(0, bisect(taken, (at, 0)) - 1) :], at, length)
                        insort(taken, (at, at + length))
                    else:
                        taken.append((at, at + length))
            elif length or careful is not None:
                devices = self.devices(site[v])
                taken = sorted(span for d in devices for span in busy.get(d, ()))
                at = first_gap(taken, at, length)
                if careful is not None:
                    at = _with_room(self.problem, careful, v, at, taken, start, finish, placed)
                if length:
                    for d in devices:
                        insort(busy.setdefault(d, []), (at, at + length))
            start[v], finish[v], placed[v] = at, at + length, True
            for _, w in outgoing[v]:
                missing[w] -= 1
                if not missing[w]:
                    heappush(ready, (-priority[w], place[w], w))
        return Timetable(np.array(start, dtype=np.int64), np.array(finish, dtype=np.int64))

    def devices(self, site: int) -> tuple[int, ...]:
        """The devices of a site."""
        found = self._devices.get(site)
        if found is None:
            found = self._devices[site] = tuple(self.problem.topology.devices_of(site).tolist())
        return found


def first_gap(taken: Sequence[tuple[int, int]], at: int, length: int) -> int:
    """The first moment from ``at`` on that none of the spans, in their order, keeps from lasting ``length``."""
    if not length:
        return at
    for begin, end in taken:
        if at < end:
            if begin >= at + length:
                return at
            at = end
    return at


def peak_load(problem: Problem, choice: Ints, table: Timetable, among: npt.NDArray[np.bool_] | None = None) -> Ints:
    """(D,) the most memory that every device holds at any moment, in ``1/memory_scale`` bytes.

    No less than any stage there needs alone, which holds for a stage that takes no time as well.
    ``among`` (V,) leaves the other stages out; what waits for a consumer that is left out waits for ever.
    """
    options, edges, topology = problem.options, problem.edges, problem.topology
    site, share = options.site[choice].tolist(), options.share[choice].tolist()
    start, finish = table.start.tolist(), table.finish.tolist()
    source, target = edges.source.tolist(), edges.target.tolist()
    counted = [True] * problem.V if among is None else among.tolist()
    release = list(finish)
    inner = [e for e in range(problem.E) if site[source[e]] == site[target[e]] and edges.is_data(e)]
    for e in inner:
        ends = finish[target[e]] if counted[target[e]] else int(np.iinfo(np.int64).max)
        release[source[e]] = max(release[source[e]], ends)
    held: list[list[tuple[int, int]]] = [[] for _ in range(topology.D)]
    base, alone = np.zeros(topology.D, dtype=np.int64), np.zeros(topology.D, dtype=np.int64)
    need = (options.share[choice] + np.where(options.weight_key[choice] >= 0, options.weight_share[choice], 0)).tolist()
    seen: set[int] = set()

    def hold(v: int, begin: int, amount: int) -> None:
        if amount and release[v] > begin:
            for d in topology.devices_of(site[v]).tolist():
                held[d] += [(begin, amount), (release[v], -amount)]

    for e in inner:
        u, v = source[e], target[e]
        if options.kv_share is not None and edges.hands_on is not None and edges.hands_on[e] and counted[v]:
            both = int(min(options.kv_share[choice[u]], options.kv_share[choice[v]]))
            share[v] -= both
            hold(v, release[u], both)
    for v in range(problem.V):
        if counted[v]:
            hold(v, start[v], share[v])
            own = topology.devices_of(site[v])
            alone[own] = np.maximum(alone[own], need[v])
        o = int(choice[v])
        key = int(options.weight_key[o])
        if key >= 0 and key not in seen:
            seen.add(key)
            base[topology.devices_of(site[v])] += options.weight_share[o]
    for d, events in enumerate(held):
        events.sort()  # at one moment what ends comes before what begins
        level = most = 0
        for _, amount in events:
            level += amount
            most = max(most, level)
        base[d] += most
    return np.maximum(base, alone)


def _with_room(
    problem: Problem, choice: Ints, v: int, at: int, taken: list[tuple[int, int]], start: list[int], finish: list[int],
    placed: list[bool],
) -> int:  # fmt: skip
    """The first moment from ``at`` on at which the memory suffices, ``at`` itself where there is none."""
    devices = problem.topology.devices_of(int(problem.options.site[choice[v]]))
    time = int(problem.options.time[choice[v]])
    among = np.array(placed)
    among[v] = True
    begins, ends = np.array(start, dtype=np.int64), np.array(finish, dtype=np.int64)
    for moment in sorted({at, *(t for t, done in zip(finish, placed, strict=True) if done and t > at)}):
        begin = first_gap(taken, moment, time)
        begins[v], ends[v] = begin, begin + time
        if (peak_load(problem, choice, Timetable(begins, ends), among)[devices] <= problem.capacity[devices]).all():
            return begin
    return at
