"""A placement on promising sites as a plan in the user's words, without a compiled problem."""

from __future__ import annotations

from iegopt.cost.rows import BOTTLENECKS
from iegopt.cost.weights import CostWeights, dollars
from iegopt.planner.first_figures import Figured
from iegopt.planner.promising import Promising
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, made
from iegopt.problem.plan_of import plan_of
from iegopt.problem.stage_options import Block
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Status
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec

__all__ = ["told"]


def told(
    sites: Promising, graph: GraphSpec, request: RequestSpec, figures: Figured, weights: CostWeights, clock: Clock
) -> Plan:
    """The plan, every stage as soon as it can start."""
    transfers, stages = _transfers(sites, graph, figures, weights.lambda_), _stages(sites, graph, figures)
    note = f"best fit over {len(sites.members)} promising sites, no bound: the deadline is too short for more"
    claim = {
        "status": str(Status.FEASIBLE), "objective": None, "bound": None, "gap": None, "proof": None,
        "solver": "auto", "seconds": clock.seconds, "note": note,
    }  # fmt: skip
    return plan_of(request, sites.cluster, weights, figures.tier, stages, transfers, claim, figures.penalties)


def _transfers(sites: Promising, graph: GraphSpec, figures: Figured, weight: float) -> tuple[TransferPlan, ...]:
    path, place = sites.path, figures.place
    rows = zip(graph.edges, graph.ends(), figures.sizes, figures.raw, figures.exposed, strict=True)
    return tuple([
        made(
            TransferPlan,
            {
                "source": edge.source, "target": edge.target, "kind": str(edge.kind), "path": path[place[u]][place[v]],
                "bytes": size, "raw": raw, "exposed": exposed, "cost": weight * exposed,
            },
        )
        for edge, (u, v), size, raw, exposed in rows
    ])  # fmt: skip


def _stages(sites: Promising, graph: GraphSpec, figures: Figured) -> tuple[StagePlan, ...]:
    names, members, kinds = sites.table.topology.sites, sites.members, sites.kinds
    models, reference = [device.model for device, _, _ in sites.table.kinds], sites.cluster.reference_price
    found = []
    columns = (figures.t0, figures.time, figures.start, figures.term, figures.held, figures.share, figures.money)
    rows = zip(graph.stages, figures.place, *columns, strict=True)
    for v, (spec, site, t0, time, begin, term, memory, share, money) in enumerate(rows):
        kind = kinds[site]
        block = figures.blocks.get((v, kind)) if figures.blocks else None
        if block is None:
            precision = spec.compute.precision
            variant, artifact, loading = "default" if precision is None else str(precision), None, 0.0
            bottleneck, source = BOTTLENECKS[term], "roofline"
        else:
            variant, artifact, loading = _variant(block)
            bottleneck, source = block.cost.bottleneck, block.cost.source
        cost = {"L": t0, "T": time, "M": money, "D": 0.0, "dollars": dollars(reference, money)}
        found.append(
            made(
                StagePlan,
                {
                    "id": spec.id,
                    "kind": str(spec.type),
                    "site": names[site],
                    "devices": members[site],
                    "device_model": models[kind],
                    "variant": variant,
                    "artifact": artifact,
                    "t0": t0,
                    "time": time,
                    "load_time": loading,
                    "bottleneck": bottleneck,
                    "time_source": source,
                    "start": begin,
                    "finish": begin + time,
                    "memory": int(memory),
                    "capacity_ratio": share,
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
