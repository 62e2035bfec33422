"""All schedules that matter of one plan, for brute force where stages must not overlap.

Some best schedule puts the stages one after the other in the order of their starts, each as soon as its inputs are
there and its devices are free, or, where memory may make it wait, at the end of a stage that started before it: every
wait in a schedule that cannot be shifted earlier is for such an end.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.evaluate import feasible
from iegopt.solvers.timetable import transfer_ticks

__all__ = ["best_start"]

Ints = npt.NDArray[np.int64]


def best_start(problem: Problem, choice: Ints) -> tuple[int, Ints] | None:
    """Least makespan in ticks (any, where it costs nothing) and start times (V,) that give it; ``None`` without any."""
    return _Orders(problem, choice).search()


class _Orders:
    def __init__(self, problem: Problem, choice: Ints) -> None:
        self._problem, self._choice = problem, choice
        self._time = problem.options.time[choice].tolist()
        self._devices = [problem.topology.devices_of(int(s)).tolist() for s in problem.options.site[choice]]
        moved = transfer_ticks(problem, choice)
        self._inputs: list[list[tuple[int, int]]] = [[] for _ in range(problem.V)]
        for e, (u, v) in enumerate(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)):
            self._inputs[v].append((u, moved[e]))
        self._start: dict[int, int] = {}
        self._below: int | None = None
        self._found: tuple[int, Ints] | None = None

    def search(self) -> tuple[int, Ints] | None:
        self._extend([0] * self._problem.topology.D)
        return self._found

    def _extend(self, free: list[int]) -> None:
        if len(self._start) == self._problem.V:
            self._take()
            return
        ends = {u: at + self._time[u] for u, at in self._start.items()}
        for v in range(self._problem.V):
            if v in self._start or any(u not in ends for u, _ in self._inputs[v]):
                continue
            soonest = max((ends[u] + moved for u, moved in self._inputs[v]), default=0)
            if self._time[v]:
                soonest = max([soonest, *(free[d] for d in self._devices[v])])
            waits = {end for end in ends.values() if end > soonest} if self._problem.peak_memory else set()
            for at in (soonest, *sorted(waits)):
                end = at + self._time[v]
                if self._below is not None and end >= self._below:
                    break
                self._start[v] = at
                own = self._devices[v] if self._time[v] else []
                self._extend([end if d in own else t for d, t in enumerate(free)])
                del self._start[v]

    def _take(self) -> None:
        start = np.array([self._start[v] for v in range(self._problem.V)], dtype=np.int64)
        if feasible(self._problem, self._choice, start):
            makespan = int((start + self._time).max())
            # Where the makespan costs nothing, one schedule is as good as another.
            self._found, self._below = (makespan, start), makespan if self._problem.makespan_weight > 0 else -1
