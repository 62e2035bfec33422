"""A snapshot as arrays: what docs/replanning.md calls the model.

N queued requests, R running stages, J instances, K kinds of instances (device class, gang size, fabric, variant),
T tenants, P paces. Times are float64 seconds after the snapshot (∞: no limit), memory is int64 bytes over all devices
of an instance.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.batch.holdings import Holdings
from iegopt.batch.kinds import InstanceKind
from iegopt.batch.prefill import PrefillCost
from iegopt.batch_plans import Reason
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.snapshot import SnapshotSpec

__all__ = ["Alone", "BatchModel", "Instances", "Kinds", "Queue", "Running"]

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

    kinds: tuple[InstanceKind, ...]
    family: Ints
    base_compute: Floats
    base_read: Floats

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(kind.name for kind in self.kinds)


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
        Bytes for KV caches and decodes, those of what runs included; a chunk's working memory is taken off where it
        prefills. Never less than what runs needs.
    free_for_more, batch_for_more
        What there is in truth: all that an instance may have once anything is added to what runs there.
    other
        Share of its time that work outside the snapshot takes, weighted by the figure's age.
    max_batch
        Sequences; never fewer than run.
    level, latency, seconds_per_byte (J, J)
        Link between instances: topology level (−1 on the diagonal, where nothing moves), and its figures; shards of
        equal gangs counted.
    host_seconds_per_byte
        To its hosts' memory or back.
    price
        What a second on it costs, in seconds at the cluster's reference price.
    base_pace
        Pace at which what runs keeps its limits with nothing new placed, the slowest one; −1 where nothing decodes.
    """

    ids: tuple[str, ...]
    kind: Ints
    open: Bools
    prefills: Bools
    decodes: Bools
    free: Ints
    free_for_more: Ints
    other: Floats
    max_batch: Ints
    batch_for_more: Ints
    level: npt.NDArray[np.int8]
    latency: Floats
    seconds_per_byte: Floats
    host_seconds_per_byte: Floats
    price: Floats
    base_pace: Ints


@dataclass(frozen=True, eq=False)
class Queue:
    """Queued requests, (N,) each unless said: those of the snapshot that can be read, then running stages of lost
    instances that wait again.

    Attributes
    ----------
    weight, throughput
        w, and whether it is of the throughput class.
    prompt, output, sequences
        Tokens to prefill and to decode per sequence, sequences. ``output`` is of the present round alone.
    order
        Place among equal deadlines: by arrival.
    ttft, e2e, itl
        Seconds left for the first token and for all; seconds between tokens, at most the policy's slowest pace.
        ``e2e`` has the least time of tools and later rounds taken off.
    prefill_by
        Seconds by which the prefill ends: ``ttft`` and the policy's window (twice the fastest prefill, where that is
        longer).
    kv_prompt, kv_full
        Bytes on the prefill's instance, and on the decode's: KV cache (and the decode's working memory) at its end.
    kv_per_token, wire_per_token
        Bytes of KV cache of a token of all sequences; on a link, after compression.
    step_compute, step_read (N, K)
        a and b: seconds it adds to a decode step; ∞ where the kind does not run it.
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
    order: Ints
    ttft: Floats
    e2e: Floats
    itl: Floats
    prefill_by: Floats
    kv_prompt: Ints
    kv_full: Ints
    kv_per_token: Floats
    wire_per_token: Floats
    step_compute: Floats
    step_read: Floats
    planned_prefill: Ints
    planned_decode: Ints


@dataclass(frozen=True, eq=False)
class Running:
    """Running stages of instances that are not lost, (R,) each unless said.

    A limit that its stage misses even with nothing placed is lifted: what is lost already binds nobody.

    Attributes
    ----------
    instance, decode
        Where it runs, and where it decodes (a prefill's decode reserves its memory and share already).
    sequences, remaining
        Sequences that decode (0 where none will), and tokens that each has to come.
    prefill
        Seconds of prefill left; 0 for a decode.
    prefill_by, finish_by
        Seconds left for its prefill and for all of it.
    itl
        Slowest pace that it may have where it is kept; of a decode with a deadline, what that leaves a token.
    step_compute, step_read (R, K)
        Seconds it adds to a step of an instance of a kind; ∞ where the kind cannot take it over.
    kv_here, kv_there
        Bytes on ``instance`` while it prefills, and on ``decode`` at its end; equal instances count once (kv_there).
    kv_now, wire_now, wire_end
        Bytes that a swap carries; on a link those of a move, and those of a prefill's prompt at its end.
    recompute
        Seconds to prefill anew all it holds, where it is.
    preempted
        Times it was put aside.
    missed
        Whether a limit was lifted.
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
    wire_now: Ints
    wire_end: Ints
    recompute: Floats
    preempted: Ints
    missed: Bools


@dataclass(frozen=True, eq=False)
class Alone:
    """The best that every queued request could get alone on an idle cluster (``iegopt.batch.alone``), (N,) each.

    Attributes
    ----------
    prefill, finish
        Least seconds to the first token, and to the end of the decode.
    itl
        The fastest pace that any instance can give it.
    memory
        Most free bytes of an instance that runs it, nothing placed and nothing running.
    refused
        Whether it could not keep a limit if it started at the next replan, or fits nowhere. It may still be placed
        now: it is refused if it is not.
    hopeless
        Whether it could not even if it started now: no plan places it.
    """

    prefill: Floats
    finish: Floats
    itl: Floats
    memory: Floats
    refused: Bools
    hopeless: Bools


@dataclass(frozen=True, eq=False)
class BatchModel:
    """A snapshot under a policy.

    Attributes
    ----------
    paces (P,)
        The policy's; a slower last one where a running batch cannot keep any of them, for such batches alone.
    prefill
        P(i, k, reused): see ``PrefillCost.seconds``.
    tenants
        Names; T of them, in the order in which the snapshot names them.
    quota_requests, quota_memory, quota_time (T,)
        The most a tenant may hold; ∞ without a quota. Memory in bytes, time in seconds per second over all instances.
    requeued
        Ids of running stages whose instance is lost, and which stand in the queue.
    impossible
        Requests that no instance can ever run and that are not in the queue: id -> why.
    warnings
        One line each.
    """

    snapshot: SnapshotSpec
    policy: BatchPolicy
    paces: Floats
    kinds: Kinds
    instances: Instances
    queue: Queue
    holdings: Holdings
    running: Running
    prefill: PrefillCost
    alone: Alone
    tenants: tuple[str, ...]
    quota_requests: Floats
    quota_memory: Floats
    quota_time: Floats
    requeued: frozenset[str]
    impossible: dict[str, Reason]
    warnings: tuple[str, ...]

    @property
    def N(self) -> int:
        return len(self.queue.ids)

    @property
    def J(self) -> int:
        return len(self.instances.ids)

    @property
    def K(self) -> int:
        return len(self.kinds.kinds)

    @property
    def R(self) -> int:
        return len(self.running.ids)

    @property
    def T(self) -> int:
        return len(self.tenants)

    @cached_property
    def plain(self) -> dict[str, list[Any]]:
        """The queue's arrays as lists, which a trial of one request reads ten times as fast."""
        arrays = {name: value for name, value in vars(self.queue).items() if isinstance(value, np.ndarray)}
        return {name: value.tolist() for name, value in arrays.items()}
