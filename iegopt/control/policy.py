"""What the controller goes by: times of grace, limits of work in flight, retries, preemption."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from iegopt.control.states import BLOCK_TIMEOUT
from iegopt.spec.base import Spec
from iegopt.spec.policy import KvTransferConfig, PreemptionConfig
from iegopt.spec.quantities import PositiveInt, Seconds, SmallInt
from iegopt.units import shown

__all__ = ["ControlPolicy"]


class ControlPolicy(Spec):
    """Policy of one controller; a journal is replayed under the policies that it was written under.

    Attributes
    ----------
    heartbeat, lost_after
        A worker silent for ``lost_after`` heartbeats is lost.
    grace, restart_grace
        Seconds in which a worker may come back after its socket closed, and after the controller was away.
    fault_window
        Workers lost within so many seconds of one another count as one fault.
    max_retries
        Failures of a stage's own; what a lost worker takes with it is not counted.
    max_losses
        Workers, each lost alone while it had a stage, after which that stage may be what ends them, and fails.
    retry_delay
        Seconds before the second retry, twice as many before each further one, up to 64 times; the first is immediate.
    slow_factor, slow_floor
        A stage that runs longer than ``slow_factor`` times its planned time, and longer than the floor, is slow.
    max_migrations
        Times one decode is moved for slowness.
    stop_grace
        Seconds that running stages have after a limit was reached, and that a stage has to stop.
    plan_patience
        Seconds in which the planner is asked again, whenever workers come or go, before a request without a plan fails.
    startup_grace
        Seconds in which workers of the cluster may come up, from when the controller first began, or lost them, until
        requests that need them fail; before its first plan a request waits for no longer than its SLA allows it.
    max_in_flight, max_queued
        Requests worked on, and waiting beside them; more are refused.
    kv_patience
        Seconds that a worker may take for a message of a KV transfer, after which the KV is had from elsewhere or
        computed again.
    keep_copy
        Tier on which workers keep a copy of each KV cache for recovery.
    tool_timeout
        Seconds that a tool may take.
    answer_kept
        Seconds for which an answer is kept that no client acknowledges.
    """

    heartbeat: Seconds = 1.0
    lost_after: PositiveInt = 3
    grace: Seconds = 0.5
    restart_grace: Seconds = 5.0
    fault_window: Seconds = 0.5
    block_timeout: Seconds = BLOCK_TIMEOUT
    max_retries: SmallInt = 3
    max_losses: SmallInt = 10
    retry_delay: Seconds = 0.05
    slow_factor: float = Field(default=3.0, ge=1, le=1e6)
    slow_floor: Seconds = 1.0
    max_migrations: SmallInt = 2
    stop_grace: Seconds = 5.0
    plan_patience: Seconds = 10.0
    startup_grace: Seconds = 300.0
    max_in_flight: PositiveInt = 64
    max_queued: SmallInt = 1024
    preemption: PreemptionConfig = PreemptionConfig()
    kv_transfer: KvTransferConfig = KvTransferConfig()
    kv_patience: Seconds = 5.0
    keep_copy: Literal["L1", "L2"] | None = None
    tool_timeout: Seconds = 30.0
    answer_kept: Seconds = 3600.0

    def differences(self, other: ControlPolicy) -> list[str]:
        """The fields in which another policy differs: what they are there, and here."""
        ours, theirs = (policy.model_dump(mode="json", by_alias=True) for policy in (self, other))
        changed = (name for name in ours if theirs[name] != ours[name])
        return [f"{name} is {shown(theirs[name])}, and no longer {shown(ours[name])}" for name in changed]

    def retry_after(self, failures: int) -> float:
        """Seconds before a stage that has failed so often begins again."""
        return 0.0 if failures <= 1 else float(self.retry_delay * 2 ** min(failures - 2, 6))
