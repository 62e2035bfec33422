"""List scheduling with a choice of options, and local search around it.

Construction takes the stages by their longest path to the end and gives each the option that adds least to the
objective, its finish with the least rest of the path behind it counted in (HEFT of Topcuoglu et al. 2002 where only
time costs). The search moves one stage to another option, brings it to a neighbour's site, swaps the sites of two
stages, or shakes the priorities of the list; it accepts what is not much worse (threshold accepting) and returns to
the best plan when it goes astray. Broken constraints come first in every comparison.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import affinity_holds, device_load
from iegopt.solvers.result import OPTIMALITY_GAP, Report, unheard
from iegopt.solvers.timed.bound import MakespanBound
from iegopt.solvers.timetable import Timetable, peak_load, planned, urgency

__all__ = ["Found", "Pricer", "construct", "improve"]

Ints = npt.NDArray[np.int64]

_SLACK = 0.02
"""A plan this much above the current one may take its place at the start; falls to 0 over the run."""
_ASTRAY = 300
"""Moves without a better plan, after which the search goes back to the best."""
_REACH = 8
"""Most moves take one of this many options of a stage that cost least by themselves."""


@dataclass(frozen=True, eq=False)
class Found:
    """A plan: how far it breaks constraints (0: not at all), its objective in ticks, its times."""

    broken: float
    value: int
    choice: Ints
    table: Timetable
    priority: tuple[float, ...]

    def better_than(self, other: Found) -> bool:
        return (self.broken, self.value) < (other.broken, other.value)


class Pricer:
    """Prices plans, remembering what every edge cost between two options."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._edge: dict[tuple[int, int, int], tuple[int, int]] = {}
        self._ends = list(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True))
        self._limit = np.minimum(problem.finish_by, problem.deadline)

    def __call__(self, choice: Ints, shake: Sequence[float] = ()) -> Found:
        """Price a plan; ``shake`` (V,) multiplies the priorities of the list schedule."""
        problem, options = self.problem, self.problem.options
        each = [self._between(e, int(choice[u]), int(choice[v])) for e, (u, v) in enumerate(self._ends)]
        moved = [time for time, _ in each]
        priority = None
        if shake:
            priority = [rank * s for rank, s in zip(urgency(problem, choice, moved), shake, strict=True)]
        table = planned(problem, choice, moved, priority)
        value = int(options.cost[choice].sum()) + sum(cost for _, cost in each)
        value += problem.makespan_cost(table.makespan)
        broken = 0.0
        for rule in problem.affinities:
            if not affinity_holds(problem, rule, choice):
                broken += rule.required
                value += 0 if rule.required else rule.penalty
        load = peak_load(problem, choice, table) if problem.peak_memory else device_load(problem, choice)
        over = np.maximum(load - problem.capacity, 0)
        if over.any():
            broken += float((over / (problem.capacity + 1.0)).sum())
        late = np.maximum(table.finish - self._limit, 0)
        if late.any():
            broken += float((late / (self._limit + 1.0)).sum())
        if problem.budget < NO_LIMIT:
            spent = int(options.time[choice[list(problem.budget_stages)]].sum())
            broken += max(0, spent - problem.budget) / (problem.budget + 1.0)
        return Found(broken, value, choice, table, tuple(shake))

    def _between(self, e: int, a: int, b: int) -> tuple[int, int]:
        key = (e, a, b)
        if key not in self._edge:
            time, cost = edge_ticks(self.problem, e, np.array(a), np.array(b))
            self._edge[key] = int(time), int(cost)
        return self._edge[key]


def construct(price: Pricer, bound: MakespanBound, *, eager: bool) -> Found:
    """A plan by list scheduling; ``eager`` counts every finish in full, not only what it adds to the makespan.

    Every stage has an allowed option.
    """
    problem = price.problem
    options, edges, topology = problem.options, problem.edges, problem.topology
    weight = problem.makespan_millionths / 10**6
    choice = np.zeros(problem.V, dtype=np.int64)
    finish = np.zeros(problem.V, dtype=np.int64)
    free = np.zeros(topology.D, dtype=np.int64)
    room = problem.capacity.copy()
    end = float(bound.least)
    place = {v: i for i, v in enumerate(problem.order.tolist())}
    least = np.minimum.reduceat(np.where(problem.allowed, options.time, np.iinfo(np.int64).max), options.ptr[:-1])
    for v in sorted(range(problem.V), key=lambda v: (-(least[v] + bound.tail[v]), place[v])):
        own = np.flatnonzero(problem.allowed[options.of(v)]) + int(options.ptr[v])
        begin = np.zeros(len(own), dtype=np.int64)
        score = options.cost[own].astype(np.float64)
        for e in np.flatnonzero(edges.target == v).tolist():
            u = int(edges.source[e])
            time, cost = edge_ticks(problem, e, choice[u], own)
            begin = np.maximum(begin, finish[u] + time)
            score += cost
        if problem.no_overlap:
            ready = np.maximum.reduceat(free[topology.device_index], topology.device_ptr[:-1])
            begin = np.maximum(begin, ready[options.site[own]])
        ends = begin + options.time[own]
        score += weight * (ends if eager else np.maximum(ends + bound.tail[v] - end, 0.0))
        if eager or not problem.peak_memory:  # what fits in sum fits at every moment
            fits = options.share[own] <= topology.tightest(room)[options.site[own]]
            score = np.where(fits, score, np.inf)
        o = int(own[np.lexsort([ends, score])[0]])
        choice[v], finish[v] = o, ends[np.flatnonzero(own == o)[0]]
        end = max(end, float(finish[v] + bound.tail[v]))
        devices = topology.devices_of(int(options.site[o]))
        free[devices] = finish[v]
        room[devices] -= options.share[o]
    return price(choice)


