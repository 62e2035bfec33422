"""The first plan of a request: placed by best fit over the promising sites, before anything is compiled.

The plan has no bound. Its figures (``first_figures``) are told (``first_told``) and verified like those of any other,
all within a millisecond where stages and cards are few.
"""

from __future__ import annotations

from iegopt.cost.rows import KindRates
from iegopt.cost.weights import weights_for
from iegopt.planner.first_figures import figured
from iegopt.planner.first_told import told
from iegopt.planner.promising import Promising
from iegopt.plans import Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.compile import degrees_of
from iegopt.problem.sites import SiteTable
from iegopt.solvers.clock import Clock
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec

__all__ = ["FirstPlans"]


class FirstPlans:
    """Makes first plans on a cluster; what it works out of the cluster's sites is kept."""

    def __init__(self) -> None:
        self._sites: dict[SiteTable, Promising | None] = {}

    def prepare(self, cluster: CompiledCluster) -> tuple[Promising, ...]:
        """Lay the promising sites out now, where others have been chosen since, not within the next deadline."""
        tables = cluster.focus_tables
        if self._sites.keys() != set(tables):
            kept = self._sites
            self._sites = {table: kept[table] if table in kept else self._of(cluster, table) for table in tables}
        return tuple(sites for sites in self._sites.values() if sites is not None)

    def plan(self, cluster: CompiledCluster, graph: GraphSpec, request: RequestSpec, clock: Clock) -> Plan | None:
        """A plan that keeps SLAs and memory; limits of the whole request are for the verifier to see to.

        Memory that is counted at its peak is counted as a sum, which is no less. ``None`` where a stage fits nowhere,
        the clock ends first, or a stage is bound to a device.
        """
        if graph.figures().bound:
            return None
        sites = self._over(cluster, _degrees(graph, cluster))
        if sites is None or clock.left <= 0.0:
            return None
        weights = weights_for(request.sla_class, request.weights, request.objective)
        figures = figured(sites, graph, request, weights, clock)
        if figures is None or clock.left <= 0.0:
            return None
        return told(sites, graph, request, figures, weights, clock)

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
        known = [
            sites.rates for of, sites in tuple(self._sites.items()) if sites is not None and of.kinds is table.kinds
        ]
        rates = known[0] if known else KindRates(table.kinds, cluster.parallel_efficiency)
        rates.prepare()
        return Promising.of(cluster, table, rates)


def _degrees(graph: GraphSpec, cluster: CompiledCluster) -> set[int]:
    """The gang sizes that stages may take."""
    plain = graph.figures().plain
    if plain is not None:
        return {shape.degree for shape in plain.shapes}
    return {k for stage in graph.stages for k in degrees_of(stage, cluster)}
