"""A snapshot as arrays: what docs/replanning.md calls the model.

N queued requests, R running stages, J instances, K kinds of instances (device model, gang size and fabric, variant),
T tenants. Times are float64 seconds after the snapshot (∞: no limit), memory is int64 bytes over all devices of an instance.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.prefill import PrefillCost
from iegopt.spec.batch_policy import BatchPolicy

__all__ = ["BatchModel", "Holdings", "Instances", "Kinds", "Queue", "Running"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Kinds:
    """Kinds of instances, (K,) each.

    Attributes
    ----------
    family
        Model and precision as an index: KV caches travel within a family.
    base_compute, base_read
        A₀ and B₀: seconds of a decode step whatever the batch.
    """

    names: tuple[str, ...]
    family: Ints
    base_compute: Floats
    base_read: Floats


@dataclass(frozen=True, eq=False)
class Instances:
    """Instances, (J,) each; those that are lost are not among them.

    Attributes
    ----------
    kind
        Index into ``Kinds``.
    open
        Whether it takes anything new.
    prefills, decodes
        Whether its role allows it.
    free
        Bytes without the KV cache of what runs.
    other
        Share of its time that work outside the snapshot takes, weighted by the figure's age.
    max_batch
        Sequences.
    level (J, J), latency (J, J), seconds_per_byte (J, J)
        Link between instances: topology level (−1 on the diagonal, where nothing moves), and its figures; shards of
        equal gangs counted.
    host_seconds_per_byte
        To the host's memory and back, over the device's IO.
    """

    ids: tuple[str, ...]
    kind: Ints
    open: Bools
    prefills: Bools
    decodes: Bools
    free: Ints
    other: Floats
    max_batch: Ints
    level: npt.NDArray[np.int8]
    latency: Floats
    seconds_per_byte: Floats
    host_seconds_per_byte: Floats


@dataclass(frozen=True, eq=False)
class Queue:
    """Queued requests, (N,) each unless said.

    Attributes
    ----------
    weight, throughput
        w, and whether it is of the throughput class.
    output, sequences
        Tokens to decode per sequence, sequences.
    ttft, e2e, itl
        Seconds left for the first token and for all; seconds between tokens. ``e2e`` has the least time of tools and later rounds
        taken off.
    kv_prompt, kv_full, activations
        Bytes: KV cache after the prefill and at the end of the decode; working memory of the larger stage.
    step_compute, step_read (N, K)
        a and b: seconds it adds to a decode step; ∞ where the kind cannot run it.
    planned_prefill, planned_decode
        Instances of an earlier plan, −1 without.
    """

    ids: tuple[str, ...]
    tenant: Ints
    priority: Ints
    weight: Floats
    throughput: Bools
    prompt: Ints
    output: Ints
    sequences: Ints
    ttft: Floats
    e2e: Floats
    itl: Floats
    kv_prompt: Ints
    kv_full: Ints
    activations: Ints
    step_compute: Floats
    step_read: Floats
    planned_prefill: Ints
    planned_decode: Ints


@dataclass(frozen=True, eq=False)
class Holdings:
    """Prefixes that instances hold, as triples (request, instance, tokens), sorted by request, then instance.

    ``tokens`` is the longest run of leading blocks held, less than the prompt (its last token is always computed);
    ``fetch_seconds_per_byte`` is 0 for blocks on the device, else what reading them from host or disk takes.
    ``blocks`` per request its block ids, for sharing within the plan.
    """

    request: Ints
    instance: Ints
    tokens: Ints
    fetch_seconds_per_byte: Floats
    blocks: tuple[tuple[int, ...], ...]
    block_tokens: int


@dataclass(frozen=True, eq=False)
class Running:
    """Running stages, (R,) each.

    Attributes
    ----------
    instance, decode
        Where it runs, and where it decodes (a prefill's decode reserves its memory and share already).
    prefill
        Seconds of prefill left; 0 for a decode.
    prefill_by, finish_by
        Seconds left for its prefill and for all of it.
    itl
        Pace that it must keep.
    step_compute, step_read
        Seconds it adds to a step of its ``decode`` instance.
    kv_here, kv_there
        Bytes on ``instance`` while it prefills, and at the end of the decode on ``decode``; equal instances count once (kv_there).
    remaining
        Tokens to decode per sequence.
    kv_now
        Bytes that a move or a swap carries.
    recompute
        Seconds to prefill anew all it holds.
    preempted
        Times it was put aside.
    """

    ids: tuple[str, ...]
    tenant: Ints
    priority: Ints
    weight: Floats
    throughput: Bools
    instance: Ints
    decode: Ints
    is_prefill: Bools
    sequences: Ints
    remaining: Ints
    prefill: Floats
    prefill_by: Floats
    finish_by: Floats
    itl: Floats
    step_compute: Floats
    step_read: Floats
    kv_here: Ints
    kv_there: Ints
    kv_now: Ints
    recompute: Floats
    preempted: Ints


@dataclass(frozen=True, eq=False)
class BatchModel:
    """A snapshot under a policy.

    Attributes
    ----------
    prefill
        P(i, k, reused): see ``PrefillCost.seconds``.
    quota_requests, quota_memory, quota_time (T,)
        The most a tenant may hold; ∞ without a quota. Memory in bytes, time in seconds per second over all instances.
    dropped
        Ids of running stages whose instance is lost, and queued requests that could not be read into the model: id -> reason.
    """

    policy: BatchPolicy
    kinds: Kinds
    instances: Instances
    queue: Queue
    holdings: Holdings
    running: Running
    prefill: PrefillCost
    tenants: tuple[str, ...]
    quota_requests: Floats
    quota_memory: Floats
    quota_time: Floats
    impossible: dict[str, str]
    dropped: dict[str, str]

    @property
    def N(self) -> int:
        return len(self.queue.ids)

    @property
    def J(self) -> int:
        return len(self.instances.ids)

    @property
    def K(self) -> int:
        return len(self.kinds.names)

    @property
    def R(self) -> int:
        return len(self.running.ids)