def improve(
    price: Pricer,
    first: Found,
    clock: Clock,
    rng: random.Random,
    least: int,
    patience: int | None,
    report: Report = unheard,
) -> tuple[Found, int]:
    """The best plan that the search comes by, and how many moves it made.

    It ends with the clock, at a plan proven optimal by the bound ``least`` (ticks), or after ``patience`` moves
    without a better plan. ``report`` receives every better plan that keeps all constraints.
    """
    moves = _Moves(price.problem, rng)
    best = current = first
    total, begin = max(clock.left, 1e-9), first.value
    count = astray = stale = 0
    while clock.left > 0 and (patience is None or stale < patience):
        if best.broken == 0 and best.value - least <= OPTIMALITY_GAP * abs(best.value):
            break
        count += 1
        stale += 1
        near = moves.neighbour(current)
        if near is None:
            continue
        found = price(*near)
        slack = _SLACK * abs(begin) * max(0.0, clock.left) / total
        if found.better_than(current) or (found.broken <= current.broken and found.value <= current.value + slack):
            current = found
        astray += 1
        if current.better_than(best):
            best, astray, stale = current, 0, 0
            if best.broken == 0:
                report(best.choice, None, None, best.table.start if price.problem.no_overlap else None)
        elif astray > _ASTRAY:
            current, astray = best, 0
    return best, count


class _Moves:
    def __init__(self, problem: Problem, rng: random.Random) -> None:
        self._problem, self._rng = problem, rng
        options = problem.options
        self._own = [
            (np.flatnonzero(problem.allowed[options.of(v)]) + int(options.ptr[v])).tolist() for v in range(problem.V)
        ]
        price = options.cost + np.floor(problem.makespan_millionths / 10**6 * options.time)
        self._near = [sorted(own, key=lambda o: float(price[o]))[:_REACH] for own in self._own]
        self._at: list[dict[int, list[int]]] = [{} for _ in self._own]
        for v, own in enumerate(self._own):
            for o in own:
                self._at[v].setdefault(int(options.site[o]), []).append(o)
        self._neighbours: list[list[int]] = [[] for _ in self._own]
        for u, v in zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True):
            self._neighbours[u].append(v)
            self._neighbours[v].append(u)

    def neighbour(self, plan: Found) -> tuple[Ints, tuple[float, ...]] | None:
        """A plan one move away, or ``None`` where the move drawn does not exist."""
        rng, V = self._rng, self._problem.V
        v, kind = rng.randrange(V), rng.random()
        choice = plan.choice.copy()
        if kind < 0.2 and self._problem.no_overlap:
            shake = list(plan.priority or (1.0,) * V)
            shake[v] = 1.0 if rng.random() < 0.3 else shake[v] * rng.uniform(0.5, 2.0)
            return choice, tuple(shake)
        if kind < 0.35 and self._neighbours[v]:
            there = self._site(plan, rng.choice(self._neighbours[v]))
            if there not in self._at[v]:
                return None
            choice[v] = rng.choice(self._at[v][there])
        elif kind < 0.55:
            w = rng.randrange(V)
            here, there = self._site(plan, v), self._site(plan, w)
            if here == there or there not in self._at[v] or here not in self._at[w]:
                return None
            choice[v], choice[w] = rng.choice(self._at[v][there]), rng.choice(self._at[w][here])
        else:
            choice[v] = rng.choice(self._near[v] if kind < 0.9 else self._own[v])
        if (choice == plan.choice).all():
            return None
        return choice, plan.priority

    def _site(self, plan: Found, v: int) -> int:
        return int(self._problem.options.site[plan.choice[v]])
