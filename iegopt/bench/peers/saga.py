"""HEFT and CPOP of SAGA (anrg-saga): list scheduling on the makespan (Topcuoglu, Hariri, Wu 2002).

They know one speed a node and one a link, no memory, no SLA and no price of a placement, so that a ``Problem``, whose
objective is a sum of costs, is beyond them; what they can state is a graph of tasks on processors.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from iegopt.bench.engine import Plain
from iegopt.bench.schedule import TaskGraph
from iegopt.problem.arrays import TICKS_PER_SECOND
from iegopt.solvers.incumbent import Report
from iegopt.solvers.result import Params, Result, Status

__all__ = ["Saga"]

_FREE = 1e12
"""Speed of links that carry nothing."""


class Saga:
    """One of the list schedulers; no bound, no use for a limit or a hint."""

    packages: tuple[str, ...] = ("saga.schedulers",)
    fresh: bool = False

    def __init__(self, heuristic: Literal["Heft", "Cpop"]) -> None:
        self.heuristic = heuristic

    def supports(self, problem: Plain) -> str | None:
        return None if isinstance(problem, TaskGraph) else "it minimises a makespan, this problem a sum of costs"

    def solve(self, problem: Plain, params: Params, hint: npt.NDArray[np.int64] | None, report: Report) -> Result:
        import saga
        from saga import schedulers

        assert isinstance(problem, TaskGraph)
        logging.getLogger().setLevel(logging.ERROR)  # it warns of every graph with several sources
        began = time.perf_counter()
        nodes = range(problem.processors)
        network = saga.Network.create(
            nodes=[(f"p{i}", 1.0) for i in nodes], edges=[(f"p{i}", f"p{j}", _FREE) for i in nodes for j in nodes[i:]]
        )
        graph = saga.TaskGraph.create(
            tasks=[(f"t{i}", ticks / TICKS_PER_SECOND) for i, ticks in enumerate(problem.duration)],
            dependencies=[(f"t{p}", f"t{i}", 0.0) for i, own in enumerate(problem.predecessors) for p in own],
        )
        made: Any = getattr(schedulers, f"{self.heuristic}Scheduler")().schedule(network, graph)
        at = {task.name: (int(task.node[1:]), task.start) for row in made.mapping.values() for task in row}
        place = np.array([at[f"t{i}"][0] for i in range(len(problem.duration))])
        start = [round(at[f"t{i}"][1] * TICKS_PER_SECOND) for i in range(len(problem.duration))]
        makespan = max(begin + length for begin, length in zip(start, problem.duration, strict=True))
        seconds = time.perf_counter() - began
        stats = {"start": start}
        note = "a heuristic: no bound"
        return Result(Status.FEASIBLE, place, makespan, None, None, self.heuristic.upper(), seconds, note, stats)
