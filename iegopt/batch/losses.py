"""What preempting or moving running stages costs: seconds of a swap, a second prefill or a move, and limits missed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.links import transfer_seconds
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import RunningOutcome
from iegopt.batch.placement import MIGRATE, PREEMPT, Placement

__all__ = ["PreemptionCosts", "preemption_costs", "running_outcome"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class PreemptionCosts:
    """Of putting every running stage aside, (R,): as in ``RunningOutcome``."""

    seconds: Floats
    swaps: Bools
    misses: Bools
    loss: Floats


def preemption_costs(model: BatchModel) -> PreemptionCosts:
    """What is lost by putting each running stage aside, whatever else is done.

    Its KV cache is swapped to the host and back, or computed again, whichever is quicker; it comes back at the next
    replan, or, where it queues, at the end of the window, and has its rest before it.
    """
    running, policy = model.running, model.policy
    config = policy.preemption_config
    swap = 2.0 * running.kv_now * model.instances.host_seconds_per_byte[running.instance]
    swaps = swap < running.recompute
    seconds = config.preemption_overhead + np.minimum(swap, running.recompute)
    away = policy.period if config.resume_policy == "immediate" else policy.window
    misses = away + seconds + _rest(model) > running.finish_by
    loss = running.weight * (policy.second_value * seconds + misses)
    return PreemptionCosts(seconds, swaps, misses, loss)


def running_outcome(
    model: BatchModel, placement: Placement, pace: Floats, decode: Ints, prefill_end: Floats
) -> RunningOutcome:
    """Losses and times of all running stages.

    Parameters
    ----------
    pace (J,), decode (R,), prefill_end (R,)
        Of the placement.
    """
    running, R = model.running, model.R
    config = model.policy.kv_transfer_config
    aside, moves = placement.action == PREEMPT, placement.action == MIGRATE
    costs = preemption_costs(model)
    to = np.where(moves, placement.to, running.instance)
    way = transfer_seconds(model.instances, config, running.instance, to, running.wire_now)
    rest = running.remaining * pace[decode]
    late = moves & (way + rest > running.finish_by)
    price = running.weight * (model.policy.second_value * way + late)
    after = transfer_seconds(
        model.instances, config, running.instance, running.decode, running.wire_end, running.prefill
    )  # fmt: skip
    there = np.where(running.sequences > 0, after, 0.0)
    finish = np.where(running.is_prefill, prefill_end + there + rest, np.where(moves, way, 0.0) + rest)
    return RunningOutcome(
        first_token=np.where(running.is_prefill, prefill_end, -np.inf),
        finish=np.where(aside, np.nan, finish),
        loss=np.where(aside, costs.loss, np.where(moves, price, 0.0)),
        seconds=np.where(aside, costs.seconds, np.where(moves, way, 0.0)),
        bytes=np.where(aside, np.where(costs.swaps, running.kv_now, 0), np.where(moves, running.wire_now, 0)),
        swaps=aside & costs.swaps,
        misses=(aside & costs.misses) | late,
        by=_beneficiaries(model, placement) if aside.any() else np.full(R, -1),
    )


def _rest(model: BatchModel) -> Floats:
    """(R,) seconds of work left: its prefill, and its tokens at the fastest pace that its instance gives it alone."""
    running, kinds = model.running, model.kinds
    every, kind = np.arange(model.R), model.instances.kind[running.decode]
    step = np.maximum(
        kinds.base_compute[kind] + running.step_compute[every, kind],
        kinds.base_read[kind] + running.step_read[every, kind],
    )
    pace = np.append(model.paces, model.paces[-1])[np.searchsorted(model.paces * (1.0 + 1e-9), step)]
    return np.asarray(running.prefill + running.remaining * pace)


def _beneficiaries(model: BatchModel, placement: Placement) -> Ints:
    """(R,) the first request, of a priority high enough, on an instance of each stage that is put aside; −1 without."""
    running, queue = model.running, model.queue
    found = np.full(model.R, -1)
    gap = model.policy.preemption_config.min_priority_gap
    best = np.full(model.J, -1)
    first = np.flatnonzero(placement.prefill >= 0)
    # Highest priority first, then as the queue stands; the last write of a reversed order wins.
    turn = first[np.lexsort((first, queue.priority[first]))][::-1]
    best[placement.prefill[turn]] = turn
    decode_best = np.full(model.J, -1)
    decode_best[placement.decode[turn]] = turn
    for r in np.flatnonzero(placement.action == PREEMPT).tolist():
        places = {int(running.instance[r]), int(running.decode[r])}
        there = [int(x) for j in sorted(places) for x in (best[j], decode_best[j]) if x >= 0]
        there = [i for i in there if queue.priority[i] <= running.priority[r] - gap]
        found[r] = min(there, key=lambda i: (int(queue.priority[i]), i), default=-1)
    return found
