"""``evaluate``: the exact consequences of a placement, as docs/replanning.md states them. Deterministic and pure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.links import transfer_seconds
from iegopt.batch.loads import loads
from iegopt.batch.losses import running_outcome
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import Outcome
from iegopt.batch.placement import Placement
from iegopt.batch.prefill_order import run_prefills
from iegopt.batch.shares import share_violations, tenant_shares
from iegopt.batch.violations import Ends, rule_violations, within

__all__ = ["evaluate"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def evaluate(model: BatchModel, placement: Placement) -> Outcome:
    """What follows from a placement; a placement that breaks a rule is evaluated too, and says which.

    Raises
    ------
    ValueError
        A request has a prefill without a decode, or the other way round.
    """
    queue, running, N = model.queue, model.running, model.N
    placed = placement.prefill >= 0
    half = np.flatnonzero(placed != (placement.decode >= 0))
    if len(half):
        raise ValueError(f"{queue.ids[half[0]]} has a prefill or a decode alone")
    here = np.flatnonzero(placed)
    load = loads(model, placement)
    prefills = run_prefills(model, placement, load.stays, load.speed, load.pace)
    config = model.policy.kv_transfer_config
    p, q = placement.prefill[here], placement.decode[here]
    wire, transfer, finish = np.zeros(N, dtype=np.int64), np.full(N, np.nan), np.full(N, np.nan)
    size = np.ceil(queue.wire_per_token[here] * queue.prompt[here])
    wire[here] = np.where(p == q, 0, size).astype(np.int64)
    transfer[here] = transfer_seconds(model.instances, config, p, q, size, prefills.work[here])
    pace = np.zeros(N)
    pace[here] = np.where(queue.output[here] > 0, load.pace[q], 0.0)
    finish[here] = prefills.end[here] + transfer[here] + queue.output[here] * pace[here]
    kept = placed & within(prefills.end, queue.prefill_by) & within(finish, queue.e2e) & within(pace, queue.itl)
    slower = np.where(pace > 0, np.minimum(1.0, model.policy.reference_pace / np.where(pace > 0, pace, 1.0)), 1.0)
    utility = np.where(kept, queue.weight * np.where(queue.throughput, slower, 1.0), 0.0)
    outcome = running_outcome(model, placement, load.pace, load.decode, prefills.running_end)
    shares = tenant_shares(model, placement, load.decode, load.stays, load.decoding, load.pace, prefills.work)
    changed = placed & (queue.planned_prefill >= 0)
    changed &= (placement.prefill != queue.planned_prefill) | (placement.decode != queue.planned_decode)
    levels = np.unique(np.concatenate([queue.priority, running.priority]))
    ends = Ends(prefills.end, finish, pace, prefills.running_end, outcome.finish, outcome.misses)
    violations = [*rule_violations(model, placement, load, ends, kept, outcome.by)]
    violations += share_violations(model, shares, levels)
    delay = float((queue.weight[here] * np.where(np.isfinite(finish[here]), finish[here], 0.0)).sum())
    delay += model.policy.hysteresis * float(queue.weight[changed].sum())
    own = np.maximum(
        queue.step_compute[here, model.instances.kind[q]], queue.step_read[here, model.instances.kind[q]]
    )  # fmt: skip
    price = model.instances.price
    money = float((price[p] * prefills.work[here] + price[q] * queue.output[here] * own).sum())
    work = np.bincount(p, prefills.work[here], model.J)
    work = work + np.bincount(running.instance, running.prefill * load.stays, model.J)
    return Outcome(
        deadline=prefills.deadline,
        reused=prefills.reuse.tokens,
        reused_from=prefills.reuse.source,
        fetched=prefills.reuse.fetched,
        work=prefills.work,
        ready=prefills.reuse.ready,
        start=prefills.start,
        first_token=prefills.end,
        transfer=transfer,
        wire=wire,
        finish=finish,
        kept=kept,
        utility=utility,
        changed=changed,
        step=load.step,
        decode_share=load.share,
        speed=load.speed,
        prefill_seconds=np.asarray(work, dtype=float),
        memory=load.memory,
        sequences=load.sequences,
        running=outcome,
        levels=levels,
        level_utility=_by_level(levels, queue.priority, utility),
        level_loss=_by_level(levels, running.priority, outcome.loss),
        tenants=shares,
        delay=delay,
        money=money,
        violations=tuple(violations),
    )


def _by_level(levels: Ints, priority: Ints, amount: Floats) -> Floats:
    return np.asarray(np.bincount(np.searchsorted(levels, priority), amount, len(levels)), dtype=float)
