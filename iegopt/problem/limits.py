"""Limits in time of a whole request: TTFT, end to end, compute budget."""

from __future__ import annotations

from dataclasses import dataclass

from iegopt.spec.graph import GraphSpec
from iegopt.spec.kinds import KINDS
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import NodeType, StageKind

__all__ = ["Limits", "binding_limits"]


@dataclass(frozen=True)
class Limits:
    """Seconds; ``finish_by`` bounds the finish of single stages, ``budget`` the summed time of compute stages."""

    deadline: float | None
    finish_by: dict[str, float]
    budget: float | None
    budget_stages: frozenset[str]


def binding_limits(graph: GraphSpec, request: RequestSpec) -> Limits:
    """The limits of a request: its SLA, and ``max_compute_time`` and ``timeout`` of its dag_constraints."""
    constraints = request.dag_constraints
    timeout = constraints.termination_policy.timeout
    deadline = timeout if request.sla.e2e is None else min(request.sla.e2e, timeout)
    finish_by = {}
    if request.sla.ttft is not None:
        first = next((graph.stages[v] for v in graph.topological_order()
                      if graph.stages[v].type is StageKind.PREFILL), None)  # fmt: skip
        if first is not None:
            finish_by[first.id] = request.sla.ttft
    compute = frozenset(s.id for s in graph.stages if KINDS[s.type].node_type is NodeType.COMPUTE)
    return Limits(deadline, finish_by, constraints.max_compute_time, compute)
