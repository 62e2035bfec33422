"""Scheduling on identical processors without communication, P | prec | Cmax, and the check of a schedule.

A compiled ``Problem`` has no makespan objective and no order on a device, so that such a graph is a
thing of its own here. Times are int64 ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from iegopt.verify.report import Report, Violation

__all__ = ["TaskGraph", "check_schedule"]


@dataclass(frozen=True)
class TaskGraph:
    """Tasks with durations (n,) in ticks, the predecessors of each, and a number of identical processors."""

    name: str
    duration: tuple[int, ...]
    predecessors: tuple[tuple[int, ...], ...]
    processors: int


def check_schedule(graph: TaskGraph, processor: Sequence[int], start: Sequence[int]) -> Report:
    """Every rule that a schedule breaks, and its makespan as objective.

    Parameters
    ----------
    processor, start (n,)
        Where and when (ticks) every task starts.
    """
    tasks = range(len(graph.duration))
    if not len(processor) == len(start) == len(graph.duration):
        return Report((Violation("stage", graph.name, len(start), len(graph.duration)),), None, None)
    end = [start[i] + graph.duration[i] for i in tasks]
    found = []
    for i in tasks:
        if not 0 <= processor[i] < graph.processors:
            found.append(Violation("option", f"task {i}", processor[i], graph.processors - 1))
        if start[i] < 0:
            found.append(Violation("start", f"task {i}", start[i], 0))
        found += [
            Violation("order", f"task {i} after {p}", start[i], end[p])
            for p in graph.predecessors[i]
            if start[i] < end[p]
        ]
    by_processor: dict[int, list[int]] = {}
    for i in tasks:
        if graph.duration[i]:
            by_processor.setdefault(processor[i], []).append(i)
    for queue in by_processor.values():
        queue.sort(key=lambda i: start[i])
        for before, after in pairwise(queue):
            if start[after] < end[before]:
                found.append(Violation("overlap", f"task {after} with {before}", start[after], end[before]))
    makespan = max(end, default=0)
    return Report(tuple(found), makespan, makespan)
