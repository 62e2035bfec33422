"""HEFT and CPOP of SAGA (anrg-saga): list scheduling on the makespan (Topcuoglu, Hariri, Wu 2002).

They know one speed a node and one a link, no memory, no SLA and no price of a placement: of problems whose objective
is a makespan, those on identical processors without communication (``iegopt.bench.public.stg``) are stated to them.
"""

from __future__ import annotations

import logging
import time
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
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

    def supports(self, problem: Problem) -> str | None:
        if problem.makespan_weight == 0 or problem.options.cost.any():
            return "it minimises a makespan, this problem a sum of costs"
        return None if _identical_processors(problem) else "other than tasks on identical processors without links"

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None, report: Report) -> Result:
        import saga
        from saga import schedulers

        logging.getLogger().setLevel(logging.ERROR)  # it warns of every graph with several sources
        began = time.perf_counter()
        nodes = range(problem.topology.S)
        duration = problem.options.time[problem.options.ptr[:-1]]
        network = saga.Network.create(
            nodes=[(f"p{i}", 1.0) for i in nodes], edges=[(f"p{i}", f"p{j}", _FREE) for i in nodes for j in nodes[i:]]
        )
        graph = saga.TaskGraph.create(
            tasks=[(f"t{v}", ticks / TICKS_PER_SECOND) for v, ticks in enumerate(duration.tolist())],
            dependencies=[
                (f"t{u}", f"t{v}", 0.0) for u, v in zip(problem.edges.source, problem.edges.target, strict=True)
            ],
        )
        made: Any = getattr(schedulers, f"{self.heuristic}Scheduler")().schedule(network, graph)
        at = {task.name: (int(task.node[1:]), task.start) for row in made.mapping.values() for task in row}
        found = [at[f"t{v}"] for v in range(problem.V)]
        choice = problem.options.ptr[:-1] + np.array([processor for processor, _ in found])
        start = np.array([round(seconds * TICKS_PER_SECOND) for _, seconds in found], dtype=np.int64)
        value = problem.makespan_cost(int((start + duration).max()))
        seconds = time.perf_counter() - began
        note = "a heuristic: no bound"
        return Result(Status.FEASIBLE, choice, value, None, None, self.heuristic.upper(), seconds, note, start=start)


def _identical_processors(problem: Problem) -> bool:
    """P | prec | Cmax: every task on any of the sites, of one device each, for as long; nothing else binds or costs."""
    options, edges, topology = problem.options, problem.edges, problem.topology
    time = options.time.reshape(problem.V, -1) if len(options.time) == problem.V * topology.S else None
    return (
        problem.no_overlap
        and time is not None
        and bool((time == time[:, :1]).all())
        and np.array_equal(options.site, np.tile(np.arange(topology.S), problem.V))
        and np.array_equal(topology.device_index, np.arange(topology.S))
        and topology.pair_latency is None
        and not any(latency.any() for latency in topology.latency)
        and not any(array.any() for array in (edges.bytes, options.share, options.weight_share))
        and not (problem.affinities or problem.has_path_limits or problem.budget < NO_LIMIT)
        and bool((problem.sla == NO_LIMIT).all())
    )
