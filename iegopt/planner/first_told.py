"""A placement on promising sites as a plan in the user's words, without a compiled problem."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from iegopt.cost.rows import BOTTLENECKS
from iegopt.cost.transfer import exposed_seconds
from iegopt.cost.weights import CostWeights, dollars
from iegopt.planner.promising import Facts, Promising
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, made
from iegopt.problem.plan_of import plan_of
from iegopt.problem.stage_options import Block
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Status
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec

__all__ = ["told"]


def told(
    sites: Promising, graph: GraphSpec, request: RequestSpec, facts: Facts, place: Sequence[int],
    load: Sequence[float], weights: CostWeights, clock: Clock,
) -> Plan:  # fmt: skip
    """The plan, every stage as soon as it can start.

    Parameters
    ----------
    place (V,), load (m,)
        Site of every stage among the promising ones, and T/T0 of these.
    """
    chosen = np.arange(len(place)), sites.kind[place]
    t0: list[float] = facts.seconds[chosen].tolist()
    times = [own * load[p] for own, p in zip(t0, place, strict=True)]
    transfers = _transfers(sites, graph, request, facts, place, t0, weights.lambda_)
    start = _starts(graph, facts, times, transfers)
    stages = _stages(sites, graph, facts, place, t0, times, start)
    note = f"best fit over {len(sites.members)} promising sites, no bound: the deadline is too short for more"
    claim = {
        "status": str(Status.FEASIBLE), "objective": None, "bound": None, "gap": None, "proof": None,
        "solver": "auto", "seconds": clock.seconds, "note": note,
    }  # fmt: skip
    return plan_of(request, sites.cluster, weights, None, stages, transfers, claim)


def _transfers(
    sites: Promising, graph: GraphSpec, request: RequestSpec, facts: Facts, place: Sequence[int], t0: Sequence[float],
    weight: float,
) -> tuple[TransferPlan, ...]:  # fmt: skip
    kv = request.kv_transfer_config or sites.cluster.spec.kv_transfer_config
    latency, rate, path = sites.latency, sites.rate, sites.path
    found = []
    for edge, (u, v), size in zip(graph.edges, facts.ends, facts.sizes, strict=True):
        a, b = place[u], place[v]
        raw = left = latency[a][b] + size * rate[a][b]
        if kv is not None and edge.kv and rate[a][b] > 0.0:
            block = facts.blocks.get((u, int(sites.kind[a])))
            producer = t0[u] if block is None else block.cost.t0
            left = exposed_seconds(size, latency[a][b], 1.0 / rate[a][b], producer, kv)
        found.append(
            made(
                TransferPlan,
                {
                    "source": edge.source, "target": edge.target, "kind": str(edge.kind), "path": path[a][b],
                    "bytes": size, "raw": raw, "exposed": left, "cost": weight * left,
                },
            )
        )  # fmt: skip
    return tuple(found)


def _starts(graph: GraphSpec, facts: Facts, times: Sequence[float], transfers: Sequence[TransferPlan]) -> list[float]:
    """The earliest start of every stage along the graph."""
    into: list[list[tuple[int, float]]] = [[] for _ in times]
    for (u, v), moved in zip(facts.ends, transfers, strict=True):
        into[v].append((u, moved.exposed))
    start = [0.0] * len(times)
    for v in graph.topological_order():
        for u, exposed in into[v]:
            start[v] = max(start[v], start[u] + times[u] + exposed)
    return start


def _stages(
    sites: Promising, graph: GraphSpec, facts: Facts, place: Sequence[int], t0: Sequence[float],
    times: Sequence[float], start: Sequence[float],
) -> tuple[StagePlan, ...]:  # fmt: skip
    blocks, prices, room, reference = facts.blocks, sites.prices, sites.room(), sites.cluster.reference_price
    every, kinds = np.arange(len(place)), sites.kind[place]
    bound_by: list[int] = facts.terms[every, :, kinds].argmax(axis=1).tolist()
    held: list[float] = facts.held[every, kinds].tolist()
    names, models = sites.table.topology.sites, [device.model for device, _, _ in sites.table.kinds]
    found = []
    rows = zip(graph.stages, place, kinds.tolist(), t0, times, bound_by, held, start, strict=True)
    for v, (spec, site, kind, own, time, term, memory, begin) in enumerate(rows):
        block = blocks.get((v, kind)) if blocks else None
        if block is None:
            precision = spec.compute.precision
            variant, artifact, loading = str(precision) if precision else "default", None, 0.0
            bottleneck, source = BOTTLENECKS[term], "roofline"
        else:
            variant, artifact, loading = _variant(block)
            bottleneck, source = block.cost.bottleneck, block.cost.source
        money = own * prices[site] / reference
        cost = {"L": own, "T": time, "M": money, "D": 0.0, "dollars": dollars(reference, money)}
        found.append(
            made(
                StagePlan,
                {
                    "id": spec.id,
                    "kind": str(spec.type),
                    "site": names[site],
                    "devices": sites.members[site],
                    "device_model": models[kind],
                    "variant": variant,
                    "artifact": artifact,
                    "t0": own,
                    "time": time,
                    "load_time": loading,
                    "bottleneck": bottleneck,
                    "time_source": source,
                    "start": begin,
                    "finish": begin + time,
                    "memory": int(memory),
                    "capacity_ratio": memory / room[site] if room[site] else 0.0,
                    "sla": spec.latency_sla,
                    "cost": made(CostSplit, cost),
                },
            )
        )
    return tuple(found)


def _variant(block: Block) -> tuple[str, str | None, float]:
    """Name of a block's variant, where it lies, and the seconds to load it."""
    candidate = block.candidate
    return candidate.name, candidate.variant.artifact_path if candidate.variant else None, block.load_time
