"""What a plan costs, how far it breaks constraints, and when its stages run: what local search asks thousands of times.

The objective as in ``solvers.evaluate``; times from ``solvers.timetable``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.transfer import chosen_transfers
from iegopt.solvers.evaluate import affinity_holds
from iegopt.solvers.timed.transfers import Transfers
from iegopt.solvers.timetable import Dispatcher, Timetable, peak_load

__all__ = ["Found", "Pricer"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Found:
    """A plan (V,) of options: how far it breaks constraints (0: not at all), its objective in ticks, its times.

    ``moved`` (E,) are the ticks of time and of cost of its transfers, ``shake`` (V,) the factors on the priorities of
    its list schedule; empty: all 1.
    """

    broken: float
    value: int
    chosen: tuple[int, ...]
    moved: tuple[tuple[int, int], ...]
    table: Timetable
    shake: tuple[float, ...]

    @property
    def choice(self) -> Ints:
        return np.array(self.chosen, dtype=np.int64)

    def better_than(self, other: Found) -> bool:
        return (self.broken, self.value) < (other.broken, other.value)


class Pricer:
    """Prices plans of one problem; ``own`` are the allowed options of every stage.

    ``careful``: where memory counts in time, a schedule that overfills a device is made anew so that stages wait for
    room, which takes many times as long.
    """

    def __init__(self, problem: Problem, *, careful: bool = True) -> None:
        options = problem.options
        self.problem = problem
        self.careful = careful
        allowed = np.flatnonzero(problem.allowed)
        first = np.searchsorted(allowed, options.ptr).tolist()
        self.own: list[Ints] = [allowed[a:b] for a, b in pairwise(first)]
        self.memory_binds = self._memory_binds()
        self._limit: Ints | None = np.minimum(problem.finish_by, problem.deadline) if problem.has_path_limits else None
        self._costs = bool(options.cost.any())
        self._pays = bool(problem.edges.weight.any())
        self._budgeted = list(problem.budget_stages)

    def __call__(
        self, chosen: Sequence[int], shake: Sequence[float] = (), near: Found | None = None,
        priority: Sequence[float] | None = None, table: Timetable | None = None,
    ) -> Found:  # fmt: skip
        """Price a plan.

        Parameters
        ----------
        shake (V,)
            Factors on the priorities of its list schedule, which are the longest paths to the end.
        near
            A plan like it, which saves time.
        priority (V,)
            In place of those priorities.
        table
            Its times, where they are known.
        """
        problem, options = self.problem, self.problem.options
        choice = np.array(chosen, dtype=np.int64)
        if near is None:
            transfers = chosen_transfers(problem, choice)
            each = list(zip(transfers.time.tolist(), transfers.cost.tolist(), strict=True))
        else:
            between, each = self.transfers.between, list(near.moved)
            for w, (a, b) in enumerate(zip(chosen, near.chosen, strict=True)):
                if a != b:
                    for e in self._touching[w]:
                        u, v = self._ends[e]
                        each[e] = between(e, chosen[u], chosen[v])
        moved = [time for time, _ in each]
        if table is None:
            table, shake = self._timed(choice, moved, shake, priority)
        value = sum([cost for _, cost in each]) if self._pays else 0
        if self._costs:
            value += int(options.cost[choice].sum())
        if problem.makespan_weight > 0:
            value += problem.makespan_cost(table.makespan)
        broken = self._overload(choice, table) if self.memory_binds else 0.0
        for rule in problem.affinities:
            if not affinity_holds(problem, rule, choice):
                broken += rule.required
                value += 0 if rule.required else rule.penalty
        if self._limit is not None:
            late = np.maximum(table.finish - self._limit, 0)
            if late.any():
                broken += float((late / (self._limit + 1.0)).sum())
        if problem.budget < NO_LIMIT:
            spent = int(options.time[choice[self._budgeted]].sum())
            broken += max(0, spent - problem.budget) / (problem.budget + 1.0)
        return Found(broken, value, tuple(chosen), tuple(each), table, tuple(shake))

    @cached_property
    def dispatcher(self) -> Dispatcher:
        return Dispatcher(self.problem)

    @cached_property
    def transfers(self) -> Transfers:
        return Transfers(self.problem, self.own)

    @cached_property
    def _ends(self) -> list[tuple[int, int]]:
        edges = self.problem.edges
        return list(zip(edges.source.tolist(), edges.target.tolist(), strict=True))

    @cached_property
    def _touching(self) -> list[list[int]]:
        """Per stage its edges."""
        both = zip(self.dispatcher.outgoing, self.dispatcher.incoming, strict=True)
        return [[e for e, _ in (*after, *before)] for after, before in both]

    def _timed(
        self, choice: Ints, moved: Sequence[int], shake: Sequence[float], priority: Sequence[float] | None
    ) -> tuple[Timetable, Sequence[float]]:
        problem, dispatcher = self.problem, self.dispatcher
        time: list[int] = problem.options.time[choice].tolist()
        if not problem.no_overlap:
            return dispatcher.earliest(time, moved), ()
        site: list[int] = problem.options.site[choice].tolist()
        paths = dispatcher.urgency(time, moved)
        if priority is not None:
            shake = [rank / max(path, 1) for rank, path in zip(priority, paths, strict=True)]
        elif shake:
            priority = [path * s for path, s in zip(paths, shake, strict=True)]
        else:
            priority = paths
        table = dispatcher.one_by_one(time, site, moved, priority)
        if problem.peak_memory and self.memory_binds and self.careful and self._overload(choice, table) > 0:
            table = dispatcher.one_by_one(time, site, moved, priority, careful=choice)
        return table, shake

    def _overload(self, choice: Ints, table: Timetable) -> float:
        """Σ over the devices of what their memory lacks, as a part of it."""
        problem, options, capacity = self.problem, self.problem.options, self.problem.capacity
        if problem.peak_memory:
            over = np.maximum(peak_load(problem, choice, table) - capacity, 0)
            return float((over / (capacity + 1.0)).sum())
        load: dict[int, int] = {}
        seen = {-1}
        columns = (options.site, options.share, options.weight_key, options.weight_share)
        for site, share, key, weights in zip(*(column[choice].tolist() for column in columns), strict=True):
            amount = share if key in seen else share + weights
            seen.add(key)
            for d in self.dispatcher.devices(site):
                load[d] = load.get(d, 0) + amount
        return sum(max(0, used - int(capacity[d])) / (int(capacity[d]) + 1.0) for d, used in load.items())

    def _memory_binds(self) -> bool:
        """Whether any plan can overfill a device: not where even all stages fit together."""
        problem, options = self.problem, self.problem.options
        if not problem.V or not len(options.share):
            return False
        memory = options.share
        if (options.weight_key >= 0).any():
            memory = memory + np.where(options.weight_key >= 0, options.weight_share, 0)
        most = np.maximum.reduceat(memory, options.ptr[:-1])
        return int(most.sum()) > int(problem.capacity.min())
