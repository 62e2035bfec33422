"""What a request could get at best: alone on an idle cluster, with the longest prefix that anybody holds at hand.

It is optimistic on purpose (prefill, transfer and decode each at their best place), so that no plan could ever place
what is hopeless, and no later one what is refused.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.holdings import Holdings
from iegopt.batch.model import Alone, Instances, Kinds, Queue
from iegopt.batch.prefill import PrefillCost
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.policy import KvTransferConfig

__all__ = ["best_alone"]

Floats = npt.NDArray[np.float64]


def best_alone(
    queue: Queue, holdings: Holdings, prefill: PrefillCost, instances: Instances, kinds: Kinds, policy: BatchPolicy
) -> Alone:  # fmt: skip
    """The bests of a queue on all instances that are not lost, whether or not they take something new just now."""
    N, K = len(queue.ids), len(kinds.kinds)
    every = np.arange(N)
    may_prefill = np.bincount(instances.kind, instances.prefills, K) > 0
    may_decode = np.bincount(instances.kind, instances.decodes, K) > 0
    longest = (
        np.maximum.reduceat(holdings.tokens, holdings.ptr[:-1]) if len(holdings.tokens) else np.zeros(1, dtype=int)
    )
    best_held = np.where(holdings.chain >= 0, np.minimum(longest[holdings.chain], queue.prompt - 1), 0)
    work = prefill.seconds(every[:, None], np.arange(K)[None, :], best_held[:, None])
    work = np.where(may_prefill[None, :], work, np.inf)
    step = np.maximum(kinds.base_compute + queue.step_compute, kinds.base_read + queue.step_read)
    step = np.where(may_decode[None, :], step, np.inf)
    paces = np.array(policy.paces)
    rung = np.searchsorted(paces * (1.0 + 1e-9), step)
    pace = np.append(paces, np.inf)[rung]
    tokens = queue.output[:, None]
    decode = np.where(tokens > 0, np.maximum(1, tokens) * pace, np.where(may_decode, 0.0, np.inf))
    wire = queue.wire_per_token * queue.prompt
    finish = np.full(N, np.inf)
    most = np.zeros(K)
    np.maximum.at(most, instances.kind, np.where(instances.decodes, instances.free_for_more, 0))
    for family in np.unique(kinds.family).tolist():
        member = kinds.family == family
        moved = _least_transfer(instances, kinds, family, wire, policy.kv_transfer_config)
        apart = work[:, member].min(axis=1) + moved + decode[:, member].min(axis=1)
        together = (work + decode)[:, member].min(axis=1)
        finish = np.minimum(finish, np.minimum(apart, together))
    runs = np.isfinite(step)
    room = np.where(runs, most[None, :], 0.0).max(axis=1, initial=0.0)
    first, itl = work.min(axis=1, initial=np.inf), pace.min(axis=1, initial=np.inf)
    itl = np.where(queue.output > 0, itl, 0.0)
    never = (itl > queue.itl * (1.0 + 1e-9)) | (queue.kv_full > room) | ~np.isfinite(finish)

    def late(start: float) -> npt.NDArray[np.bool_]:
        return np.asarray((first + start > queue.ttft) | (finish + start > queue.e2e))

    return Alone(first, finish, itl, room, never | late(policy.period), never | late(0.0))


def _least_transfer(
    instances: Instances, kinds: Kinds, family: int, size: Floats, config: KvTransferConfig | None
) -> Floats:
    """Seconds of the prompt's transfer at the lowest latency and the highest rate between two instances of a family."""
    here = np.flatnonzero(kinds.family[instances.kind] == family)
    if len(here) < 2:
        return np.full(len(size), np.inf)
    pairs, square = ~np.eye(len(here), dtype=bool), np.ix_(here, here)
    if config is not None and config.overlap_compute:
        size = np.minimum(config.chunk_size, size)
    return np.asarray(instances.latency[square][pairs].min() + size * instances.seconds_per_byte[square][pairs].min())
