"""What tenants hold under a plan: quotas, and fairness among those of one priority, worked out again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from iegopt.batch_plans import BatchPlan
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.snapshot import SnapshotSpec
from iegopt.verify.batch_claims import worth
from iegopt.verify.consequences import Consequences
from iegopt.verify.report import Violation

__all__ = ["Holding", "check_tenants", "holdings_of"]

_ROUNDING = 1e-8


@dataclass
class Holding:
    """Of a tenant at a priority: requests, bytes, seconds per second, how many are placed and held, and their worth."""

    requests: int = 0
    memory: float = 0.0
    time: float = 0.0
    placed: int = 0
    waiting: int = field(default=0)
    utility: float = 0.0

    def shares(self, memory: float, instances: int) -> tuple[float, float]:
        return self.memory / memory if memory > 0 else 0.0, self.time / max(1, instances)

    def dominant(self, memory: float, instances: int) -> float:
        return max(self.shares(memory, instances))


def holdings_of(plan: BatchPlan, found: Consequences, policy: BatchPolicy) -> dict[tuple[int, str], Holding]:
    """By priority and tenant; what is preempted holds nothing, what is refused does not wait."""
    held: dict[tuple[int, str], Holding] = {}
    for one in found.placed:
        mine = held.setdefault((one.request.priority, one.request.tenant), Holding())
        mine.requests += 1
        mine.placed += 1
        mine.utility += worth(one, found)
        mine.memory += one.request.kv_full + (one.request.kv_prompt if one.p is not one.q else 0)
        mine.time += one.work / policy.window
        if one.request.output and one.pace > 0.0:
            mine.time += max(one.step) / one.pace
    for name, where in found.decoding.items():
        stage = found.stages[name]
        mine = held.setdefault((stage.spec.priority, stage.spec.tenant), Holding())
        mine.requests += 1
        mine.memory += stage.kv_there
        if stage.output and found.paces.get(where.id, 0.0) > 0.0:
            mine.time += max(stage.step(where)) / found.paces[where.id]
        if found.done[name].action == "keep":
            mine.memory += stage.kv_here if stage.to is not stage.at else 0
            mine.time += stage.work / policy.window
    for decision in plan.queue:
        if decision.status == "held":
            held.setdefault((decision.priority, decision.tenant), Holding()).waiting += 1
    return held


def check_tenants(
    plan: BatchPlan, snapshot: SnapshotSpec, policy: BatchPolicy, held: Mapping[tuple[int, str], Holding],
    memory: float, instances: int,
) -> Iterator[Violation]:  # fmt: skip
    """Quotas that what is placed exceeds, shares too far ahead of one that waits, and figures of tenants misstated."""
    for tenant in dict.fromkeys(name for _, name in held):
        quota = policy.tenants[tenant].quota if tenant in policy.tenants else None
        mine = [holding for (_, name), holding in held.items() if name == tenant]
        if quota is None or not any(holding.placed for holding in mine):
            continue
        for used, share, whole in (
            (sum(h.requests for h in mine), quota.requests, 1.0),
            (sum(h.memory for h in mine), quota.memory, memory),
            (sum(h.time for h in mine), quota.time, float(instances)),
        ):
            if share is not None and used > share * whole * (1.0 + _ROUNDING):
                yield Violation("quota", tenant, used, share * whole)
    if policy.fairness is not None:
        yield from _fairness(held, policy.fairness, memory, instances)
    stated = {(use.priority, use.id): use for use in plan.tenants}
    if len(stated) != len(plan.tenants):
        yield Violation("claim", "tenants", "one twice", "each once at a priority")
    for priority, tenant in sorted(stated.keys() | {key for key, h in held.items() if h.requests or h.waiting}):
        mine_here, use = held.get((priority, tenant), Holding()), stated.get((priority, tenant))
        where = f"tenant {tenant} at {priority}"
        if use is None:
            yield Violation("claim", where, "not stated", "what it holds")
            continue
        of_memory, of_time = mine_here.shares(memory, instances)
        for what, claimed, true in (
            ("requests", use.requests, mine_here.requests),
            ("waiting", use.waiting, mine_here.waiting),
            ("memory share", use.memory_share, of_memory),
            ("time share", use.time_share, of_time),
            ("dominant share", use.dominant_share, max(of_memory, of_time)),
            ("utility", use.utility, mine_here.utility),
        ):
            if abs(claimed - true) > _ROUNDING * max(1.0, abs(true)):
                yield Violation("claim", f"{what} of {where}", claimed, true)


def _fairness(
    held: Mapping[tuple[int, str], Holding], threshold: float, memory: float, instances: int
) -> Iterator[Violation]:
    for (priority, tenant), mine in held.items():
        others = [
            h.dominant(memory, instances)
            for (level, name), h in held.items()
            if level == priority and name != tenant and h.waiting
        ]
        if mine.placed and others:
            share, least = mine.dominant(memory, instances), min(others)
            if share > least + threshold + _ROUNDING:
                yield Violation("fairness", f"{tenant} at {priority}", share, least + threshold)
