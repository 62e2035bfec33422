"""The first plan of a request: placed by best fit over the promising sites, before anything is compiled.

Costs are those of kinds of sites, for all stages at once (``cost.rows``; stages with a model, one by one); a site adds
its load and its price. The plan has no bound. It is told (``first_told``) and verified like any other, all within a
millisecond where stages and cards are few.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from iegopt.cost.rows import KindRates
from iegopt.cost.weights import CostWeights, weights_for
from iegopt.planner.first_told import told
from iegopt.planner.promising import Facts, Promising
from iegopt.plans import Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.compile import can_focus, degrees_of, precisions_of
from iegopt.problem.compile_edges import buffers, wire_bytes
from iegopt.problem.sites import SiteTable
from iegopt.problem.stage_options import Block
from iegopt.solvers.clock import Clock
from iegopt.solvers.search.best_fit import Board, Offers, best_fit, neighbours
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import MemoryAccounting, Objective, RequestSpec
from iegopt.spec.stage import StageSpec

__all__ = ["FirstPlans"]


class FirstPlans:
    """Makes first plans on a cluster; what it works out of the cluster's sites is kept."""

    def __init__(self) -> None:
        self._sites: dict[SiteTable, Promising | None] = {}

    def prepare(self, cluster: CompiledCluster) -> None:
        """Lay the promising sites out now, where others have been chosen since, not within the next deadline."""
        tables = cluster.focus_tables
        if self._sites.keys() != set(tables):
            kept = self._sites
            self._sites = {table: kept[table] if table in kept else self._of(cluster, table) for table in tables}

    def plan(self, cluster: CompiledCluster, graph: GraphSpec, request: RequestSpec, clock: Clock) -> Plan | None:
        """A plan that keeps SLAs and memory; limits of the whole request are for the verifier to see to.

        ``None`` where a stage fits nowhere, the clock ends first, or the request asks for what best fit does not do:
        affinities, a preferred device, memory or times that depend on when stages run.
        """
        if not _supports(graph, request) or not can_focus(graph, request, cluster):
            return None
        sites = self._over(cluster, {k for stage in graph.stages for k in degrees_of(stage, cluster)})
        if sites is None or clock.left <= 0.0:
            return None
        weights = weights_for(request.sla_class, request.weights, request.objective)
        facts = _facts(sites, graph, request)
        board = sites.board(cluster.state.site_load(sites.table.topology), weights)
        place = _placed(sites, board, graph, facts, weights, clock)
        if place is None or clock.left <= 0.0:
            return None
        return told(sites, graph, request, facts, place, board.load, weights, clock)

    def _over(self, cluster: CompiledCluster, sizes: set[int]) -> Promising | None:
        """The promising sites for these gang sizes; ``None`` where none are at hand.

        Sites of a table that was built since the last ``prepare`` wait for the next, and those for all gang sizes,
        which every cluster has from the beginning, stand in for them.
        """
        for wanted in (sizes, sizes | set(cluster.gang_sizes)):
            table = cluster.focus(wanted)
            kept = None if table is None else self._sites.get(table)
            if kept is not None and kept.cluster is cluster:
                return kept
        table = cluster.focus(sizes)
        if table is None:
            return None
        kept = self._sites[table] = self._of(cluster, table)
        return kept

    def _of(self, cluster: CompiledCluster, table: SiteTable) -> Promising | None:
        """Rates are those of kinds, which tables chosen anew have from the ones before."""
        known = [sites.rates for of, sites in self._sites.items() if sites is not None and of.kinds is table.kinds]
        rates = known[0] if known else KindRates(table.kinds, cluster.parallel_efficiency)
        rates.prepare()
        return Promising.of(cluster, table, rates)


def _supports(graph: GraphSpec, request: RequestSpec) -> bool:
    timed = request.no_overlap or request.memory_accounting is MemoryAccounting.PEAK
    return not graph.affinity and not timed and request.objective is Objective.SUM


