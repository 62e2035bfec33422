"""When stages run, in the CP-SAT model: start times, one stage at a time on a device, memory at every moment.

start[v], size[v], end[v]    start + size = end ≤ latest, in units (the greatest common divisor of all times)
start[v] ≥ end[u] + t(e)     over every edge e = (u, v)
start[v] = max arrival[e]    instead where stages may not wait, arrival[e] = end[u] + t(e)
[start, end) of option o     an optional interval, present with x[o], on each of its devices: NoOverlap
release[v]                   the largest end of v and of its consumers in place
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.cpsat.variables import EdgeVariables, Variables
from iegopt.solvers.loads import latest_finish
from iegopt.solvers.timed.bound import MakespanBound
from iegopt.solvers.timetable import Timetable, timetable

__all__ = ["MakespanCost", "Timing"]

Ints = npt.NDArray[np.int64]

_MOST = 2**60


@dataclass(frozen=True)
class MakespanCost:
    """``coefficient`` · ``variable`` ≤ ticks of weighted makespan, equal where nothing had to be rounded."""

    variable: cp_model.IntVar
    coefficient: int
    upper: int


class Timing:
    """Start and end of every stage, and what follows from them."""

    def __init__(self, variables: Variables, edges: Sequence[EdgeVariables], *, may_wait: bool) -> None:
        problem = variables.problem
        self.variables = variables
        self.problem = problem
        self._known: dict[bytes, Timetable] = {}
        time = problem.options.time
        amounts = [time[own] for own in variables.options]
        amounts += [edge.terms.time for edge in edges]
        amounts += [np.array([d.time for d in edge.due], dtype=np.int64) for edge in edges]
        self.unit = max(1, int(np.gcd.reduce(np.concatenate(amounts), initial=0)))
        horizon = sum(int(time[own].max()) for own in variables.options) + sum(map(_longest, edges))
        self._latest = np.minimum(latest_finish(problem), horizon) // self.unit
        self.start: list[cp_model.IntVar] = []
        self.end: list[cp_model.IntVar] = []
        self._release: dict[int, cp_model.IntVar] = {}
        self._span = [self._stage(v) for v in range(problem.V)]
        self._order(edges, may_wait)

    def times(self, choice: Ints) -> Timetable:
        """The times that the model is hinted for a plan."""
        key = choice.tobytes()
        if key not in self._known:
            self._known[key] = timetable(self.problem, choice)
        return self._known[key]

    def one_at_a_time(self) -> None:
        """No two stages at one moment on a device; and all of them together on no more devices than there are."""
        problem, model = self.problem, self.variables.model
        on: dict[int, list[cp_model.IntervalVar]] = defaultdict(list)
        demand = []
        used: set[int] = set()
        for v, own in enumerate(self.variables.options):
            for o in own.tolist():
                size = int(problem.options.time[o]) // self.unit
                devices = problem.topology.devices_of(int(problem.options.site[o])).tolist()
                used.update(devices)
                if size:
                    span = model.new_optional_fixed_size_interval_var(self.start[v], size, self.variables.x[o], "")
                    for d in devices:
                        on[d].append(span)
            demand.append(int(problem.topology.width[problem.options.site[own]].min()))
        for spans in on.values():
            model.add_no_overlap(spans)
        model.add_cumulative(self._span, demand, len(used))

    def makespan(self) -> MakespanCost:
        """The weighted end of the last stage."""
        problem, model = self.problem, self.variables.model
        most = int(self._latest.max(initial=0))
        last = self.variables.integer(most, lambda choice: self._units(self.times(choice).makespan))
        model.add_max_equality(last, self.end)
        model.add(last >= -(-MakespanBound(problem).least // self.unit))
        numerator, denominator = problem.makespan_millionths * self.unit, 10**6
        while numerator * max(most, 1) >= _MOST and denominator > 1:
            numerator, denominator = numerator // 10, denominator // 10  # rounded down: a bound from below
        divisor = math.gcd(numerator, denominator)
        p, q = numerator // divisor, denominator // divisor
        if q == 1:
            return MakespanCost(last, p, most)
        upper = -(-p * most // q)
        cost = self.variables.integer(upper, lambda c: -(-p * (self.times(c).makespan // self.unit) // q))
        model.add(q * cost >= p * last)
        return MakespanCost(cost, 1, upper)

    def release(self, v: int) -> cp_model.IntVar:
        """The moment at which stage v lets go of its memory."""
        if v not in self._release:
            edges = self.problem.edges
            own = [e for e in np.flatnonzero(edges.source == v).tolist() if edges.is_data(e)]
            ends = [end for e in own if (end := self._end_in_place(e)) is not None]
            if not ends:
                return self.end[v]
            latest = max(int(self._latest[w]) for w in (v, *edges.target[own].tolist()))
            self._release[v] = self.variables.integer(
                latest, lambda choice: min(latest, self._units(self.released(choice, v)))
            )
            self.variables.model.add_max_equality(self._release[v], [self.end[v], *ends])
        return self._release[v]

    def released(self, choice: Ints, v: int) -> int:
        """The tick at which stage v lets go of its memory in a plan."""
        edges, site, finish = self.problem.edges, self.problem.options.site, self.times(choice).finish
        ends = [int(finish[v])]
        for e in np.flatnonzero(edges.source == v).tolist():
            w = int(edges.target[e])
            if edges.is_data(e) and site[choice[v]] == site[choice[w]]:
                ends.append(int(finish[w]))
        return max(ends)

    def starts(self, value: Callable[[cp_model.IntVar], int]) -> Ints:
        """(V,) ticks at which the stages start in a solution."""
        return np.array([value(start) for start in self.start], dtype=np.int64) * self.unit

    def _units(self, ticks: int) -> int:
        return int(ticks) // self.unit

    def _stage(self, v: int) -> cp_model.IntervalVar:
        own, time = self.variables.options[v], self.problem.options.time
        upper = int(self._latest[v])
        longest = int(time[own].max()) // self.unit
        start = self.variables.integer(upper, lambda choice: min(upper, self._units(self.times(choice).start[v])))
        end = self.variables.integer(upper, lambda choice: min(upper, self._units(self.times(choice).finish[v])))
        size = self.variables.integer(longest, lambda choice: self._units(time[choice[v]]))
        sizes = (time[own] // self.unit).tolist()
        x = [self.variables.x[o] for o in own.tolist()]
        self.variables.model.add(size == cp_model.LinearExpr.weighted_sum(x, sizes))
        self.start.append(start)
        self.end.append(end)
        return self.variables.model.new_interval_var(start, size, end, "")

    def _order(self, edges: Sequence[EdgeVariables], may_wait: bool) -> None:
        problem, model = self.problem, self.variables.model
        arrivals: dict[int, list[cp_model.IntVar]] = defaultdict(list)
        total = cp_model.LinearExpr.weighted_sum
        for edge in edges:
            u, v = int(problem.edges.source[edge.terms.edge]), int(problem.edges.target[edge.terms.edge])
            due = [d for d in edge.due if d.time]
            some = np.flatnonzero(edge.terms.time)
            fixed = [self.variables.x[o] for o in edge.terms.options[some].tolist()]
            moved = total([d.literal for d in due], [d.time // self.unit for d in due])
            moved += total(fixed, (edge.terms.time[some] // self.unit).tolist())
            if may_wait:
                model.add(self.start[v] >= self.end[u] + moved)
            else:
                arrivals[v].append(self._arrival(edge.terms.edge, self.end[u] + moved))
        if may_wait:
            return
        for v in range(problem.V):
            if arrivals[v]:
                model.add_max_equality(self.start[v], arrivals[v])
            else:
                model.add(self.start[v] == 0)

    def _arrival(self, e: int, moment: cp_model.LinearExpr) -> cp_model.IntVar:
        """The moment at which an edge delivers, as a variable.

        Presolve of OR-Tools 9.15 may reduce a maximum of sums for minutes, whatever its limit: three stages and twenty
        options were enough.
        """
        u, v = int(self.problem.edges.source[e]), int(self.problem.edges.target[e])
        upper = int(self._latest[v])

        def hinted(choice: Ints) -> int:
            moved, _ = edge_ticks(self.problem, e, choice[u], choice[v])
            return min(upper, self._units(int(self.times(choice).finish[u]) + int(moved)))

        arrival = self.variables.integer(upper, hinted)
        self.variables.model.add(arrival == moment)
        return arrival

    def _end_in_place(self, e: int) -> cp_model.IntVar | None:
        """The end of an edge's target where both ends take one site, else 0; ``None`` where they never do."""
        problem, model = self.problem, self.variables.model
        u, v = int(problem.edges.source[e]), int(problem.edges.target[e])
        site = problem.options.site
        at_u, at_v = site[self.variables.options[u]], site[self.variables.options[v]]
        common = np.intersect1d(at_u, at_v).tolist()
        if not common:
            return None
        same = self.variables.literal(lambda choice: int(site[choice[u]] == site[choice[v]]))
        for s in common:
            here = self.variables.inside(u, self.variables.options[u][at_u == s])
            there = self.variables.inside(v, self.variables.options[v][at_v == s])
            model.add(same == there).only_enforce_if(here)
        elsewhere = self.variables.options[u][~np.isin(at_u, common)]
        for o in elsewhere.tolist():
            model.add_implication(self.variables.x[o], ~same)
        upper = int(self._latest[v])
        end = self.variables.integer(
            upper,
            lambda c: min(upper, self._units(self.times(c).finish[v])) if site[c[u]] == site[c[v]] else 0,
        )
        model.add(end == self.end[v]).only_enforce_if(same)
        model.add(end == 0).only_enforce_if(~same)
        return end


def _longest(edge: EdgeVariables) -> int:
    """At least the longest transfer over an edge, in ticks."""
    due = [abs(d.time) for d in edge.due]
    return int(edge.terms.time.max(initial=0)) + (max(due, default=0) if edge.terms.table is not None else sum(due))
