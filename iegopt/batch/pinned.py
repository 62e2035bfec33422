"""Running stages that no plan may touch while the levels above lose nothing, and what they leave of their instances."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import numpy.typing as npt

from iegopt.batch.bound_rows import ROUNDING, Classes
from iegopt.batch.losses import preemption_costs
from iegopt.batch.model import BatchModel

__all__ = ["free_beside", "most_beside", "pinned"]

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
    reach = np.isfinite(latency) & np.isfinite(rate)
    way = np.where(reach, latency, 0.0) + running.wire_now * np.where(reach, rate, 0.0)
    free = ~loses_nothing | (running.weight * policy.second_value * way <= NOTHING)
    may_move = policy.migration & ~running.is_prefill & reach & free
    return np.asarray(~(may_go | may_move))


def free_beside(model: BatchModel, stays: Bools) -> Floats:
    """(J,) share of its time that an instance has for prefills beside running stages (R,) that stay, which decode as
    slowly as they may."""
    running, at, J = model.running, model.instances, model.J
    r = np.flatnonzero(stays & (running.sequences > 0))
    where = running.decode[r]
    kind, busy = at.kind[where], np.bincount(where, minlength=J) > 0
    compute = np.bincount(where, running.step_compute[r, kind], J) + model.kinds.base_compute[at.kind]
    read = np.bincount(where, running.step_read[r, kind], J) + model.kinds.base_read[at.kind]
    tightest = np.full(J, np.inf)
    np.minimum.at(tightest, where, running.itl[r])
    rung = np.maximum(0, np.searchsorted(model.paces, tightest * (1.0 + ROUNDING) + ROUNDING, side="right") - 1)
    return np.asarray(1.0 - at.other - np.where(busy, np.maximum(compute, read) / model.paces[rung], 0.0))


def most_beside(model: BatchModel, classes: Classes, stays: Bools) -> Floats:
    """(C,) the most that an instance of a class has so."""
    found, prefills = np.zeros(classes.size), (classes.of >= 0) & model.instances.prefills
    np.maximum.at(found, classes.of[prefills], free_beside(model, stays)[prefills])
    return found
