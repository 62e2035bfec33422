"""The list schedulers of SAGA (anrg-saga): HEFT, CPOP (Topcuoglu, Hariri, Wu 2002) and the others, on the makespan.

They know one speed a node and one a link, no latency, no memory, no SLA and no price of a placement: what they can
state is a makespan on related machines. What they return is which task goes where and in which order; each task starts
as soon as it can in that order, in ticks, which is never later than they say.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.topology import WAN
from iegopt.solvers.result import Params, Report, Result, Status
from iegopt.solvers.timetable import transfer_ticks

__all__ = ["HEURISTICS", "RelatedMachines", "Saga", "related_machines"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

HEURISTICS = {
    "heft": "Heft", "cpop": "Cpop", "bil": "BIL", "dps": "DPS", "duplex": "Duplex", "etf": "ETF",
    "fastest-node": "FastestNode", "fcp": "FCP", "flb": "FLB", "gdl": "GDL", "hbmct": "Hbmct", "maxmin": "MaxMin",
    "mct": "MCT", "met": "MET", "minmin": "MinMin", "msbc": "Msbc", "mst": "MST", "olb": "OLB",
    "sufferage": "Sufferage", "wba": "WBA",
}  # fmt: skip
"""Name of a peer -> of its scheduler: all but those that enumerate or need a solver."""
_FREE = 1e12
"""Speed of links over which bytes cost nothing."""


@dataclass(frozen=True, eq=False)
class RelatedMachines:
    """Work (V,) in seconds on the first site, speed (S,) of the sites against it, seconds per byte (S, S)."""

    work: Floats
    speed: Floats
    rate: Floats


class Saga:
    """One of the list schedulers; no bound, no use for a limit or a hint."""

    packages: tuple[str, ...] = ("saga.schedulers",)
    fresh: bool = False

    def __init__(self, scheduler: str) -> None:
        self.scheduler = scheduler

    def supports(self, problem: Problem) -> str | None:
        if problem.makespan_weight == 0 or problem.options.cost.any() or problem.edges.weight.any():
            return "it minimises a makespan, this problem a sum of costs"
        return None if related_machines(problem) is not None else "other than tasks on related machines"

    def solve(self, problem: Problem, params: Params, hint: Ints | None, report: Report) -> Result:
        began = time.perf_counter()
        plan = self.in_ticks(problem, self.schedule(*self.stated(problem)))
        seconds = time.perf_counter() - began
        if plan is None:
            return Result(Status.UNKNOWN, None, None, None, None, self.scheduler, seconds, "it left tasks out")
        choice, start = plan
        value = problem.makespan_cost(int((start + problem.options.time[choice]).max()))
        note = "a heuristic: no bound"
        return Result(Status.FEASIBLE, choice, value, None, None, self.scheduler, seconds, note, start=start)

    def stated(self, problem: Problem) -> tuple[Any, Any]:
        """Their network and task graph; task v is called ``t<v>``, node s ``p<s>``."""
        import saga

        logging.getLogger().setLevel(logging.ERROR)  # it warns of every graph with several sources
        machines = related_machines(problem)
        if machines is None:
            raise ValueError("expected tasks on related machines")
        rate, nodes = machines.rate.tolist(), range(problem.topology.S)
        network = saga.Network.create(
            nodes=[(f"p{i}", speed) for i, speed in enumerate(machines.speed.tolist())],
            edges=[(f"p{i}", f"p{j}", 1 / rate[i][j] if rate[i][j] else _FREE) for i in nodes for j in nodes[i + 1 :]],
        )
        edges = problem.edges
        sized = zip(edges.source.tolist(), edges.target.tolist(), edges.bytes.tolist(), strict=True)
        graph = saga.TaskGraph.create(
            tasks=[(f"t{v}", seconds) for v, seconds in enumerate(machines.work.tolist())],
            dependencies=[(f"t{u}", f"t{v}", size) for u, v, size in sized],
        )
        return network, graph

    def schedule(self, network: Any, graph: Any) -> Any:
        """Their schedule."""
        from saga import schedulers

        return getattr(schedulers, f"{self.scheduler}Scheduler")().schedule(network, graph)

    def in_ticks(self, problem: Problem, schedule: Any) -> tuple[Ints, Ints] | None:
        """(V,) options and start times of their schedule; ``None`` where tasks are missing in it."""
        rows = schedule.mapping.values()
        at = {task.name: (task.start, task.end, int(task.node[1:])) for row in rows for task in row}
        placed = [at.get(f"t{v}") for v in range(problem.V)]
        whole = [each for each in placed if each is not None]
        return _as_soon_as_possible(problem, whole) if len(whole) == problem.V else None


def related_machines(problem: Problem) -> RelatedMachines | None:
    """Work and speeds where every time is work/speed and nothing but the makespan binds or costs, else ``None``."""
    options, edges, topology = problem.options, problem.edges, problem.topology
    V, S = problem.V, topology.S
    if len(options.time) != V * S or not np.array_equal(options.site, np.tile(np.arange(S), V)):
        return None
    plain = (
        problem.no_overlap
        and np.array_equal(topology.device_index, np.arange(S))
        and not any(array.any() for array in (options.share, options.weight_share))
        and all(hidden is None for hidden in edges.hidden)
        and not (problem.affinities or problem.has_path_limits or problem.budget < NO_LIMIT)
        and bool((problem.sla == NO_LIMIT).all())
    )
    links = _seconds_per_byte(problem) if plain else None
    if links is None or not np.array_equal(links, links.T):
        return None
    time = options.time.reshape(V, S).astype(np.float64)
    longest = time[int(time.min(axis=1).argmax())]
    if not longest.all():
        return None
    speed = longest[0] / longest
    off = np.abs(time[:, :1] / speed - time)
    # A tick of rounding on the first site is 1/speed ticks on another.
    near = off <= 1 + 1 / speed + 1e-6 * time
    return RelatedMachines(time[:, 0] / TICKS_PER_SECOND, speed, links) if near.all() else None


def _seconds_per_byte(problem: Problem) -> Floats | None:
    """(S, S) links without latency, 0 within a site; ``None`` where there is latency."""
    topology = problem.topology
    if topology.pair_latency is not None and topology.pair_seconds_per_byte is not None:
        apart = ~np.eye(topology.S, dtype=np.bool_)
        return None if topology.pair_latency[apart].any() else np.where(apart, topology.pair_seconds_per_byte, 0.0)
    if any(latency.any() for latency in topology.latency):
        return None
    found = np.full((topology.S, topology.S), topology.seconds_per_byte[WAN][0])
    for level in reversed(range(WAN)):
        group = topology.group[level]
        together = (group[:, None] == group) & (group >= 0)
        found = np.where(together, topology.seconds_per_byte[level][group], found)
    np.fill_diagonal(found, 0.0)
    return found


def _as_soon_as_possible(problem: Problem, placed: list[tuple[float, float, int]]) -> tuple[Ints, Ints]:
    """Options and start times of tasks placed as (start, end, site), in that order and without its waits."""
    choice = problem.options.ptr[:-1] + np.array([site for _, _, site in placed])
    moved = transfer_ticks(problem, choice)
    arrival = np.zeros(problem.V, dtype=np.int64)
    start = np.zeros(problem.V, dtype=np.int64)
    free = np.zeros(problem.topology.S, dtype=np.int64)
    place = {v: i for i, v in enumerate(problem.order.tolist())}
    for v in sorted(range(problem.V), key=lambda v: (placed[v][:2], place[v])):
        site, length = placed[v][2], int(problem.options.time[choice[v]])
        start[v] = max(arrival[v], free[site]) if length else arrival[v]
        finish = start[v] + length
        if length:
            free[site] = finish
        for e in np.flatnonzero(problem.edges.source == v).tolist():
            w = int(problem.edges.target[e])
            arrival[w] = max(arrival[w], finish + moved[e])
    return choice, start
