"""Running stages that no plan may touch while the levels above lose nothing, and what they leave of their instances."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from iegopt.batch.bound_rows import ROUNDING, Classes
from iegopt.batch.losses import preemption_costs
from iegopt.batch.model import BatchModel

__all__ = ["pinned", "share_beside_pinned"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

NOTHING = 1e-9
"""A loss up to which a level counts as having lost nothing."""


def pinned(model: BatchModel, level: int, whole: Collection[int]) -> Bools:
    """(R,) which running stages stay where they are in every plan of ``level`` that costs the levels ``whole`` nothing:
    those that may be neither preempted nor moved, or only at a loss of such a level."""
    running, policy = model.running, model.policy
    config = policy.preemption_config
    loses_nothing = np.isin(running.priority, list(whole))
    first = int(model.queue.priority.min(initial=level))
    may_go = config.enabled & (running.preempted < config.max_preempt_per_request)
    may_go &= running.priority - config.min_priority_gap >= first
    may_go &= ~loses_nothing | (preemption_costs(model).loss <= NOTHING)
    at = model.instances
    others = ~np.eye(model.J, dtype=bool)
    latency = at.latency.min(axis=1, initial=np.inf, where=others)[running.instance]
    rate = at.seconds_per_byte.min(axis=1, initial=np.inf, where=others)[running.instance]
    way = np.where(np.isfinite(latency), latency + running.wire_now * np.where(np.isfinite(rate), rate, 0.0), np.inf)
    may_move = policy.migration & ~running.is_prefill
    may_move = may_move & (~loses_nothing | (running.weight * policy.second_value * way <= NOTHING))
    return np.asarray(~(may_go | may_move))


def share_beside_pinned(model: BatchModel, classes: Classes, stays: Bools) -> Floats:
    """(C,) the most of its time that an instance of a class has for prefills beside what stays, which decodes at the
    slowest pace that it may have."""
    running, at, J = model.running, model.instances, model.J
    r = np.flatnonzero(stays & (running.sequences > 0))
    where = running.decode[r]
    kind, busy = at.kind[where], np.bincount(where, minlength=J) > 0
    compute = np.bincount(where, running.step_compute[r, kind], J) + model.kinds.base_compute[at.kind]
    read = np.bincount(where, running.step_read[r, kind], J) + model.kinds.base_read[at.kind]
    tightest = np.full(J, np.inf)
    np.minimum.at(tightest, where, running.itl[r])
    rung = np.maximum(0, np.searchsorted(model.paces, tightest * (1.0 + ROUNDING) + ROUNDING, side="right") - 1)
    left = 1.0 - at.other - np.where(busy, np.maximum(compute, read) / model.paces[rung], 0.0)
    found = np.zeros(classes.size)
    prefills = (classes.of >= 0) & at.prefills
    np.maximum.at(found, classes.of[prefills], left[prefills])
    return found
