"""Limits in time of a whole request: TTFT, end to end, compute budget; and which of them a problem must carry."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from iegopt.graph.limits import first_prefill
from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.segments import per_stage
from iegopt.spec.graph import GraphSpec
from iegopt.spec.kinds import KINDS
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import NodeType

__all__ = ["Limits", "deadline_of", "request_limits", "ticks", "without_slack_limits"]


@dataclass(frozen=True)
class Limits:
    """Seconds; ``finish_by`` bounds the finish of single stages, ``budget`` the summed time of compute stages."""

    deadline: float | None
    finish_by: dict[str, float]
    budget: float | None
    budget_stages: frozenset[str]


def request_limits(graph: GraphSpec, request: RequestSpec) -> Limits:
    """The limits of a request: its SLA, and ``max_compute_time`` and ``timeout`` of its dag_constraints."""
    constraints = request.dag_constraints
    finish_by = {}
    if request.sla.ttft is not None:
        first = first_prefill(graph)
        if first is not None:
            finish_by[first] = request.sla.ttft
    compute = frozenset(s.id for s in graph.stages if KINDS[s.type].node_type is NodeType.COMPUTE)
    return Limits(deadline_of(request), finish_by, constraints.max_compute_time, compute)


def deadline_of(request: RequestSpec) -> float:
    """Seconds until the end of the last stage: the end-to-end limit, or the timeout where it comes first."""
    timeout = request.dag_constraints.termination_policy.timeout
    return timeout if request.sla.e2e is None else min(request.sla.e2e, timeout)


def ticks(seconds: float | None) -> int:
    """Seconds as ticks, ``NO_LIMIT`` for ``None``."""
    return NO_LIMIT if seconds is None else round(seconds * TICKS_PER_SECOND)


def without_slack_limits(problem: Problem) -> Problem:
    """Drop limits that no choice of options within their SLAs can reach, so that solvers need not carry them."""
    options = problem.options
    within = options.time
    if (problem.sla < NO_LIMIT).any():
        within = np.where(within <= np.repeat(problem.sla, np.diff(options.ptr)), within, 0)
    slowest = per_stage(np.maximum, within, options.ptr, 0)
    budget = int(slowest[list(problem.budget_stages)].sum())
    latency, rate = problem.topology.slowest
    transfers = ticks(float((latency + problem.edges.bytes * rate).sum())) + problem.E
    longest = int(slowest.sum()) + transfers
    return replace(
        problem,
        budget=problem.budget if budget > problem.budget else NO_LIMIT,
        deadline=problem.deadline if longest > problem.deadline else NO_LIMIT,
        finish_by=np.where(longest > problem.finish_by, problem.finish_by, NO_LIMIT),
    )
