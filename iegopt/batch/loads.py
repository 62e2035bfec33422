"""What a placement puts on every instance: the step of its batch, the shares of its time, memory, sequences."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.model import BatchModel
from iegopt.batch.placement import KEEP, MIGRATE, PREEMPT, Placement

__all__ = ["Loads", "loads"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Loads:
    """Loads of a placement.

    Attributes
    ----------
    pace, step, share, speed (J,)
        τ, seconds of a step, φ = step/τ, and 1 − φ − ρ; τ is 0 where nothing decodes, ∞ where none is chosen.
    memory, sequences (J,)
        Bytes, and sequences that decode.
    decode, stays, decoding (R,)
        Where running stages decode, whether they stay as they are, whether they are not put aside.
    """

    pace: Floats
    step: Floats
    share: Floats
    speed: Floats
    memory: Ints
    sequences: Ints
    decode: Ints
    stays: Bools
    decoding: Bools


def loads(model: BatchModel, placement: Placement) -> Loads:
    """Step, share, memory and sequences of every instance."""
    queue, running, J = model.queue, model.running, model.J
    kind = model.instances.kind
    stays = placement.action == KEEP
    decode = np.where(placement.action == MIGRATE, placement.to, running.decode)
    decoding = placement.action != PREEMPT
    r = np.flatnonzero(decoding)
    here = np.flatnonzero(placement.prefill >= 0)
    p, q = placement.prefill[here], placement.decode[here]
    at = np.concatenate([decode[r], q])
    compute = np.concatenate([running.step_compute[r, kind[decode[r]]], queue.step_compute[here, kind[q]]])
    read = np.concatenate([running.step_read[r, kind[decode[r]]], queue.step_read[here, kind[q]]])
    count = np.concatenate([running.sequences[r], np.where(queue.output[here] > 0, queue.sequences[here], 0)])
    sequences = _sums(at, count, J)
    busy = sequences > 0
    step = np.maximum(
        model.kinds.base_compute[kind] + np.bincount(at, compute, J),
        model.kinds.base_read[kind] + np.bincount(at, read, J),
    )
    step = np.where(busy, step, 0.0)
    chosen = np.where(placement.pace >= 0, model.paces[placement.pace], np.inf)
    share = np.where(busy, step / chosen, 0.0)
    s = np.flatnonzero(stays & (running.instance != running.decode))
    apart = here[p != q]
    memory = _sums(at, np.concatenate([running.kv_there[r], queue.kv_full[here]]), J)
    memory += _sums(running.instance[s], running.kv_here[s], J)
    memory += _sums(placement.prefill[apart], queue.kv_prompt[apart], J)
    pace = np.where(busy, chosen, 0.0)
    speed = 1.0 - share - model.instances.other
    return Loads(pace, step, share, speed, memory, sequences, decode, stays, decoding)


def _sums(at: Ints, amount: Ints, J: int) -> Ints:
    """Exact sums per instance: floats would round beyond 2^53 bytes."""
    found = np.zeros(J, dtype=np.int64)
    np.add.at(found, at, amount)
    return found
