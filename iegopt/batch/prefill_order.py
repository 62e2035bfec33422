"""The prefills of a plan in the order in which their instances run them: what each reuses, when it starts and ends.

Earliest deadline first on every instance, each after the one before it and after its fetch, at the speed that decode
leaves:

    end = max( end before , R ) + P(i, k, r) / (1 − φ − ρ)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.links import transfer_seconds
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import FROM_PLAN
from iegopt.batch.placement import Placement

__all__ = ["Prefills", "Reuse", "run_prefills"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Reuse:
    """(N,) tokens reused, whose they are, bytes fetched over a link, and when the prefill may start (R)."""

    tokens: Ints
    source: Ints
    fetched: Ints
    ready: Floats


@dataclass(frozen=True, eq=False)
class Prefills:
    """Times of the prefills of queued requests (N,) and running ones (R,), NaN for what does not run."""

    deadline: Floats
    reuse: Reuse
    work: Floats
    start: Floats
    end: Floats
    running_end: Floats


def run_prefills(model: BatchModel, placement: Placement, stays: Bools, speed: Floats, pace: Floats) -> Prefills:
    """Run the prefills of a placement.

    Parameters
    ----------
    stays (R,)
        Running stages that are neither preempted nor moved.
    speed, pace (J,)
        1 − φ − ρ, and seconds between tokens.
    """
    queue, running = model.queue, model.running
    placed = np.flatnonzero(placement.prefill >= 0)
    own, read = model.holdings.held(placed, placement.prefill[placed], queue.prompt[placed])
    deadline = np.full(model.N, np.nan)
    deadline[placed] = _deadlines(model, placement, placed, own, pace)
    run = np.flatnonzero(running.is_prefill & stays)
    by = _running_deadlines(model, run, pace)
    # One row each: running prefills before queued ones where deadlines are equal.
    instance = np.concatenate([running.instance[run], placement.prefill[placed]])
    key = np.concatenate([by, deadline[placed]])
    tie = np.concatenate([run - model.R, queue.order[placed]])
    turn = np.lexsort((tie, key, instance))
    reuse = _reuse(model, placement, placed, own, read, turn[turn >= len(run)] - len(run))
    work = np.full(model.N, np.nan)
    kind = model.instances.kind[placement.prefill[placed]]
    work[placed] = model.prefill.seconds(placed, kind, reuse.tokens[placed])
    start, end = _times(
        instance[turn],
        np.concatenate([running.prefill[run], work[placed]])[turn],
        np.concatenate([np.zeros(len(run)), reuse.ready[placed]])[turn],
        speed,
    )
    starts, ends = np.empty(len(turn)), np.empty(len(turn))
    starts[turn], ends[turn] = start, end
    began, ended, running_end = np.full(model.N, np.nan), np.full(model.N, np.nan), np.full(model.R, np.nan)
    began[placed], ended[placed], running_end[run] = starts[len(run) :], ends[len(run) :], ends[: len(run)]
    return Prefills(deadline, reuse, work, began, ended, running_end)


def _deadlines(model: BatchModel, placement: Placement, placed: Ints, own: Ints, pace: Floats) -> Floats:
    """D of placed requests: prefill_by, and what transfer and decode leave of e2e."""
    queue, p, q = model.queue, placement.prefill[placed], placement.decode[placed]
    work = model.prefill.seconds(placed, model.instances.kind[p], own)
    size = np.ceil(queue.wire_per_token[placed] * queue.prompt[placed])
    moved = transfer_seconds(model.instances, model.policy.kv_transfer_config, p, q, size, work)
    return np.minimum(queue.prefill_by[placed], queue.e2e[placed] - moved - queue.output[placed] * pace[q])


def _running_deadlines(model: BatchModel, run: Ints, pace: Floats) -> Floats:
    running = model.running
    p, q = running.instance[run], running.decode[run]
    config = model.policy.kv_transfer_config
    moved = transfer_seconds(model.instances, config, p, q, running.wire_end[run], running.prefill[run])
    after = np.where(running.sequences[run] > 0, moved + running.remaining[run] * pace[q], 0.0)
    return np.minimum(running.prefill_by[run], running.finish_by[run] - after)


def _reuse(model: BatchModel, placement: Placement, placed: Ints, own: Ints, read: Floats, turn: Ints) -> Reuse:
    """What every placed prefill reuses: its instance's own blocks, an earlier prefill's, or those fetched."""
    queue, N = model.queue, model.N
    p, h = placement.prefill[placed], placement.fetch[placed]
    shared = _shared(model, placed, p, turn)
    there, h_read = model.holdings.held(placed, np.maximum(h, 0), queue.prompt[placed])
    family = model.kinds.family[model.instances.kind]
    there = np.where((h >= 0) & (h != p) & (family[h] == family[p]), there, 0)
    most = np.maximum(own, shared)
    fetches = there > most
    tokens = np.where(fetches, there, most)
    from_own = np.where(shared >= own, 0, own)
    kv, wire = queue.kv_per_token[placed], queue.wire_per_token[placed]
    rate, latency = model.instances.seconds_per_byte[h, p], model.instances.latency[h, p]
    missing = np.where(fetches, there - own, 0)
    ready = np.where(fetches, latency + missing * (wire * rate + kv * h_read), 0.0)
    ready = np.maximum(ready, read * kv * np.where(fetches, own, from_own))
    source = np.where(fetches, h, np.where(tokens == 0, -1, np.where(shared >= own, FROM_PLAN, p)))
    found = Reuse(np.zeros(N, dtype=np.int64), np.full(N, -1), np.zeros(N, dtype=np.int64), np.zeros(N))
    found.tokens[placed], found.source[placed], found.ready[placed] = tokens, source, ready
    found.fetched[placed] = np.ceil(missing * wire).astype(np.int64)
    return found


def _shared(model: BatchModel, placed: Ints, p: Ints, turn: Ints) -> Ints:
    """Tokens of each prompt that earlier prefills of the plan have left on its instance."""
    found = np.zeros(len(placed), dtype=np.int64)
    blocks, size = model.holdings.blocks, model.holdings.block_tokens
    left: dict[int, set[int]] = {}
    for n in turn.tolist():
        own = blocks[placed[n]]
        if not own:
            continue
        seen = left.setdefault(int(p[n]), set())
        run = next((depth for depth, block in enumerate(own) if block not in seen), len(own))
        found[n] = min(run * size, int(model.queue.prompt[placed[n]]) - 1)
        seen.update(own)
    return found


def _times(instance: Ints, work: Floats, ready: Floats, speed: Floats) -> tuple[Floats, Floats]:
    """Start and end of rows that are sorted by instance and turn."""
    start, end = np.empty(len(work)), np.empty(len(work))
    rate = np.maximum(speed, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        took = np.where(rate[instance] > 0, work / rate[instance], np.inf)
    before, at = 0.0, -1
    for n, (j, seconds, earliest) in enumerate(zip(instance.tolist(), took.tolist(), ready.tolist(), strict=True)):
        if j != at:
            before, at = 0.0, j
        start[n] = max(before, earliest)
        end[n] = before = float(start[n]) + seconds
    return start, end
