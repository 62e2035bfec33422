"""Plans of a queue made by hand, with everything in them that can happen."""

from __future__ import annotations

from iegopt.batch_plans import (
    BatchPlan,
    InstanceUse,
    LevelResult,
    QueuedDecision,
    Reason,
    RunningDecision,
    TenantUse,
)  # fmt: skip

__all__ = ["make_queue_plan"]


def make_queue_plan(held: int = 1) -> BatchPlan:
    """Three placed requests (held KV, a fetch, another decode instance), ``held`` held ones and a refused one."""
    here = QueuedDecision(
        id="chat-1", tenant="chat", priority=0, status="placed", prefill="h-0", decode="h-0", pace=0.04, reused=512,
        reused_from="h-0", work=0.1, start=0.0, first_token=0.4, transfer=0.0, path="same", finish=8.4,
        memory=400_000_000, utility=1.0,
    )  # fmt: skip
    apart = QueuedDecision(
        id="chat-2", tenant="chat", priority=0, status="placed", prefill="a-0", decode="h-0", pace=0.04, reused=256,
        reused_from="h-0", fetched=84_000_000, work=0.2, start=0.003, first_token=0.25, transfer=0.006,
        transferred=328_000_000, path="datacenter", finish=8.0, memory=400_000_000, utility=1.0,
    )  # fmt: skip
    later = QueuedDecision(
        id="labels-1", tenant="labels", priority=2, status="placed", prefill="a-0", decode="a-0", pace=0.2, reused=768,
        reused_from="plan", work=4.0, start=0.25, first_token=5.25, transfer=0.0, path="same", finish=53.0,
        memory=2_000_000_000, utility=1.2,
    )  # fmt: skip
    waits = [
        QueuedDecision(
            f"labels-{n}", "labels", 2, "held",
            Reason("quota", "labels", 0.44, 0.4, "with it tenant labels would hold 0.44 of memory, its quota is 0.4"),
        )
        for n in range(2, 2 + held)
    ]  # fmt: skip
    late = QueuedDecision(
        "chat-0", "chat", 0, "refused",
        Reason("ttft", None, 0.14, -0.2, "its first token takes at least 0.14 s, and none is left at the next replan"),
    )  # fmt: skip
    return BatchPlan(
        snapshot="noon",
        time=81.25,
        status="feasible",
        solver="prices",
        seconds=0.0123,
        note="",
        levels=(
            LevelResult(0, 2.0, 0.0, 2.0, 2.0, 0.0, "all that is not refused"),
            LevelResult(2, 1.2, 0.25, 0.95, 1.0, 0.05, "aggregated prices"),
        ),
        queue=(here, apart, later, *waits, late),
        running=(
            RunningDecision("chat-9", "keep", "h-0"),
            RunningDecision(
                "labels-9", "preempt", "h-0", by="chat-2", how="swap", bytes=3_200_000_000, seconds=0.21, loss=0.2
            ),
            RunningDecision("labels-8", "migrate", "h-0", to="a-0", bytes=1_600_000_000, seconds=0.032, loss=0.05),
            RunningDecision("labels-7", "requeue", "gone"),
        ),
        instances=(
            InstanceUse("h-0", 0.04, 0.75, 0.05, 0.1, 4_000_000_000, 145_000_000_000, 7),
            InstanceUse("a-0", 0.2, 0.25, 0.0, 4.2, 2_000_000_000, 145_000_000_000, 1),
            InstanceUse("a-1", None, 0.0, 0.0, 0.0, 0, 145_000_000_000, 0),
        ),
        tenants=(
            TenantUse("chat", 0, 3, 0.024, 0.02, 0.024, 0, 2.0),
            TenantUse("labels", 2, 3, 0.07, 0.22, 0.22, held, 1.2),
        ),
        warnings=("instance gone is lost",),
    )
