"""The policy of batch replanning: window, paces, quotas, fairness, preemption (section 5.4; docs/replanning.md)."""

from __future__ import annotations

from typing import Annotated, Self

from pydantic import Field, model_validator

from iegopt.spec.base import Identifier, Spec
from iegopt.spec.policy import KvTransferConfig, PreemptionConfig
from iegopt.spec.quantities import Fraction, Seconds, SmallInt

__all__ = ["BatchPolicy", "QuotaSpec", "TenantSpec"]

PositiveSeconds = Annotated[Seconds, Field(gt=0)]


class QuotaSpec(Spec):
    """The most a tenant may hold: requests that run, and shares of all instances' memory and time."""

    requests: SmallInt | None = None
    memory: Fraction | None = None
    time: Fraction | None = None


class TenantSpec(Spec):
    quota: QuotaSpec = QuotaSpec()


class BatchPolicy(Spec):
    """How a queue is planned.

    Attributes
    ----------
    window
        The planning window: prefills of the throughput class end within it.
    period
        Until the next replan: what cannot keep its limits starting then, alone on an idle cluster, is refused.
    paces
        Seconds between tokens that an instance may promise, ascending.
    reference_pace
        τ_ref: the pace at which the throughput class has its full weight.
    fairness
        The most by which dominant shares of tenants of one priority may differ.
    second_value
        Part of its weight that a running request loses per second that preempting or moving it costs.
    hysteresis
        What another place must be better by for a queued request to leave the one an earlier plan gave it, in
        weighted seconds.
    half_life, lost_after
        Age at which a reported load counts half, and from which an instance takes nothing new.
    """

    window: PositiveSeconds = 10.0
    period: PositiveSeconds = 0.5
    paces: tuple[PositiveSeconds, ...] = Field(default=(0.01, 0.02, 0.03, 0.05, 0.1, 0.2), min_length=1, max_length=16)
    reference_pace: PositiveSeconds = 0.05
    tenants: dict[Identifier, TenantSpec] = Field(default_factory=dict)
    fairness: Fraction | None = None
    preemption_config: PreemptionConfig = PreemptionConfig()
    migration: bool = True
    kv_transfer_config: KvTransferConfig | None = None
    second_value: float = Field(default=0.01, ge=0, le=1e3)
    hysteresis: Seconds = 0.1
    half_life: PositiveSeconds = 1.0
    lost_after: PositiveSeconds = 30.0

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if any(a >= b for a, b in zip(self.paces, self.paces[1:], strict=False)):
            raise ValueError("paces: expected them ascending, each once")
        if self.period > self.window:
            raise ValueError(f"period {self.period:g}s is longer than the window {self.window:g}s")
        return self
