"""Generated problems as scheduling theory has them: related machines, the makespan alone.

A peer that knows one speed a device and one work a stage can state these in full. Of a generated problem remain its
graph, its topology and its bytes; latencies, costs, memory and SLAs go, and times become work/speed, both from the mean
of the logarithms (the nearest ones of that form).
"""

from __future__ import annotations

import dataclasses

import numpy as np

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.transfer import time_ticks

__all__ = ["on_related_machines"]


def on_related_machines(problem: Problem) -> Problem:
    """The makespan problem of a generated one, whose stages have an option on every site."""
    options, edges, topology = problem.options, problem.edges, problem.topology
    logs = np.log(options.time.reshape(problem.V, topology.S) / 1e9)
    work, slowness = logs.mean(axis=1), logs.mean(axis=0)
    seconds = np.exp(work[:, None] + slowness - logs.mean())
    nothing = np.zeros_like(options.time)
    return dataclasses.replace(
        problem,
        name=f"{problem.name}-makespan",
        topology=dataclasses.replace(topology, latency=tuple(np.zeros_like(each) for each in topology.latency)),
        options=dataclasses.replace(options, time=time_ticks(seconds).ravel(), cost=nothing, share=nothing),
        edges=dataclasses.replace(edges, weight=np.zeros_like(edges.weight)),
        sla=np.full(problem.V, NO_LIMIT),
        makespan_weight=1.0,
        no_overlap=True,
    )
