"""A placement on promising sites as a plan in the user's words, without a compiled problem."""

from __future__ import annotations

from dataclasses import dataclass

from iegopt.cost.rows import BOTTLENECKS
from iegopt.cost.weights import CostWeights, dollars
from iegopt.planner.first_figures import Figured
from iegopt.planner.promising import Promising
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, made
from iegopt.problem.plan_of import plan_with
from iegopt.problem.stage_options import Block
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Status
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec

__all__ = ["FirstParts", "parts_of", "told"]


def told(
    sites: Promising, graph: GraphSpec, request: RequestSpec, figures: Figured, weights: CostWeights, clock: Clock
) -> Plan:
    """The plan, every stage as soon as it can start; its stages and transfers are written out when one reads them."""
    seconds, money = float(figures.t0.sum()), float(figures.money.sum())
    total = CostSplit(
        L=seconds,
        T=float(figures.time.sum()),
        M=money,
        D=float(figures.exposed.sum()),
        dollars=dollars(sites.cluster.reference_price, money),
    )
    note = f"best fit over {len(sites.members)} promising sites, no bound: the deadline is too short for more"
    claim = {
        "status": str(Status.FEASIBLE), "objective": None, "bound": None, "gap": None, "proof": None,
        "solver": "auto", "seconds": clock.seconds, "note": note,
    }  # fmt: skip
    parts, terms = {"parts": FirstParts(sites, graph, figures, weights.lambda_)}, len(figures.t0) + len(figures.raw)
    makespan = float((figures.start + figures.time).max())
    return plan_with(
        parts, terms, total, makespan, request, sites.cluster, weights, figures.tier, claim, figures.penalties
    )


def parts_of(plan: Plan) -> FirstParts | None:
    """What the stages and transfers of a first plan are yet to be written from; ``None`` once they are."""
    parts = plan.__dict__.get("parts")
    return parts if isinstance(parts, FirstParts) else None


@dataclass(frozen=True, eq=False)
class FirstParts:
    """What the stages and transfers of a plan are written from; ``weight`` is what a second of transfer costs."""

    sites: Promising
    graph: GraphSpec
    figures: Figured
    weight: float

    def transfers(self) -> tuple[TransferPlan, ...]:
        path, graph, weight = self.sites.path, self.graph, self.weight
        place, sizes, raw, exposed = (each.tolist() for each in self.figures.of_edges)
        return tuple([
            made(
                TransferPlan,
                {
                    "source": edge.source, "target": edge.target, "kind": str(edge.kind),
                    "path": path[place[u]][place[v]], "bytes": size, "raw": seconds, "exposed": left,
                    "cost": weight * left,
                },
            )
            for edge, (u, v), size, seconds, left in zip(graph.edges, graph.ends(), sizes, raw, exposed, strict=True)
        ])  # fmt: skip

    def stages(self) -> tuple[StagePlan, ...]:
        sites, blocks = self.sites, self.figures.blocks
        names, members, kinds = sites.table.topology.sites, sites.members, sites.kinds
        models, reference = [device.model for device, _, _ in sites.table.kinds], sites.cluster.reference_price
        found = []
        rows = zip(self.graph.stages, *(each.tolist() for each in self.figures.of_stages), strict=True)
        for v, (spec, site, t0, time, begin, term, memory, share, money) in enumerate(rows):
            kind = kinds[site]
            block = blocks.get((v, kind)) if blocks else None
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
