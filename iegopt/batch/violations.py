"""The rules that a placement breaks, apart from quotas and fairness (``iegopt.batch.shares``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.loads import Loads
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import Violation
from iegopt.batch.placement import MIGRATE, PREEMPT, Placement

__all__ = ["TOLERANCE", "Ends", "rule_violations", "within"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

TOLERANCE = 1e-9
"""By so much rounding may miss a limit in time: seconds, and relative to it where it is longer than one."""


@dataclass(frozen=True, eq=False)
class Ends:
    """Times under a placement: of queued requests (N,) the end of the prefill, of all, and the pace; of running stages
    (R,) the end of the prefill, of all, and whether being moved or put aside makes them miss it."""

    first_token: Floats
    finish: Floats
    pace: Floats
    running_first_token: Floats
    running_finish: Floats
    running_misses: Bools


def within(moment: Floats, limit: Floats) -> Bools:
    """Whether moments keep limits, but for rounding."""
    return np.asarray(moment <= limit + TOLERANCE * np.maximum(1.0, np.abs(np.where(np.isfinite(limit), limit, 0.0))))


def rule_violations(
    model: BatchModel, placement: Placement, load: Loads, ends: Ends, kept: Bools, by: Ints
) -> Iterator[Violation]:
    """All violations, requests and instances in order."""
    yield from _places(model, placement)
    yield from _instances(model, placement, load)
    late = np.flatnonzero((placement.prefill >= 0) & ~kept)
    queue, running = model.queue, model.running
    yield from _over("ttft", queue.ids, late, ends.first_token, queue.prefill_by)
    yield from _over("e2e", queue.ids, late, ends.finish, queue.e2e)
    yield from _over("itl", queue.ids, late, ends.pace, queue.itl)
    prefills = np.flatnonzero(load.stays & running.is_prefill)
    yield from _over("ttft", running.ids, prefills, ends.running_first_token, running.prefill_by)
    yield from _over("e2e", running.ids, prefills, ends.running_finish, running.finish_by)
    decodes = np.flatnonzero(load.decoding & (running.sequences > 0) & ~ends.running_misses)
    yield from _over("itl", running.ids, decodes, load.pace[load.decode], running.itl)
    yield from _preemptions(model, placement, by)
    yield from _moves(model, placement)


def _over(rule: str, ids: tuple[str, ...], rows: Ints, need: Floats, have: Floats) -> Iterator[Violation]:
    for n in rows[~within(need[rows], have[rows])].tolist():
        yield Violation(rule, ids[n], float(need[n]), float(have[n]))


def _places(model: BatchModel, placement: Placement) -> Iterator[Violation]:
    """Requests that stand where they may not: closed, of another role or model."""
    instances, queue = model.instances, model.queue
    here = np.flatnonzero(placement.prefill >= 0)
    p, q = placement.prefill[here], placement.decode[here]
    kind, family = instances.kind, model.kinds.family
    decodes = queue.output[here] > 0
    fine = instances.open[p] & instances.open[q] & instances.prefills[p] & (instances.decodes[q] | ~decodes)
    fine &= model.prefill.runs[here, kind[p]] & (family[kind[p]] == family[kind[q]]) & (decodes | (p == q))
    for i in here[~fine].tolist():
        yield Violation("place", queue.ids[i], 1.0, 0.0)


def _instances(model: BatchModel, placement: Placement, load: Loads) -> Iterator[Violation]:
    instances = model.instances
    more_memory, more_sequences = _added(model, placement)
    for rule, need, have in (
        ("memory", load.memory, np.where(more_memory, instances.free_for_more, instances.free)),
        ("batch", load.sequences, np.where(more_sequences, instances.batch_for_more, instances.max_batch)),
    ):
        for j in np.flatnonzero(need > have).tolist():
            yield Violation(rule, instances.ids[j], float(need[j]), float(have[j]))
    busy = load.sequences > 0
    for j in np.flatnonzero(busy & (placement.pace < 0)).tolist():
        yield Violation("pace", instances.ids[j], 1.0, 0.0)
    for j in np.flatnonzero(busy & (placement.pace >= 0) & (load.speed < -TOLERANCE)).tolist():
        yield Violation("time", instances.ids[j], float(load.share[j]), 1.0 - float(instances.other[j]))


def _added(model: BatchModel, placement: Placement) -> tuple[Bools, Bools]:
    """(J,) where anything takes memory, and where anything decodes, that did not run there."""
    here = np.flatnonzero(placement.prefill >= 0)
    p, q = placement.prefill[here], placement.decode[here]
    moved = placement.to[placement.action == MIGRATE]
    memory, sequences = np.zeros(model.J, dtype=bool), np.zeros(model.J, dtype=bool)
    memory[p] = memory[q] = memory[moved] = True
    sequences[q[model.queue.output[here] > 0]] = sequences[moved] = True
    return memory, sequences


def _preemptions(model: BatchModel, placement: Placement, by: Ints) -> Iterator[Violation]:
    """Stages put aside that the policy protects, or for nobody."""
    running, config = model.running, model.policy.preemption_config
    often = running.preempted >= config.max_preempt_per_request
    wrong = often | (by < 0) if config.enabled else np.ones(model.R, dtype=bool)
    for r in np.flatnonzero((placement.action == PREEMPT) & wrong).tolist():
        yield Violation("preemption", running.ids[r], 1.0, 0.0)


def _moves(model: BatchModel, placement: Placement) -> Iterator[Violation]:
    """Moves of anything but a decode, to an instance that cannot take it, or without leave."""
    running, instances = model.running, model.instances
    family = model.kinds.family[instances.kind]
    for r in np.flatnonzero(placement.action == MIGRATE).tolist():
        to, at = int(placement.to[r]), int(running.instance[r])
        fine = model.policy.migration and not running.is_prefill[r] and 0 <= to != at
        if not fine or not (instances.open[to] and instances.decodes[to] and family[to] == family[at]):
            yield Violation("migration", running.ids[r], 1.0, 0.0)
