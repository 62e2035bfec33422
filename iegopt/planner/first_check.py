"""The check of first plans by arrays (``verify.by_arrays``), laid out for promising sites before a deadline runs."""

from __future__ import annotations

from collections.abc import Iterable

from iegopt.planner.first_told import parts_of
from iegopt.planner.promising import Promising
from iegopt.plans import Plan
from iegopt.spec.graph import GraphSpec
from iegopt.spec.request import RequestSpec
from iegopt.verify.by_arrays import ArrayCheck, Claimed, can_tell
from iegopt.verify.links import Links
from iegopt.verify.plain import WidestPrecision

__all__ = ["FirstChecks"]


class FirstChecks:
    """Checks of the first plans of a cluster; ``links`` and ``precisions`` are what its verifier has looked up."""

    def __init__(self, links: Links, precisions: WidestPrecision) -> None:
        self._links, self._precisions = links, precisions
        self._of: dict[Promising, ArrayCheck] = {}

    def prepare(self, promising: Iterable[Promising]) -> None:
        """Lay out what the next deadline need not wait for, where other sites are promising now."""
        wanted = set(promising)
        if self._of.keys() != wanted:
            kept = self._of
            self._of = {sites: kept[sites] if sites in kept else self._for(sites) for sites in wanted}

    def hold(self, plan: Plan, request: RequestSpec, graph: GraphSpec) -> bool:
        """Whether a first plan is known to hold; where not, ``verify.plan`` has the word."""
        parts = parts_of(plan)
        if parts is None or not can_tell(graph, request, parts.sites.cluster.spec):
            return False
        sites, figures = parts.sites, parts.figures
        check = self._of.get(sites)
        if check is None:
            check = self._of[sites] = self._for(sites)
        claimed = Claimed(figures.place, figures.time, figures.start, plan.objective, plan.makespan)
        cluster = sites.cluster
        return check.holds(claimed, graph, request, cluster.state.load, cluster.state.free, cluster.reference_price)

    def _for(self, sites: Promising) -> ArrayCheck:
        cluster, before = sites.cluster, next(reversed(self._of.values()), None)
        return ArrayCheck(
            sites.table.topology.sites, sites.members, cluster.spec, cluster.by_id, cluster.state.index, self._links,
            self._precisions, before,
        )  # fmt: skip
