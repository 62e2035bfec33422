"""Decode: a choice of options becomes a ``Plan`` in the user's words (seconds, bytes, dollars)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from iegopt.cost.weights import dollars
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, made
from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND
from iegopt.problem.compile import Compiled
from iegopt.problem.plan_of import plan_of
from iegopt.problem.topology import WAN
from iegopt.problem.transfer import ChosenTransfers, chosen_transfers
from iegopt.spec.cluster import LEVELS

__all__ = ["SAME_SITE", "decode", "in_seconds"]

Ints = npt.NDArray[np.int64]

SAME_SITE = "site"
"""Path of a transfer that does not leave its site."""


def in_seconds(ticks: int | None) -> float | None:
    """Ticks as seconds, ``None`` for none."""
    return None if ticks is None or ticks == NO_LIMIT else ticks / TICKS_PER_SECOND


def decode(
    compiled: Compiled, choice: Ints, *, status: str, objective: int, bound: int | None, gap: float | None,
    proof: str | None, solver: str, seconds: float, note: str, start: Ints | None = None,
) -> Plan:  # fmt: skip
    """The plan of a choice (V,) of option indices, with what the solver says of it.

    ``start`` (V,) are ticks where stages must not overlap; else every stage starts as soon as it can.
    """
    moved = chosen_transfers(compiled.problem, choice)
    sites: list[int] = compiled.problem.options.site[choice].tolist()
    transfers = _transfers(compiled, sites, moved)
    begin, finish = _schedule(compiled, choice, moved, start)
    stages = _stages(compiled, choice, sites, begin, finish)
    claim = {
        "status": status, "objective": objective / TICKS_PER_SECOND, "bound": in_seconds(bound), "gap": gap,
        "proof": proof, "solver": solver, "seconds": seconds, "note": note,
    }  # fmt: skip
    return plan_of(compiled.request, compiled.cluster, compiled.weights, compiled.tier, stages, transfers, claim)


def _stages(
    compiled: Compiled, choice: Ints, sites: list[int], start: list[float], finish: list[float]
) -> tuple[StagePlan, ...]:
    """Every stage where it stands, the KV locations after the others."""
    problem, topology = compiled.problem, compiled.problem.topology
    variants = problem.options.variant[choice].tolist()
    local = (choice - problem.options.ptr[:-1]).tolist()
    members = [topology.devices_of(site).tolist() for site in sites]
    found = []
    for v, name in enumerate(problem.stages):
        devices = tuple(topology.devices[d] for d in members[v])
        site, variant = topology.sites[sites[v]], problem.variants[variants[v]]
        model = compiled.cluster.devices[members[v][0]].kind.model
        if v >= len(compiled.graph.stages):
            nothing = CostSplit(0.0, 0.0, 0.0, 0.0, 0.0)
            found.append(
                made(
                    StagePlan,
                    {
                        "id": name,
                        "kind": "kv_location",
                        "site": site,
                        "devices": devices,
                        "device_model": model,
                        "variant": variant,
                        "artifact": None,
                        "t0": 0.0,
                        "time": 0.0,
                        "load_time": 0.0,
                        "bottleneck": "none",
                        "time_source": "fixed",
                        "start": start[v],
                        "finish": finish[v],
                        "memory": 0,
                        "capacity_ratio": 0.0,
                        "sla": None,
                        "cost": nothing,
                    },
                )
            )
            continue
        spec, options, figures = compiled.graph.stages[v], compiled.stages[v], compiled.stages[v].figures
        layout, i = options.layout, int(compiled.kept[v][local[v]])
        block = layout.blocks[int(layout.block[i])]
        t0 = float(layout.t0[i])
        money = t0 * float(figures.price[sites[v]]) / figures.reference_price
        memory = int(layout.memory[i]) + options.buffer + math.ceil(block.weight_bytes)
        free = min(int(compiled.cluster.state.free[d]) for d in members[v]) * len(devices)
        time = t0 * float(figures.load[sites[v]])
        split = CostSplit(L=t0, T=time, M=money, D=0.0, dollars=dollars(compiled.cluster.reference_price, money))
        found.append(
            made(
                StagePlan,
                {
                    "id": name,
                    "kind": str(spec.type),
                    "site": site,
                    "devices": devices,
                    "device_model": model,
                    "variant": variant,
                    "artifact": block.candidate.variant.artifact_path if block.candidate.variant else None,
                    "t0": t0,
                    "time": time,
                    "load_time": block.load_time,
                    "bottleneck": block.cost.bottleneck,
                    "time_source": block.cost.source,
                    "start": start[v],
                    "finish": finish[v],
                    "memory": memory,
                    "capacity_ratio": memory / free if free else 0.0,
                    "sla": spec.latency_sla,
                    "cost": split,
                },
            )
        )
    return tuple(found)


def _transfers(compiled: Compiled, sites: list[int], moved: ChosenTransfers) -> tuple[TransferPlan, ...]:
    problem, edges = compiled.problem, compiled.problem.edges
    figures = zip(
        edges.source.tolist(),
        edges.target.tolist(),
        edges.kind,
        edges.bytes.tolist(),
        moved.raw.tolist(),
        moved.time.tolist(),
        moved.cost.tolist(),
        strict=True,
    )
    found = []
    for u, v, kind, size, raw, time, cost in figures:
        level = problem.topology.level(sites[u], sites[v])
        found.append(
            made(
                TransferPlan,
                {
                    "source": problem.stages[u],
                    "target": problem.stages[v],
                    "kind": kind,
                    "path": SAME_SITE if level < 0 else LEVELS[min(level, WAN)],
                    "bytes": size,
                    "raw": raw,
                    "exposed": time / TICKS_PER_SECOND,
                    "cost": cost / TICKS_PER_SECOND,
                },
            )
        )
    return tuple(found)


def _schedule(
    compiled: Compiled, choice: Ints, moved: ChosenTransfers, given: Ints | None
) -> tuple[list[float], list[float]]:
    """Start and finish of every stage in seconds: the given ones, else the earliest along the DAG."""
    problem = compiled.problem
    time = problem.options.time[choice]
    if given is not None:
        ends = given + time
        return [t / TICKS_PER_SECOND for t in given.tolist()], [t / TICKS_PER_SECOND for t in ends.tolist()]
    start = [0] * problem.V
    finish = [0] * problem.V
    transfer, target = moved.time.tolist(), problem.edges.target.tolist()
    outgoing: list[list[int]] = [[] for _ in start]
    for e, u in enumerate(problem.edges.source.tolist()):
        outgoing[u].append(e)
    for v in problem.order.tolist():
        finish[v] = start[v] + int(time[v])
        for e in outgoing[v]:
            start[target[e]] = max(start[target[e]], finish[v] + transfer[e])
    return [t / TICKS_PER_SECOND for t in start], [t / TICKS_PER_SECOND for t in finish]
