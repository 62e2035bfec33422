"""The weights of C(p) = α·L + β·T + γ·M + λ·D, by SLA class (section 7.4 of the source), and money in seconds.

The source orders the weights and gives no figures: realtime puts α highest, batch β, offline γ, and an agent balances α
and γ. The figures here are ours and keep that order. λ follows the weight of a second of latency, since a transfer on
the critical path delays the answer as an execution does.
"""

from __future__ import annotations

from dataclasses import dataclass

from iegopt.spec.request import Objective, SlaClass, Weights

__all__ = ["PRESETS", "CostWeights", "dollars", "money", "weights_for"]

_HOUR = 3600.0


@dataclass(frozen=True)
class CostWeights:
    """α, β, γ, λ: the price of a second of latency, loaded time, money (in seconds) and transfer.

    ``makespan`` is the price of a second until the last stage ends: 0 where the objective is the sum.
    """

    alpha: float
    beta: float
    gamma: float
    lambda_: float
    makespan: float = 0.0


PRESETS: dict[SlaClass, CostWeights] = {
    SlaClass.REALTIME: CostWeights(alpha=1.0, beta=0.5, gamma=0.1, lambda_=0.8),
    SlaClass.BATCH: CostWeights(alpha=0.2, beta=1.0, gamma=0.3, lambda_=0.4),
    SlaClass.AGENT: CostWeights(alpha=0.7, beta=0.4, gamma=0.7, lambda_=0.6),
    SlaClass.OFFLINE: CostWeights(alpha=0.1, beta=0.2, gamma=1.0, lambda_=0.2),
}


def weights_for(sla_class: SlaClass, given: Weights | None = None, objective: Objective = Objective.SUM) -> CostWeights:
    """The preset of a class, each weight that the caller gives in its place.

    The critical path costs α · (end-to-end finish) + γ · M: stages beside it and transfers cost nothing but their time.
    """
    preset, given = PRESETS[sla_class], given or Weights()
    weights = CostWeights(
        alpha=preset.alpha if given.alpha is None else given.alpha,
        beta=preset.beta if given.beta is None else given.beta,
        gamma=preset.gamma if given.gamma is None else given.gamma,
        lambda_=preset.lambda_ if given.lambda_ is None else given.lambda_,
    )
    if objective is Objective.SUM:
        return weights
    return CostWeights(0.0, 0.0, weights.gamma, 0.0, makespan=round(weights.alpha, 6))


def dollars(price_per_hour: float, seconds: float) -> float:
    """What holding a site of this price ($/h, the sum over a gang) for so long costs."""
    return price_per_hour * seconds / _HOUR


def money(price_per_hour: float, seconds: float, reference_price: float) -> float:
    """M of one stage in seconds: the time at the reference price ($/h) that costs the same.

    Raises
    ------
    ValueError
        Where the reference price is 0 and the site's is not: no number of seconds is worth it.
    """
    if price_per_hour == 0.0:
        return 0.0
    if reference_price <= 0.0:
        raise ValueError(f"price {price_per_hour} $/h against reference_price {reference_price}: expected more than 0")
    return price_per_hour / reference_price * seconds
