"""From a placement and its outcome to the answer, in the user's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np

from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import FROM_PLAN, Outcome
from iegopt.batch.placement import MIGRATE, PREEMPT, Placement
from iegopt.batch.reasons import reasons
from iegopt.batch_plans import (
    SAME_INSTANCE,
    BatchPlan,
    InstanceUse,
    LevelResult,
    QueuedDecision,
    Reason,
    RunningDecision,
    TenantUse,
)  # fmt: skip
from iegopt.errors import InternalError
from iegopt.spec.cluster import LEVELS

__all__ = ["OPTIMAL_GAP", "LevelBound", "to_plan"]

OPTIMAL_GAP = 1e-6
"""Gap up to which a plan counts as optimal: what the arithmetic of bounds leaves."""


@dataclass(frozen=True)
class LevelBound:
    """No plan that leaves the levels above with no less is worth more at this one; ``proof`` names the method."""

    value: float
    proof: str


def to_plan(
    model: BatchModel,
    placement: Placement,
    outcome: Outcome,
    *,
    solver: str,
    seconds: float,
    bounds: Mapping[int, LevelBound] | None = None,
    note: str = "",
) -> BatchPlan:
    """The answer.

    Parameters
    ----------
    solver, seconds, note
        Who found it, in how long, and what the user should know.
    bounds
        Priority -> bound; levels without one have no gap.

    Raises
    ------
    InternalError
        The placement breaks a rule.
    """
    if outcome.violations:
        first = outcome.violations[0]
        raise InternalError(
            f"{solver} places {len(outcome.violations)} against the rules, first {first.rule} of {first.where}: "
            f"{first.need:.6g} where {first.have:.6g} is allowed"
        )
    levels = tuple(_levels(outcome, bounds or {}))
    proven = all(level.gap is not None and level.gap <= OPTIMAL_GAP for level in levels)
    status: Literal["optimal", "feasible"] = "optimal" if proven else "feasible"
    return BatchPlan(
        snapshot=model.snapshot.name,
        time=model.snapshot.time,
        status=status,
        solver=solver,
        seconds=seconds,
        note=note,
        levels=levels,
        queue=tuple(_queue(model, placement, outcome)),
        running=tuple(_running(model, placement, outcome)),
        instances=tuple(_instances(model, placement, outcome)),
        tenants=tuple(_tenants(model, outcome)),
        warnings=model.warnings,
    )


def _levels(outcome: Outcome, bounds: Mapping[int, LevelBound]) -> Iterator[LevelResult]:
    for level, utility, loss in zip(
        outcome.levels.tolist(), outcome.level_utility.tolist(), outcome.level_loss.tolist(), strict=True
    ):
        bound = bounds.get(level)
        gap = None
        if bound is not None:
            missing = max(0.0, bound.value - (utility - loss))
            gap = missing / bound.value if bound.value > 0 else (0.0 if missing == 0 else np.inf)
        yield LevelResult(
            level, utility, loss, utility - loss, bound.value if bound else None, gap, bound.proof if bound else None
        )


def _queue(model: BatchModel, placement: Placement, outcome: Outcome) -> Iterator[QueuedDecision]:
    """In the order of the snapshot's queue, then the running stages of lost instances."""
    index = {name: i for i, name in enumerate(model.queue.ids)}
    why = reasons(model, placement, outcome)
    waiting = [(q.id, q.tenant, q.level) for q in model.snapshot.queue]
    waiting += [(r.id, r.tenant, r.priority) for r in model.snapshot.running if r.id in model.requeued]
    rows = _Columns(model, placement, outcome)
    for name, tenant, priority in waiting:
        i = index.get(name)
        if i is None:
            yield QueuedDecision(name, tenant, priority, "refused", model.impossible[name])
        elif i in why:
            status, reason = why[i]
            yield _missing(name, tenant, priority, status, reason)
        else:
            yield rows.placed(i, name, tenant, priority)


def _missing(name: str, tenant: str, priority: int, status: str, reason: Reason) -> QueuedDecision:
    return QueuedDecision(name, tenant, priority, "refused" if status == "refused" else "held", reason)


