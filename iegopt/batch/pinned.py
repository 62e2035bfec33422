"""Running stages that no plan may touch while the levels above keep what they have, and what they leave of their
instances."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from iegopt.batch.bound_rows import ROUNDING, Classes
from iegopt.batch.losses import preemption_costs
from iegopt.batch.model import BatchModel

__all__ = ["free_beside", "most_beside", "pinned"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


def pinned(model: BatchModel, head: int, spare: Mapping[int, float]) -> Bools:
    """(R,) which running stages stay where they are in every plan that places nothing above priority ``head``: those
    that may be neither preempted nor moved, or only at a greater loss than their level can have.

    Parameters
    ----------
    spare
        Priority -> the most that it may lose; any other level may lose all.
    """
    running, policy = model.running, model.policy
    config = policy.preemption_config
    most = np.array([spare.get(h, np.inf) for h in running.priority.tolist()])
    may_go = config.enabled & (running.preempted < config.max_preempt_per_request)
    may_go &= running.priority - config.min_priority_gap >= head
    may_go &= preemption_costs(model).loss <= most
    at = model.instances
    others = ~np.eye(model.J, dtype=bool)
    latency = at.latency.min(axis=1, initial=np.inf, where=others)[running.instance]
    rate = at.seconds_per_byte.min(axis=1, initial=np.inf, where=others)[running.instance]
    reach = np.isfinite(latency) & np.isfinite(rate)
    way = np.where(reach, latency, 0.0) + running.wire_now * np.where(reach, rate, 0.0)
    may_move = policy.migration & ~running.is_prefill & reach
    may_move &= running.weight * policy.second_value * way <= most
    return np.asarray(~(may_go | may_move))


def free_beside(model: BatchModel, stays: Bools, *, decode: int | None = None) -> Floats:
    """(J,) share of its time that an instance has for prefills beside running stages (R,) that stay, which decode as
    slowly as they may.

    Parameters
    ----------
    decode
        A request that decodes there too: −∞ where it cannot.
    """
    running, at, J = model.running, model.instances, model.J
    r = np.flatnonzero(stays & (running.sequences > 0))
    where = running.decode[r]
    kind, busy = at.kind[where], np.bincount(where, minlength=J) > 0
    compute = np.bincount(where, running.step_compute[r, kind], J) + model.kinds.base_compute[at.kind]
    read = np.bincount(where, running.step_read[r, kind], J) + model.kinds.base_read[at.kind]
    tightest = np.full(J, np.inf)
    np.minimum.at(tightest, where, running.itl[r])
    able = np.ones(J, dtype=bool)
    if decode is not None:
        queue = model.queue
        able = at.open & at.decodes & model.prefill.runs[decode, at.kind] & (queue.output[decode] > 0)
        compute = compute + np.where(able, queue.step_compute[decode, at.kind], 0.0)
        read = read + np.where(able, queue.step_read[decode, at.kind], 0.0)
        tightest = np.minimum(tightest, queue.itl[decode])
    rung = np.maximum(0, np.searchsorted(model.paces, tightest * (1.0 + ROUNDING) + ROUNDING, side="right") - 1)
    share = np.where(busy | (decode is not None), np.maximum(compute, read) / model.paces[rung], 0.0)
    return np.asarray(np.where(able, 1.0 - at.other - share, -np.inf))


def most_beside(model: BatchModel, classes: Classes, stays: Bools) -> Floats:
    """(C,) the most that an instance of a class has so."""
    found, prefills = np.zeros(classes.size), (classes.of >= 0) & model.instances.prefills
    np.maximum.at(found, classes.of[prefills], free_beside(model, stays)[prefills])
    return found
