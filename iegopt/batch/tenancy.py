"""What tenants hold while a plan grows, and whether one more request keeps quotas and fairness.

The same sums as ``iegopt.batch.shares``, kept up to date request by request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.model import BatchModel
from iegopt.batch.placement import KEEP, PREEMPT, Placement
from iegopt.batch.shares import SHARE_TOLERANCE

__all__ = ["Holding", "Tenancy"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Holding:
    """What one request or running stage holds: its cell (level, tenant), bytes, seconds per second, and whether it
    would wait if it were not placed."""

    level: int
    tenant: int
    memory: float
    time: float
    waits: bool = False


class Tenancy:
    """Sums by level and tenant, (L, T) each."""

    def __init__(self, model: BatchModel, placement: Placement) -> None:
        queue, running = model.queue, model.running
        self.model = model
        self.levels = np.unique(np.concatenate([queue.priority, running.priority]))
        self.queue_level = np.searchsorted(self.levels, queue.priority).tolist()
        self.running_level = np.searchsorted(self.levels, running.priority).tolist()
        shape = len(self.levels), model.T
        self.sums = np.zeros((4, *shape))  # requests, memory, time, waiting
        np.add.at(self.sums[3], (self.queue_level, queue.tenant), ~model.alone.refused)
        self._whole = max(1.0, float(model.instances.free.sum()))
        quotas = np.array([model.quota_requests, model.quota_memory, model.quota_time])
        self.limited = bool(np.isfinite(quotas).any()) or model.policy.fairness is not None
        self._quota = quotas * (1.0 + SHARE_TOLERANCE)
        for r in np.flatnonzero(placement.action != PREEMPT).tolist() if self.limited else ():
            at = int(placement.to[r] if placement.action[r] != KEEP else running.decode[r])
            self.add(self.of_running(r, at, float(model.paces[placement.pace[at]])))

    def of_running(self, r: int, q: int, tau: float) -> Holding:
        """What running stage ``r`` holds, decoding on ``q``."""
        running, kind = self.model.running, int(self.model.instances.kind[q])
        memory = float(running.kv_there[r])
        if running.instance[r] != running.decode[r]:
            memory += float(running.kv_here[r])
        rate = max(float(running.step_compute[r, kind]), float(running.step_read[r, kind]))
        time = rate / tau if running.sequences[r] else 0.0
        return Holding(
            self.running_level[r], int(running.tenant[r]), memory,
            time + float(running.prefill[r]) / self.model.policy.window,
        )  # fmt: skip

    def of_queued(self, i: int, p: int, q: int, tau: float, work: float) -> Holding:
        """What request ``i`` would hold there; ``work`` are the seconds of its prefill."""
        queue, kind = self.model.plain, int(self.model.instances.kind[q])
        memory = float(queue["kv_full"][i]) + (float(queue["kv_prompt"][i]) if p != q else 0.0)
        rate = max(queue["step_compute"][i][kind], queue["step_read"][i][kind])
        time = work / self.model.policy.window + (rate / tau if queue["output"][i] else 0.0)
        waits = not self.model.alone.refused[i]
        return Holding(self.queue_level[i], queue["tenant"][i], memory, time, waits)

    def add(self, holding: Holding, sign: int = 1) -> None:
        cell = holding.level, holding.tenant
        self.sums[0][cell] += sign
        self.sums[1][cell] += sign * holding.memory
        self.sums[2][cell] += sign * holding.time
        if holding.waits:
            self.sums[3][cell] -= sign

    def allows(self, holding: Holding) -> bool:
        """Whether one more keeps the tenant's quotas, and its share near those of others that wait at the level."""
        t, level = holding.tenant, holding.level
        total = self.sums[:3, :, t].sum(axis=1) + np.array((1.0, holding.memory, holding.time))
        if (total > self._quota[:, t]).any():
            return False
        threshold = self.model.policy.fairness
        if threshold is None:
            return True
        memory, time, waits = self.sums[1, level], self.sums[2, level], self.sums[3, level] > 0.5
        waits[t] = False
        if not waits.any():
            return True
        dominant = np.maximum(memory / self._whole, time / max(1, self.model.J))
        mine = max((memory[t] + holding.memory) / self._whole, (time[t] + holding.time) / max(1, self.model.J))
        return bool(mine <= dominant[waits].min() + threshold)