class _Columns:
    """What placed requests' decisions are read from, as lists."""

    def __init__(self, model: BatchModel, placement: Placement, outcome: Outcome) -> None:
        self.model, self.names = model, model.instances.ids
        self.prefill, self.decode = placement.prefill.tolist(), placement.decode.tolist()
        self.pace = placement.pace.tolist()
        self.paces = model.paces.tolist()
        names = (
            "reused", "reused_from", "fetched", "work", "start", "first_token", "transfer", "wire", "finish", "utility"
        )  # fmt: skip
        self.of = {name: getattr(outcome, name).tolist() for name in names}
        self.memory, self.output = model.queue.kv_full.tolist(), model.queue.output.tolist()

    def placed(self, i: int, name: str, tenant: str, priority: int) -> QueuedDecision:
        p, q, of = self.prefill[i], self.decode[i], self.of
        level, source = int(self.model.instances.level[p, q]), of["reused_from"][i]
        return QueuedDecision(
            id=name,
            tenant=tenant,
            priority=priority,
            status="placed",
            prefill=self.names[p],
            decode=self.names[q],
            pace=self.paces[self.pace[q]] if self.output[i] else None,
            reused=of["reused"][i],
            reused_from="plan" if source == FROM_PLAN else self.names[source] if source >= 0 else None,
            fetched=of["fetched"][i],
            work=of["work"][i],
            start=of["start"][i],
            first_token=of["first_token"][i],
            transfer=of["transfer"][i],
            transferred=of["wire"][i],
            path=SAME_INSTANCE if level < 0 else LEVELS[level],
            finish=of["finish"][i],
            memory=self.memory[i],
            utility=of["utility"][i],
        )


def _running(model: BatchModel, placement: Placement, outcome: Outcome) -> Iterator[RunningDecision]:
    """In the order of the snapshot."""
    index = {name: r for r, name in enumerate(model.running.ids)}
    names, of = model.instances.ids, outcome.running
    for spec in model.snapshot.running:
        r = index.get(spec.id)
        if r is None:
            yield RunningDecision(spec.id, "requeue", spec.instance)
            continue
        costs = {
            "bytes": int(of.bytes[r]), "seconds": float(of.seconds[r]), "misses": bool(of.misses[r]),
            "loss": float(of.loss[r]),
        }  # fmt: skip
        if placement.action[r] == PREEMPT:
            by = model.queue.ids[int(of.by[r])]
            how: Literal["swap", "recompute"] = "swap" if of.swaps[r] else "recompute"
            yield RunningDecision(spec.id, "preempt", spec.instance, by=by, how=how, **costs)  # type: ignore[arg-type]
        elif placement.action[r] == MIGRATE:
            to = names[int(placement.to[r])]
            yield RunningDecision(spec.id, "migrate", spec.instance, to=to, **costs)  # type: ignore[arg-type]
        else:
            yield RunningDecision(spec.id, "keep", spec.instance)


def _instances(model: BatchModel, placement: Placement, outcome: Outcome) -> Iterator[InstanceUse]:
    for j, name in enumerate(model.instances.ids):
        busy = outcome.sequences[j] > 0
        yield InstanceUse(
            id=name,
            pace=float(model.paces[placement.pace[j]]) if busy else None,
            decode_share=float(outcome.decode_share[j]),
            other_share=float(model.instances.other[j]),
            prefill_seconds=float(outcome.prefill_seconds[j]),
            memory=int(outcome.memory[j]),
            free=int(model.instances.free[j]),
            sequences=int(outcome.sequences[j]),
        )


def _tenants(model: BatchModel, outcome: Outcome) -> Iterator[TenantUse]:
    """Tenants by priority that hold something or wait."""
    shares, T = outcome.tenants, model.T
    memory = shares.memory / max(1.0, float(model.instances.free.sum()))
    time = shares.time / max(1, model.J)
    cell = np.searchsorted(outcome.levels, model.queue.priority) * T + model.queue.tenant
    worth = np.bincount(cell, outcome.utility, len(outcome.levels) * T).reshape(-1, max(1, T))
    for level, priority in enumerate(outcome.levels.tolist()):
        for t, name in enumerate(model.tenants):
            if shares.requests[level, t] or shares.waiting[level, t]:
                yield TenantUse(
                    name, priority, int(shares.requests[level, t]), float(memory[level, t]), float(time[level, t]),
                    float(shares.dominant[level, t]), int(shares.waiting[level, t]), float(worth[level, t]),
                )  # fmt: skip
