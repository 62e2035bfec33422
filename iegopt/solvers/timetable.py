"""When the stages of a plan run, and what memory that takes at the worst moment.

Without ``no_overlap`` every stage starts as soon as its inputs are there. With it, a list schedule: stages in the order
of their longest path to the end (Hu 1961; the upward rank of HEFT, Topcuoglu et al. 2002), each at the first moment
from which on all its devices are free long enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.transfer import chosen_transfers

__all__ = ["Timetable", "earliest", "peak_load", "planned", "schedule", "timetable", "transfer_ticks", "urgency"]

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
    """The times of a plan whose transfers are known; ``priority`` as in ``schedule``."""
    if not problem.no_overlap:
        return earliest(problem, choice, moved)
    found = schedule(problem, choice, moved, priority)
    if problem.peak_memory and (peak_load(problem, choice, found) > problem.capacity).any():
        return schedule(problem, choice, moved, priority, careful=True)
    return found


def transfer_ticks(problem: Problem, choice: Ints) -> list[int]:
    """(E,) ticks of transfer over every edge."""
    moved: list[int] = chosen_transfers(problem, choice).time.tolist()
    return moved


def earliest(problem: Problem, choice: Ints, moved: Sequence[int]) -> Timetable:
    """Every stage as soon as its inputs are there."""
    start = [0] * problem.V
    finish = [0] * problem.V
    time = problem.options.time[choice].tolist()
    target = problem.edges.target.tolist()
    outgoing = _outgoing(problem)
    for v in problem.order.tolist():
        finish[v] = start[v] + time[v]
        for e in outgoing[v]:
            start[target[e]] = max(start[target[e]], finish[v] + moved[e])
    return Timetable(np.array(start, dtype=np.int64), np.array(finish, dtype=np.int64))


def urgency(problem: Problem, choice: Ints, moved: Sequence[int]) -> list[int]:
    """(V,) longest path from the start of every stage to the end, in ticks."""
    rank: list[int] = problem.options.time[choice].tolist()
    time = list(rank)
    target = problem.edges.target.tolist()
    outgoing = _outgoing(problem)
    for v in reversed(problem.order.tolist()):
        rank[v] = time[v] + max((moved[e] + rank[target[e]] for e in outgoing[v]), default=0)
    return rank


def schedule(
    problem: Problem, choice: Ints, moved: Sequence[int], priority: Sequence[float] | None = None, careful: bool = False
) -> Timetable:
    """List schedule without overlaps on any device.

    Parameters
    ----------
    priority (V,)
        Highest first among the stages whose predecessors are placed; by default the longest path to the end.
    careful
        Start no stage before the memory of its devices has room for it as well, where that ever happens.
    """
    order = problem.order.tolist()
    ranks: Sequence[float] = urgency(problem, choice, moved) if priority is None else priority
    place = {v: i for i, v in enumerate(order)}
    time = problem.options.time[choice].tolist()
    site = problem.options.site[choice].tolist()
    source, target = problem.edges.source.tolist(), problem.edges.target.tolist()
    incoming: list[list[int]] = [[] for _ in order]
    for e, v in enumerate(target):
        incoming[v].append(e)
    outgoing = _outgoing(problem)
    missing = [len(own) for own in incoming]
    busy: dict[int, list[tuple[int, int]]] = {}
    start = np.zeros(problem.V, dtype=np.int64)
    finish = np.zeros(problem.V, dtype=np.int64)
    placed = np.zeros(problem.V, dtype=np.bool_)
    ready = [v for v in order if not missing[v]]
    while ready:
        v = max(ready, key=lambda v: (ranks[v], -place[v]))
        ready.remove(v)
        devices = problem.topology.devices_of(site[v]).tolist()
        taken = [span for d in devices for span in busy.get(d, ())]
        arrival = max((int(finish[source[e]]) + moved[e] for e in incoming[v]), default=0)
        at = _first_gap(taken, arrival, time[v])
        if careful:
            at = _with_room(problem, choice, v, at, taken, start, finish, placed)
        start[v], finish[v], placed[v] = at, at + time[v], True
        if time[v]:
            for d in devices:
                busy.setdefault(d, []).append((at, at + time[v]))
        for e in outgoing[v]:
            missing[target[e]] -= 1
            if not missing[target[e]]:
                ready.append(target[e])
    return Timetable(start, finish)


def peak_load(problem: Problem, choice: Ints, table: Timetable, among: npt.NDArray[np.bool_] | None = None) -> Ints:
    """(D,) the most memory that every device holds at any moment, in ``1/memory_scale`` bytes.

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
    base = np.zeros(topology.D, dtype=np.int64)
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
    return base


def _with_room(
    problem: Problem, choice: Ints, v: int, at: int, taken: list[tuple[int, int]], start: Ints, finish: Ints,
    placed: npt.NDArray[np.bool_],
) -> int:  # fmt: skip
    """The first moment from ``at`` on at which the memory suffices, ``at`` itself where there is none."""
    devices = problem.topology.devices_of(int(problem.options.site[choice[v]]))
    time = int(problem.options.time[choice[v]])
    among = placed.copy()
    among[v] = True
    for moment in sorted({at, *(t for t in finish[placed].tolist() if t > at)}):
        begin = _first_gap(taken, moment, time)
        start[v], finish[v] = begin, begin + time
        if (peak_load(problem, choice, Timetable(start, finish), among)[devices] <= problem.capacity[devices]).all():
            return begin
    return at


def _first_gap(taken: list[tuple[int, int]], at: int, length: int) -> int:
    """The first moment from ``at`` on that none of the spans keeps from lasting ``length``."""
    if not length:
        return at
    for begin, end in sorted(taken):
        if begin < at + length and at < end:
            at = end
    return at


def _outgoing(problem: Problem) -> list[list[int]]:
    edges: list[list[int]] = [[] for _ in range(problem.V)]
    for e, u in enumerate(problem.edges.source.tolist()):
        edges[u].append(e)
    return edges
