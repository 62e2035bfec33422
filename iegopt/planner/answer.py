"""What a plan or its absence is told as: a solver's result in the user's words."""

from __future__ import annotations

import dataclasses
from typing import Any

from iegopt.explain.conflict import Conflict, find_conflict
from iegopt.plans import NoPlan, Plan, made
from iegopt.problem.compile import Compiled
from iegopt.problem.decode import decode, in_seconds
from iegopt.solvers.result import OPTIMALITY_GAP, Result, Status, relative_gap
from iegopt.spec.kinds import KINDS
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import NodeType, StageKind

__all__ = ["barely_in_time", "beside_first", "conflicts_of", "decoded", "no_plan", "no_time"]

_ROUNDED = 1e-6
"""What rounding to ticks and the verifier's tolerance may move a sum of times by, in parts of it and in seconds."""


def decoded(compiled: Compiled, result: Result, seconds: float) -> Plan:
    """The plan of a result that has one, ``seconds`` after the request came."""
    assert result.choice is not None
    assert result.objective is not None
    return decode(
        compiled, result.choice, status=str(result.status), objective=result.objective, bound=result.bound,
        gap=result.gap, proof=result.proof, solver=result.solver, seconds=seconds, note=result.note,
        start=result.start,
    )  # fmt: skip


def beside_first(first: Plan, result: Result) -> Plan:
    """The first plan of a request, where it is better than what a solver came to in time; with the solver's bound."""
    bound = in_seconds(result.bound)
    if bound is None:
        return first
    bound = min(bound, first.objective)
    gap = relative_gap(first.objective, bound)
    status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
    note = f"{result.note}; the first plan, by best fit over promising sites, is better"
    said = {"bound": bound, "gap": gap, "status": str(status), "proof": result.proof, "note": note}
    return made(Plan, {**vars(first), **said})


def barely_in_time(plan: Plan, request: RequestSpec) -> bool:
    """Whether a verified plan keeps a limit in time by so little that a solver, which counts in ticks, may call it
    broken."""
    computing = {kind for kind, usual in KINDS.items() if usual.node_type is NodeType.COMPUTE}
    budget = request.dag_constraints.max_compute_time
    ends = [stage.finish for stage in plan.stages if stage.kind == StageKind.PREFILL]
    kept = [
        (plan.makespan, plan.deadline),
        (sum(stage.time for stage in plan.stages if stage.kind in computing), budget),
        *((end, request.sla.ttft) for end in ends),
        *((stage.time, stage.sla) for stage in plan.stages),
    ]
    return any(most is not None and used > most - _ROUNDED * max(1.0, most) for used, most in kept)


def no_time(request: str, cluster: str, seconds: float) -> NoPlan:
    """The deadline came before anything could be solved."""
    note = "the deadline came before the request was compiled"
    return NoPlan(
        request=request, cluster=cluster, status=str(Status.UNKNOWN), bound=None, proof=None, solver="none",
        seconds=seconds, note=note, tier=None, conflicts=(),
    )  # fmt: skip


def no_plan(compiled: Compiled, result: Result, seconds: float, explained: bool) -> NoPlan:
    """Why a result has no plan; where infeasible and ``explained``, with the constraints that conflict."""
    wanted = explained and result.status is Status.INFEASIBLE
    return NoPlan(
        request=compiled.request.id,
        cluster=compiled.cluster.spec.name,
        status=str(result.status),
        bound=in_seconds(result.bound),
        proof=result.proof,
        solver=result.solver,
        seconds=seconds,
        note=result.note,
        tier=compiled.tier,
        conflicts=conflicts_of(compiled) if wanted else (),
    )


def conflicts_of(compiled: Compiled) -> tuple[dict[str, Any], ...]:
    """The constraints of an infeasible problem that conflict, as data."""
    found = [_with_reasons(compiled, conflict) for conflict in find_conflict(compiled.problem)]
    return tuple(dataclasses.asdict(conflict) for conflict in found)


def _with_reasons(compiled: Compiled, conflict: Conflict) -> Conflict:
    """A stage without any option says why every kind of site refused it."""
    if conflict.rule != "options":
        return conflict
    stages = [stage.id for stage in compiled.graph.stages]
    if conflict.where not in stages:
        return conflict
    v = stages.index(conflict.where)
    refused = compiled.stages[v].refused.most_common()
    reasons = "; ".join(f"{reason} ({count} site{'s' * (count > 1)})" for reason, count in refused)
    return dataclasses.replace(conflict, sentence=f"{conflict.sentence}: {reasons or _no_gang(compiled, v)}")


def _no_gang(compiled: Compiled, v: int) -> str:
    """Where no site was even refused, none has the size that the stage asks for."""
    parallelism = compiled.graph.stages[v].parallelism
    size = parallelism.degree if parallelism else 1
    listed = "the cluster lists none" if compiled.cluster.spec.gangs else "no host has as many of one model"
    return f"it asks for a gang of {size} devices, and {listed}"
