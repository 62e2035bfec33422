"""List scheduling with a choice of options, one plan after another.

The stages come by their priority, each takes the option that adds least to the objective, its finish counted in, at the
first gap of its devices that is long enough (HEFT of Topcuoglu, Hariri, Wu 2002, where only time costs).
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping, Sequence
from functools import cached_property
from heapq import heapify, heappop, heappush

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Affinity
from iegopt.solvers.clock import Clock
from iegopt.solvers.loads import latest_finish
from iegopt.solvers.timed.bound import MakespanBound
from iegopt.solvers.timed.pricer import Pricer
from iegopt.solvers.timetable import first_gap

__all__ = ["Builder"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_BROKEN = 1e24
"""On the score of an option that breaks a constraint."""
_TIE = 1e-6
"""Weight of an earlier finish between options of one score."""


class Builder:
    """Builds plans by list scheduling; every stage has an allowed option."""

    def __init__(self, price: Pricer, bound: MakespanBound) -> None:
        problem = price.problem
        options, topology = problem.options, problem.topology
        self.price, self.problem = price, problem
        self.time = [options.time[own] for own in price.own]
        self.site = [options.site[own] for own in price.own]
        self.weight = problem.makespan_millionths / 10**6
        self.tail: list[int] = bound.tail.tolist()
        self.path = float(bound.path)
        self.gangs = bool((topology.width > 1).any())
        self.rules: list[list[Affinity]] = [[] for _ in range(problem.V)]
        for rule in problem.affinities:
            for v in rule.stages if rule.required else ():
                self.rules[v].append(rule)
        self.latest = (latest_finish(problem) - bound.tail).tolist() if problem.has_path_limits else None
        self.place = {v: i for i, v in enumerate(price.dispatcher.order)}

    def build(
        self,
        priority: Sequence[float],
        clock: Clock,
        *,
        eager: bool,
        pinned: Mapping[int, int] | None = None,
        behind: Sequence[Floats] | None = None,
    ) -> list[int]:
        """The options of a plan.

        Parameters
        ----------
        priority (V,)
            Highest first among the stages whose predecessors are placed.
        clock
            Where it ends, the stages that are left go where their devices would be done soonest, transfers aside.
        eager
            Count every finish in full, not only what it adds to the longest path of least times.
        pinned
            Stages that take a site where they have an option there.
        behind
            Per stage (allowed options,) ticks that count as its finish does.
        """
        run = _Run(self)
        dispatcher = self.price.dispatcher
        missing = [len(own) for own in dispatcher.incoming]
        ready = [(-priority[v], self.place[v], v) for v in dispatcher.order if not missing[v]]
        heapify(ready)
        while ready:
            v = heappop(ready)[2]
            if clock.left <= 0:
                run.rush(v)
            else:
                run.place(v, eager, None if pinned is None else pinned.get(v), None if behind is None else behind[v])
            for _, w in dispatcher.outgoing[v]:
                missing[w] -= 1
                if not missing[w]:
                    heappush(ready, (-priority[w], self.place[w], w))
        return run.chosen

    @cached_property
    def cost(self) -> list[Floats]:
        """Per stage (allowed options,) what each costs, in ticks."""
        return [self.problem.options.cost[own].astype(np.float64) for own in self.price.own]

    @cached_property
    def mates(self) -> list[tuple[int, ...]]:
        """Per site the sites with which it has a device in common, itself among them."""
        topology = self.problem.topology
        on: list[list[int]] = [[] for _ in range(topology.D)]
        for s in range(topology.S):
            for d in topology.devices_of(s).tolist():
                on[d].append(s)
        return [tuple(sorted({t for d in topology.devices_of(s).tolist() for t in on[d]})) for s in range(topology.S)]


class _Run:
    """One plan as it grows."""

    def __init__(self, builder: Builder) -> None:
        problem = builder.problem
        self._builder, self._problem, self._price = builder, problem, builder.price
        self.chosen = [0] * problem.V
        self._placed = [False] * problem.V
        self._finish = [0] * problem.V
        self._end = builder.path
        self._busy: dict[int, list[tuple[int, int]]] = {}
        self._free = np.zeros(problem.topology.S, dtype=np.int64)
        self._room = problem.capacity.copy() if builder.price.memory_binds else None

    def rush(self, v: int) -> None:
        """Give stage v the option whose site would be done soonest with it and with what came there before."""
        site, time = self._builder.site[v], self._builder.time[v]
        if self._problem.no_overlap:
            done = self._free[site] + time
            i = int(done.argmin())
            self._free[site[i]] = done[i]
        else:
            i = int(time.argmin())
        self.take(v, i, 0)

    def take(self, v: int, i: int, finish: int) -> None:
        """Give stage v its i-th allowed option."""
        self.chosen[v] = int(self._price.own[v][i])
        self._placed[v], self._finish[v] = True, finish
        self._end = max(self._end, float(finish + self._builder.tail[v]))

    def place(self, v: int, eager: bool, pinned: int | None, behind: Floats | None) -> None:
        """Give stage v the option of the least score."""
        builder = self._builder
        time, site, weight = builder.time[v], builder.site[v], max(builder.weight, _TIE)
        begin, cost = self._inputs(v)
        ends: Ints = begin + time
        if eager:
            score = cost + weight * (ends if behind is None else ends + behind)
        else:
            late = ends + (builder.tail[v] - self._end)
            score = cost + weight * (np.maximum(late, 0.0) + _TIE * ends)
        broken = self._broken(v, eager, pinned, ends)
        if broken is not None:
            score = score + _BROKEN * broken
        i = int(score.argmin())
        if self._problem.no_overlap:
            waited: set[int] = set()
            while i not in waited:
                taken = self._busy.get(int(site[i]))
                if not taken:
                    break
                waited.add(i)
                before, length = int(ends[i]), int(time[i])
                after = first_gap(taken, before - length, length) + length
                if after == before:
                    break
                ends[i] = after
                more = float(after - before)
                if not eager:
                    over = max(0.0, before + builder.tail[v] - self._end)
                    more = max(0.0, after + builder.tail[v] - self._end) - over + _TIE * more
                score[i] += weight * more
                if builder.latest is not None and before <= builder.latest[v] < after:
                    score[i] += _BROKEN
                i = int(score.argmin())
        finish = int(ends[i])
        self.take(v, i, finish)
        self._occupy(v, int(site[i]), finish - int(time[i]), finish)

    def _inputs(self, v: int) -> tuple[Ints | int, Floats]:
        """(allowed options,) the tick at which all inputs are there, and what the options and their inputs cost."""
        price, chosen = self._price, self.chosen
        begin: Ints | int = 0
        cost = self._builder.cost[v]
        for e, u in price.dispatcher.incoming[v]:
            time, paid = price.transfers.row(e, chosen[u])
            arrival = time + self._finish[u]
            begin = arrival if isinstance(begin, int) else np.maximum(begin, arrival)
            if paid is not None:
                cost = cost + paid
        return begin, cost

    def _broken(self, v: int, eager: bool, pinned: int | None, ends: Ints) -> Floats | None:
        """(allowed options,) how many constraints each breaks; ``None`` where none can."""
        builder, problem = self._builder, self._problem
        parts: list[npt.NDArray[np.bool_]] = []
        site = builder.site[v]
        if pinned is not None:
            parts.append(site != pinned)
        if builder.latest is not None and builder.latest[v] < NO_LIMIT // 2:
            parts.append(ends > builder.latest[v])
        # What fits in sum fits at every moment.
        if self._room is not None and (eager or not problem.peak_memory):
            need = problem.options.share[self._price.own[v]]
            parts.append(need > problem.topology.tightest(self._room)[site])
        for rule in builder.rules[v]:
            for u in rule.stages:
                if u != v and self._placed[u]:
                    at = int(problem.options.site[self.chosen[u]])
                    together = site == at
                    if rule.level >= 0:
                        group = problem.topology.group[rule.level]
                        together = together | ((group[site] == group[at]) & (group[at] >= 0))
                    parts.append(together if rule.apart else ~together)
        return np.sum(parts, axis=0, dtype=np.float64) if parts else None

    def _occupy(self, v: int, site: int, begin: int, finish: int) -> None:
        builder, problem = self._builder, self._problem
        self._free[site] = max(int(self._free[site]), finish)
        if problem.no_overlap and finish > begin:
            for mate in builder.mates[site] if builder.gangs else (site,):
                insort(self._busy.setdefault(mate, []), (begin, finish))
        if self._room is not None:
            self._room[problem.topology.devices_of(site)] -= problem.options.share[self.chosen[v]]