def _facts(sites: Promising, graph: GraphSpec, request: RequestSpec) -> Facts:
    """Seconds and bytes of every stage on every kind of site."""
    stages, kinds = graph.stages, len(sites.table.kinds)
    plain = [v for v, stage in enumerate(stages) if sites.rates.supports(stage)]
    all_plain = len(plain) == len(stages)
    rows = sites.rates.rows(stages if all_plain else [stages[v] for v in plain])
    blocks: dict[tuple[int, int], Block] = {}
    if all_plain:
        seconds, terms, held = rows.seconds, rows.terms, np.repeat(rows.held[:, None], kinds, axis=1)
    else:
        seconds, terms = np.full((len(stages), kinds), math.inf), np.zeros((len(stages), 4, kinds))
        held = np.zeros((len(stages), kinds))
        seconds[plain], terms[plain], held[plain] = rows.seconds, rows.terms, rows.held[:, None]
        for v in sorted(set(range(len(stages))) - set(plain)):
            for kind, block in _quickest(sites, stages[v], request).items():
                blocks[v, kind] = block
                seconds[v, kind] = block.cost.t0 + block.load_time
                held[v, kind] = math.ceil(block.cost.memory_bytes + block.cost.kv_bytes) + math.ceil(block.weight_bytes)
    ends = graph.ends()
    kv = request.kv_transfer_config or sites.cluster.spec.kv_transfer_config
    if kv is None:
        sizes = [float(edge.bytes) for edge in graph.edges]
    else:
        sizes = [wire_bytes(edge, stages[u], kv) for edge, (u, _) in zip(graph.edges, ends, strict=True)]
        held += np.array(buffers(graph, sizes, kv))[:, None]
    return Facts(seconds, terms, held, blocks, ends, sizes)


def _quickest(sites: Promising, stage: StageSpec, request: RequestSpec) -> dict[int, Block]:
    """Per kind the block of a stage with a model that takes least time there."""
    degrees, precisions = degrees_of(stage, sites.cluster), precisions_of(stage, request, None)
    found = sites.cluster.blocks(stage, precisions, sites.table, degrees)
    best: dict[int, Block] = {}
    for kind, block in zip(found.kinds, found.blocks, strict=True):
        if kind not in best or block.cost.t0 + block.load_time < best[kind].cost.t0 + best[kind].load_time:
            best[kind] = block
    return best


def _placed(
    sites: Promising, board: Board, graph: GraphSpec, facts: Facts, weights: CostWeights, clock: Clock
) -> list[int] | None:
    """The place of every stage: in the order of the graph, else the largest first."""
    offers = _offers(sites, facts)
    slas = [math.inf if stage.latency_sla is None else stage.latency_sla for stage in graph.stages]
    edges = neighbours(len(offers), facts.ends, facts.sizes, weights.lambda_)
    for largest_first in (False, True):
        order = _largest_first(offers) if largest_first else graph.topological_order()
        place = best_fit(board, offers, slas, edges, sites.free(), order, clock)
        if place is not None or clock.left <= 0.0:
            return place
    return None


def _offers(sites: Promising, facts: Facts) -> list[dict[int, tuple[float, float]]]:
    """Of every stage: the kinds that run it, with T0 and bytes on each device."""
    stage, kind = np.isfinite(facts.seconds).nonzero()
    each = facts.held[stage, kind] / sites.degree[kind]
    offers: list[dict[int, tuple[float, float]]] = [{} for _ in facts.seconds]
    rows = zip(stage.tolist(), kind.tolist(), facts.seconds[stage, kind].tolist(), each.tolist(), strict=True)
    for v, k, t0, size in rows:
        offers[v][k] = t0, size
    return offers


def _largest_first(offers: Sequence[Offers]) -> list[int]:
    least = [min((size for _, size in offer.values()), default=0.0) for offer in offers]
    return sorted(range(len(offers)), key=lambda v: -least[v])
