"""What tenants hold under a placement, their quotas, and fairness among tenants of one priority.

A tenant's share at a priority is its dominant one: the larger of its shares of all instances' memory and of their time
(Ghodsi et al., Dominant Resource Fairness, NSDI 2011).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import TenantShares, Violation
from iegopt.batch.placement import Placement

__all__ = ["SHARE_TOLERANCE", "share_violations", "tenant_shares"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SHARE_TOLERANCE = 1e-9
"""By so much rounding may exceed a share."""


def tenant_shares(
    model: BatchModel, placement: Placement, decode: Ints, stays: Bools, decoding: Bools, pace: Floats, work: Floats
) -> TenantShares:
    """What every tenant holds at every priority, running stages that are put aside left out.

    Time is work over the window of a prefill, and max(a, b)/τ of a decode: weights are read for all and are nobody's.
    """
    queue, running, J, T = model.queue, model.running, model.J, model.T
    levels = np.unique(np.concatenate([queue.priority, running.priority]))
    here = np.flatnonzero(placement.prefill >= 0)
    r, s = np.flatnonzero(decoding), np.flatnonzero(stays)
    kind, window = model.instances.kind, model.policy.window
    p, q = placement.prefill[here], placement.decode[here]
    rate = np.where(pace > 0, 1.0 / np.where(pace > 0, pace, 1.0), 0.0)
    of_queue = np.maximum(queue.step_compute[here, kind[q]], queue.step_read[here, kind[q]]) * rate[q]
    of_running = np.maximum(running.step_compute[r, kind[decode[r]]], running.step_read[r, kind[decode[r]]])
    apart = running.instance[s] != running.decode[s]

    def total(rows: Ints, amount: npt.ArrayLike, queued: bool) -> Floats:
        of = queue if queued else running
        cell = np.searchsorted(levels, of.priority[rows]) * T + of.tenant[rows]
        found = np.bincount(cell, np.asarray(amount, dtype=float), len(levels) * T)
        return np.asarray(found, dtype=float).reshape(len(levels), T)

    memory = total(here, queue.kv_full[here] + np.where(p != q, queue.kv_prompt[here], 0), True)
    memory = memory + total(r, running.kv_there[r].astype(float), False)
    memory = memory + total(s, np.where(apart, running.kv_here[s], 0), False)
    time = total(here, work[here] / window + of_queue, True)
    time = time + total(r, of_running * rate[decode[r]], False) + total(s, running.prefill[s] / window, False)
    placed = total(here, np.ones(len(here)), True)
    rest = np.flatnonzero((placement.prefill < 0) & ~model.alone.refused)
    whole = float(model.instances.free.sum())
    return TenantShares(
        requests=(placed + total(r, np.ones(len(r)), False)).astype(np.int64),
        memory=memory,
        time=time,
        dominant=np.maximum(memory / whole if whole > 0 else 0.0 * memory, time / max(1, J)),
        placed=placed.astype(np.int64),
        waiting=total(rest, np.ones(len(rest)), True).astype(np.int64),
    )


def share_violations(model: BatchModel, shares: TenantShares, levels: Ints) -> list[Violation]:
    """Quotas that what is placed exceeds, and shares that run ahead of a tenant that still waits."""
    found: list[Violation] = []
    places = shares.placed.sum(axis=0) > 0
    for quota, amount in (
        (model.quota_requests, shares.requests.sum(axis=0).astype(float)),
        (model.quota_memory, shares.memory.sum(axis=0)),
        (model.quota_time, shares.time.sum(axis=0)),
    ):
        slack = np.where(np.isfinite(quota), quota, 0.0) * SHARE_TOLERANCE
        over = places & (amount > quota + slack)
        for t in np.flatnonzero(over).tolist():
            found.append(Violation("quota", model.tenants[t], float(amount[t]), float(quota[t])))  # noqa: PERF401
    threshold = model.policy.fairness
    if threshold is None:
        return found
    for level in range(len(levels)):
        waiting = np.flatnonzero(shares.waiting[level] > 0)
        if not len(waiting):
            continue
        share = shares.dominant[level]
        for t in np.flatnonzero(shares.placed[level] > 0).tolist():
            least = float(share[waiting[waiting != t]].min(initial=np.inf))
            if share[t] > least + threshold + SHARE_TOLERANCE:
                found.append(Violation("fairness", model.tenants[t], float(share[t]), least + threshold))
    return found
