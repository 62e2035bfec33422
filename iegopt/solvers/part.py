"""Plans over a part of a cluster's sites: what they take, and what they prove of the whole."""

from __future__ import annotations

import dataclasses

from iegopt.problem.sites import SiteTable
from iegopt.problem.topology import Topology
from iegopt.solvers.clock import lag
from iegopt.solvers.result import OPTIMALITY_GAP, Result, Status, relative_gap
from iegopt.spec.graph import GraphSpec

__all__ = ["beside", "of_part", "whole_seconds"]

_LEAST, _STAGE, _STAGE_SITE, _EDGE, _EDGE_SITE = 5e-4, 8e-5, 4e-9, 5e-5, 3e-9
"""Seconds to compile and to solve the relaxation, as measured by numpy on one core of a server: at least, for every
stage and edge, and more for each of the sites."""


def whole_seconds(graph: GraphSpec, topology: Topology) -> float:
    """Roughly what it takes to compile a graph over all sites and to solve its relaxation."""
    widths = len(topology.widths)
    stages = len(graph.stages) * (_STAGE + _STAGE_SITE * topology.S)
    return lag() * (_LEAST + stages + len(graph.edges) * (_EDGE + widths * _EDGE_SITE * topology.S))


def of_part(result: Result, table: SiteTable) -> Result:
    """What a result over a part of the sites says of the whole: its plan, and neither bound nor infeasibility."""
    status = Status.UNKNOWN if result.choice is None else Status.FEASIBLE
    note = (
        f"over {table.topology.S} promising sites, no bound: the deadline is too short for all of them; {result.note}"
    )
    return dataclasses.replace(result, status=status, bound=None, proof=None, note=note)


def beside(part: Result, whole: Result) -> Result:
    """The plan over a part of the sites, where it is better than what the whole came to in time; with its bound."""
    assert part.objective is not None
    bound = None if whole.bound is None else min(whole.bound, part.objective)
    gap = relative_gap(part.objective, bound)
    status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
    note = f"{whole.note}; the plan over promising sites is better"
    return dataclasses.replace(part, status=status, bound=bound, proof=whole.proof, note=note)
