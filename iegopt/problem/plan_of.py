"""A plan from what is known of its stages and transfers, whoever placed them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from iegopt.cost.weights import CostWeights
from iegopt.plans import CostSplit, Plan, StagePlan, TransferPlan, WeightsUsed
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.limits import deadline_of
from iegopt.spec.policy import TerminationPolicy
from iegopt.spec.request import RequestSpec

__all__ = ["Claim", "plan_of"]

Claim = Mapping[str, Any]
"""What a solver says of a plan: status, objective or ``None``, bound (both in s), gap, proof, solver, seconds, note."""


def plan_of(
    request: RequestSpec, cluster: CompiledCluster, weights: CostWeights, tier: str | None,
    stages: tuple[StagePlan, ...], transfers: tuple[TransferPlan, ...], claim: Claim, penalties: float = 0.0,
) -> Plan:  # fmt: skip
    """The plan; what its terms do not explain of the objective are penalties. No objective: these are all."""
    makespan = max([stage.finish for stage in stages], default=0.0)
    cost = [stage.cost for stage in stages]
    total = CostSplit(
        L=sum([each.L for each in cost]),
        T=sum([each.T for each in cost]),
        M=sum([each.M for each in cost]),
        D=sum([transfer.exposed for transfer in transfers]),
        dollars=sum([each.dollars for each in cost]),
    )
    terms = _weighted(total, makespan, weights)
    objective = terms + penalties if claim["objective"] is None else claim["objective"]
    penalties = objective - terms
    return Plan(
        request=request.id,
        cluster=cluster.spec.name,
        makespan=makespan,
        deadline=deadline_of(request),
        termination=dict(_termination(request.dag_constraints.termination_policy)),
        tier=tier,
        stages=stages,
        transfers=transfers,
        cost=total,
        # What rounding to ticks leaves is no penalty.
        penalties=penalties if penalties > 1e-9 * (2 + len(stages) + len(transfers)) else 0.0,
        weights=WeightsUsed(weights.alpha, weights.beta, weights.gamma, weights.lambda_, weights.makespan),
        reference_price=cluster.reference_price,
        **{**claim, "objective": objective},
    )


def _weighted(cost: CostSplit, makespan: float, weights: CostWeights) -> float:
    """α·L + β·T + γ·M + λ·D, and the price of the makespan: the objective without penalties, in seconds."""
    sums = weights.alpha * cost.L + weights.beta * cost.T + weights.gamma * cost.M + weights.lambda_ * cost.D
    return sums + weights.makespan * makespan


@lru_cache(maxsize=64)
def _termination(policy: TerminationPolicy) -> Mapping[str, Any]:
    """A policy as plain data, rendered once: most requests bear one of a few."""
    return policy.model_dump(mode="json")
