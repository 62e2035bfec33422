"""A placement on promising sites as a plan in the user's words, without a compiled problem."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from iegopt.cost.rows import BOTTLENECKS
from iegopt.cost.transfer import exposed_seconds
from iegopt.cost.weights import CostWeights, dollars
from iegopt.planner.promising import Facts, Promising
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, made
from iegopt.problem.decode import SAME_SITE
from iegopt.problem.plan_of import plan_of
from iegopt.problem.topology import WAN
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Status
from iegopt.spec.cluster import LEVELS
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec

__all__ = ["told"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def told(
    sites: Promising, graph: GraphSpec, request: RequestSpec, facts: Facts, place: Ints, load: Floats,
    weights: CostWeights, clock: Clock,
) -> Plan:  # fmt: skip
    """The plan, every stage as soon as it can start.

    Parameters
    ----------
    place (V,), load (m,)
        Site of every stage among the promising ones, and T/T0 of these.
    """
    t0 = facts.seconds[np.arange(len(place)), sites.kind[place]]
    times: list[float] = (t0 * load[place]).tolist()
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
    sites: Promising, graph: GraphSpec, request: RequestSpec, facts: Facts, place: Ints, t0: Floats, weight: float
) -> tuple[TransferPlan, ...]:
    a, b = place[facts.ends[:, 0]], place[facts.ends[:, 1]]
    links = sites.board.links
    latency, rate = links[a, 0, b], links[a, 1, b]
    raw: list[float] = np.where(a == b, 0.0, latency + facts.sizes * rate).tolist()
    exposed = _exposed(sites, graph, request, facts, place, t0, raw)
    group = sites.table.topology.group
    meet = (group[:, a] == group[:, b]) & (group[:, a] >= 0)
    level = np.where(meet.any(axis=0), meet.argmax(axis=0), WAN)
    level[a == b] = -1
    return tuple(
        made(
            TransferPlan, source=edge.source, target=edge.target, kind=str(edge.kind),
            path=SAME_SITE if at < 0 else LEVELS[at], bytes=size, raw=seconds, exposed=left, cost=weight * left,
        )
        for edge, at, size, seconds, left in zip(
            graph.edges, level.tolist(), facts.sizes.tolist(), raw, exposed, strict=True
        )
    )  # fmt: skip


def _exposed(
    sites: Promising, graph: GraphSpec, request: RequestSpec, facts: Facts, place: Ints, t0: Floats,
    raw: Sequence[float],
) -> list[float]:  # fmt: skip
    """Seconds of every transfer that its producer does not hide."""
    kv = request.kv_transfer_config or sites.cluster.spec.kv_transfer_config
    exposed = list(raw)
    if kv is None:
        return exposed
    ends, sizes, links = facts.ends.tolist(), facts.sizes.tolist(), sites.board.links
    for e, edge in enumerate(graph.edges):
        u, v = ends[e]
        latency, rate = links[place[u], :, place[v]].tolist()
        if edge.kv and place[u] != place[v] and rate > 0.0:
            block = facts.blocks.get((u, int(sites.kind[place[u]])))
            producer = float(t0[u]) if block is None else block.cost.t0
            exposed[e] = exposed_seconds(sizes[e], latency, 1.0 / rate, producer, kv)
    return exposed


def _starts(graph: GraphSpec, facts: Facts, times: Sequence[float], transfers: Sequence[TransferPlan]) -> list[float]:
    """The earliest start of every stage along the graph."""
    into: list[list[tuple[int, float]]] = [[] for _ in times]
    for (u, v), moved in zip(facts.ends.tolist(), transfers, strict=True):
        into[v].append((u, moved.exposed))
    start = [0.0] * len(times)
    for v in graph.topological_order():
        for u, exposed in into[v]:
            start[v] = max(start[v], start[u] + times[u] + exposed)
    return start


def _stages(
    sites: Promising, graph: GraphSpec, facts: Facts, place: Ints, t0: Floats, times: Sequence[float],
    start: Sequence[float],
) -> tuple[StagePlan, ...]:  # fmt: skip
    cluster, table, topology = sites.cluster, sites.table, sites.table.topology
    kinds, every = sites.kind[place], np.arange(len(place))
    money = t0 * sites.price[place] / cluster.reference_price
    bound_by = facts.terms[:, every, kinds].argmax(axis=0)
    held = (facts.held + facts.weights)[every, kinds]
    free = topology.tightest(cluster.state.free)[place] * topology.width[place]
    price = cluster.reference_price
    found = []
    rows = zip(
        graph.stages, place.tolist(), kinds.tolist(), t0.tolist(), times, money.tolist(), bound_by.tolist(),
        held.tolist(), free.tolist(), start, strict=True,
    )  # fmt: skip
    for v, (spec, site, kind, own, time, spent, term, memory, room, begin) in enumerate(rows):
        block = facts.blocks.get((v, kind))
        candidate = None if block is None else block.candidate
        precision = spec.compute.precision
        found.append(
            made(
                StagePlan,
                id=spec.id,
                kind=str(spec.type),
                site=topology.sites[site],
                devices=sites.members[site],
                device_model=table.kinds[kind][0].model,
                variant=candidate.name if candidate is not None else str(precision) if precision else "default",
                artifact=candidate.variant.artifact_path if candidate is not None and candidate.variant else None,
                t0=own,
                time=time,
                load_time=0.0 if block is None else block.load_time,
                bottleneck=BOTTLENECKS[term] if block is None else block.cost.bottleneck,
                time_source="roofline" if block is None else block.cost.source,
                start=begin,
                finish=begin + time,
                memory=int(memory),
                capacity_ratio=memory / room if room else 0.0,
                sla=spec.latency_sla,
                cost=made(CostSplit, L=own, T=time, M=spent, D=0.0, dollars=dollars(price, spent)),
            )
        )
    return tuple(found)
