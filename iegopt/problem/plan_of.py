"""A plan from what is known of its stages and transfers, whoever placed them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from iegopt.cost.weights import CostWeights
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, WeightsUsed, made
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.limits import deadline_of
from iegopt.spec.policy import rendered
from iegopt.spec.request import RequestSpec

__all__ = ["Claim", "plan_of", "plan_with"]

Claim = Mapping[str, Any]
"""What a solver says of a plan: status, objective or ``None``, bound (both in s), gap, proof, solver, seconds, note."""


def plan_of(
    request: RequestSpec, cluster: CompiledCluster, weights: CostWeights, tier: str | None,
    stages: tuple[StagePlan, ...], transfers: tuple[TransferPlan, ...], claim: Claim, penalties: float = 0.0,
) -> Plan:  # fmt: skip
    """The plan; what its terms do not explain of the objective are penalties. No objective: these are all."""
    cost = [stage.cost for stage in stages]
    total = CostSplit(
        L=sum([each.L for each in cost]),
        T=sum([each.T for each in cost]),
        M=sum([each.M for each in cost]),
        D=sum([transfer.exposed for transfer in transfers]),
        dollars=sum([each.dollars for each in cost]),
    )
    makespan = max([stage.finish for stage in stages], default=0.0)
    parts = {"stages": stages, "transfers": transfers}
    terms = len(stages) + len(transfers)
    return plan_with(parts, terms, total, makespan, request, cluster, weights, tier, claim, penalties)


def plan_with(
    parts: Mapping[str, Any], terms: int, total: CostSplit, makespan: float, request: RequestSpec,
    cluster: CompiledCluster, weights: CostWeights, tier: str | None, claim: Claim, penalties: float = 0.0,
) -> Plan:  # fmt: skip
    """``plan_of`` by the sums over stages and transfers, which are among its ``parts``; so many ``terms`` of them."""
    sums = _weighted(total, makespan, weights)
    objective = sums + penalties if claim["objective"] is None else claim["objective"]
    penalties = objective - sums
    fields = {
        **claim,
        "request": request.id,
        "cluster": cluster.spec.name,
        "objective": objective,
        "makespan": makespan,
        "deadline": deadline_of(request),
        "termination": dict(rendered(request.dag_constraints.termination_policy)),
        "tier": tier,
        "cost": total,
        # What rounding to ticks leaves is no penalty.
        "penalties": penalties if penalties > 1e-9 * (2 + terms) else 0.0,
        "weights": _used(weights),
        "reference_price": cluster.reference_price,
        "explanation": {},
    }
    return made(Plan, {**fields, **parts})


@lru_cache(maxsize=64)
def _used(weights: CostWeights) -> WeightsUsed:
    return WeightsUsed(weights.alpha, weights.beta, weights.gamma, weights.lambda_, weights.makespan)


def _weighted(cost: CostSplit, makespan: float, weights: CostWeights) -> float:
    """α·L + β·T + γ·M + λ·D, and the price of the makespan: the objective without penalties, in seconds."""
    sums = weights.alpha * cost.L + weights.beta * cost.T + weights.gamma * cost.M + weights.lambda_ * cost.D
    return sums + weights.makespan * makespan
