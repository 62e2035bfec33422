"""The relaxation that bounds a level: instances of one class summed up, items that each take at most one option.

A class is a kind of instances of one role. Items are queued requests and running stages; an option is where an item
prefills and decodes and at what pace. With D the loosest deadline that the option leaves, for every class c and
deadline g of a grid, once with a and A₀, once with b and B₀,

    Σ_{D_i ≤ g} P_i  +  g·Σ_decoding b_i/τ  +  g·Σ_τ (B₀/τ)·y_{c,τ}   ≤   g·Σ_j (1 − ρ_j)

    Σ_{decoding at (c, τ)} b_i  ≤  ((1 − min ρ)·τ − B₀)·y_{c,τ}         likewise a, and sequences, memory
    Σ_τ y_{c,τ}  ≤  n_c               Σ KV caches  ≤  Σ_j free_j

y_{c,τ} counts the instances that decode at pace τ. P takes the most reuse that any instance could give.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.losses import preemption_costs
from iegopt.batch.model import BatchModel

__all__ = ["Classes", "Items", "classes_of", "least_work", "queued_items", "running_items"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

ROUNDING = 1e-8
"""Relative: what the rules' tolerances let a plan take beyond its capacity, and more."""


@dataclass(frozen=True, eq=False)
class Classes:
    """Classes of open instances, (C,) each unless said.

    Attributes
    ----------
    of (J,)
        Class of every instance, −1 where it is closed.
    kind, family, prefills, decodes
        Of every class.
    count
        n: instances that decode.
    share, memory
        Σ(1 − ρ), and Σ free in bytes.
    most_share, most_memory, most_batch
        Of the instance that has most.
    latency, rate (C, C)
        Least seconds, and seconds per byte, between instances of two classes; ∞ without two.
    """

    of: Ints
    kind: Ints
    family: Ints
    prefills: Bools
    decodes: Bools
    count: Floats
    share: Floats
    memory: Floats
    most_share: Floats
    most_memory: Floats
    most_batch: Floats
    latency: Floats
    rate: Floats

    @property
    def size(self) -> int:
        return len(self.kind)


@dataclass(frozen=True, eq=False)
class Items:
    """Items, M of them; arrays by class are (C, M), by pace (P, M), ∞ where an option does not exist.

    Attributes
    ----------
    level, value
        Priority, and utility where it is placed; of a running stage what is lost by putting it aside, ∞ where that may
        not be.
    running
        Whether it runs: then what it has is kept, not gained.
    work (C, M)
        P.
    together, apart (P, M)
        Deadline of the prefill where the decode has a pace, in the same place or another.
    compute, read (C, M), sequences, memory, moved_memory (M,)
        a, b, sequences, bytes at the decode, and at the prefill where that is elsewhere.
    lost (P, M), away (C, M)
        Utility lost by a pace, and by decoding on a class (what moving a running stage costs).
    decodes (M,)
    """

    level: Ints
    value: Floats
    running: Bools
    work: Floats
    together: Floats
    apart: Floats
    compute: Floats
    read: Floats
    sequences: Floats
    memory: Floats
    moved_memory: Floats
    lost: Floats
    away: Floats
    decodes: Bools
    tenant: Ints

    def __len__(self) -> int:
        return len(self.level)

    def take(self, rows: Ints) -> Items:
        """Some of them."""
        return Items(**{name: getattr(self, name)[..., rows] for name in self.__dataclass_fields__})

    @staticmethod
    def joined(parts: list[Items]) -> Items:
        return Items(
            **{
                name: np.concatenate([getattr(part, name) for part in parts], axis=-1)
                for name in Items.__dataclass_fields__
            }
        )


def classes_of(model: BatchModel) -> Classes:
    """Classes of a model's instances."""
    at = model.instances
    code = at.kind * 4 + at.prefills * 2 + at.decodes
    code = np.where(at.open, code, -1)
    codes = np.unique(code[code >= 0])
    of = np.where(code >= 0, np.searchsorted(codes, np.maximum(code, 0)), -1)
    C = len(codes)
    inside = of >= 0
    share, memory, count = np.zeros(C), np.zeros(C), np.zeros(C)
    most_share, most_memory, most_batch = np.zeros(C), np.zeros(C), np.zeros(C)
    busy = np.bincount(model.running.decode, model.running.sequences > 0, model.J) > 0
    left = np.maximum(0.0, 1.0 - at.other)
    np.add.at(share, of[inside], left[inside])
    np.add.at(memory, of[inside], at.free[inside].astype(float))
    np.add.at(count, of[inside], (at.decodes | busy)[inside].astype(float))
    np.maximum.at(most_share, of[inside], left[inside])
    np.maximum.at(most_memory, of[inside], at.free[inside].astype(float))
    np.maximum.at(most_batch, of[inside], at.max_batch[inside].astype(float))
    latency, rate = np.full((C, C), np.inf), np.full((C, C), np.inf)
    members = [np.flatnonzero(of == c) for c in range(C)]
    for c in range(C):
        for d in range(C):
            square = np.ix_(members[c], members[d])
            pairs = members[c][:, None] != members[d][None, :]
            latency[c, d] = at.latency[square].min(initial=np.inf, where=pairs)
            rate[c, d] = at.seconds_per_byte[square].min(initial=np.inf, where=pairs)
    kind = codes // 4
    return Classes(
        of, kind, model.kinds.family[kind], (codes & 2) > 0, (codes & 1) > 0, count, share, memory, most_share,
        most_memory, most_batch, latency, rate,
    )  # fmt: skip


def queued_items(model: BatchModel, classes: Classes) -> Items:
    """The queue's requests."""
    queue, kind, N = model.queue, classes.kind, model.N
    work = least_work(model, kind)
    runs = model.prefill.runs[:, kind].T
    decodes = queue.output > 0
    may_decode = runs & (classes.decodes[:, None] | ~decodes[None, :])
    may_decode &= queue.kv_full[None, :] <= classes.most_memory[:, None]
    paces = model.paces
    tail = queue.output[None, :] * paces[:, None]
    slow = decodes[None, :] & (paces[:, None] > queue.itl[None, :] * (1.0 + ROUNDING) + ROUNDING)
    with np.errstate(invalid="ignore"):
        apart = np.minimum(queue.prefill_by, queue.e2e - tail - _least_transfer(model, classes))
    utility = np.where(
        queue.throughput[None, :] & decodes[None, :], np.minimum(1.0, model.policy.reference_pace / paces)[:, None], 1.0
    )  # fmt: skip
    return Items(
        level=queue.priority,
        value=queue.weight,
        running=np.zeros(N, dtype=bool),
        work=np.where(runs & classes.prefills[:, None], work, np.inf),
        together=np.minimum(queue.prefill_by, queue.e2e - np.where(decodes, tail, 0.0)) * (1.0 + ROUNDING) + ROUNDING,
        apart=np.where(decodes[None, :], apart * (1.0 + ROUNDING) + ROUNDING, -np.inf),
        compute=np.where(may_decode, queue.step_compute[:, kind].T, np.inf),
        read=np.where(may_decode, queue.step_read[:, kind].T, np.inf),
        sequences=np.where(decodes, queue.sequences, 0).astype(float),
        memory=queue.kv_full.astype(float),
        moved_memory=queue.kv_prompt.astype(float),
        lost=np.where(slow, np.inf, queue.weight * (1.0 - utility)),
        away=np.zeros((classes.size, N)),
        decodes=decodes,
        tenant=queue.tenant,
    )


def running_items(model: BatchModel, classes: Classes, head: int) -> Items:
    """What runs: its decode on open instances, and as an item of its own its prefill there.

    Parameters
    ----------
    head
        The highest priority of which anything is placed, in whose favour what runs may be put aside.
    """
    running, kind = model.running, classes.kind
    config, policy = model.policy.preemption_config, model.policy
    loss = preemption_costs(model).loss
    may = config.enabled & (running.preempted < config.max_preempt_per_request)
    may &= running.priority - config.min_priority_gap >= head
    value = np.where(may, loss, np.inf)
    decode, prefill = classes.of[running.decode], classes.of[running.instance]
    r = np.flatnonzero((decode >= 0) & (running.sequences > 0))
    own, paces = decode[r], model.paces
    here = np.arange(classes.size)[:, None] == own[None, :]
    moves = policy.migration & ~running.is_prefill[r] & classes.decodes[:, None]
    moves &= classes.family[:, None] == classes.family[own][None, :]
    reach = np.isfinite(classes.latency[own].T)
    way = np.where(reach, classes.latency[own].T, 0.0)
    way += running.wire_now[r][None, :] * np.where(reach, classes.rate[own].T, 0.0)
    away = np.where(here, 0.0, np.where(moves & reach, running.weight[r] * policy.second_value * way, np.inf))
    slow = paces[:, None] > running.itl[r][None, :] * (1.0 + ROUNDING) + ROUNDING
    late = np.where(
        policy.migration & ~running.is_prefill[r] & np.isfinite(running.finish_by[r]), running.weight[r], np.inf
    )
    C, P = classes.size, len(paces)
    decodes = Items(
        level=running.priority[r],
        value=value[r],
        running=np.ones(len(r), dtype=bool),
        work=np.zeros((C, len(r))),
        together=np.full((P, len(r)), np.inf),
        apart=np.full((P, len(r)), -np.inf),
        compute=running.step_compute[r][:, kind].T,
        read=running.step_read[r][:, kind].T,
        sequences=running.sequences[r].astype(float),
        memory=running.kv_there[r].astype(float),
        moved_memory=np.zeros(len(r)),
        lost=np.where(slow, late[None, :], 0.0),
        away=away,
        decodes=np.ones(len(r), dtype=bool),
        tenant=running.tenant[r],
    )
    s = np.flatnonzero(running.is_prefill & (prefill >= 0))
    at = np.arange(C)[:, None] == prefill[s][None, :]
    apart = running.instance[s] != running.decode[s]
    rest = np.where(running.sequences[s] > 0, running.remaining[s] * paces[0], 0.0)
    by = np.minimum(running.prefill_by[s], running.finish_by[s] - rest) * (1.0 + ROUNDING) + ROUNDING
    # A stage whose decode is an item of its own loses its value there alone.
    whole = ~(np.isin(s, r))
    prefills = Items(
        level=running.priority[s],
        value=np.where(whole, value[s], np.where(np.isfinite(value[s]), 0.0, np.inf)),
        running=np.ones(len(s), dtype=bool),
        work=np.where(at, running.prefill[s], np.inf),
        together=np.repeat(by[None, :], P, axis=0),
        apart=np.full((P, len(s)), -np.inf),
        compute=np.where(at, 0.0, np.inf),
        read=np.where(at, 0.0, np.inf),
        sequences=np.zeros(len(s)),
        memory=np.where(whole | apart, np.where(apart, running.kv_here[s], running.kv_there[s]), 0).astype(float),
        moved_memory=np.zeros(len(s)),
        lost=np.zeros((P, len(s))),
        away=np.where(at, 0.0, np.inf),
        decodes=np.zeros(len(s), dtype=bool),
        tenant=running.tenant[s],
    )
    return Items.joined([decodes, prefills])


def least_work(model: BatchModel, kinds: Ints) -> Floats:
    """(kinds, N) seconds on each with the most reuse that any instance or another request of the queue could give."""
    every, kind = np.arange(model.N)[None, :], kinds[:, None]
    most = np.zeros(model.N, dtype=np.int64)
    holdings = model.holdings
    if len(holdings.tokens):
        longest = np.maximum.reduceat(holdings.tokens, holdings.ptr[:-1])
        most = np.where(holdings.chain >= 0, longest[holdings.chain], 0)
    for i, blocks in model.holdings.shared.items():
        most[i] = max(int(most[i]), len(blocks) * holdings.block_tokens)
    most = np.minimum(most, model.queue.prompt - 1)
    whole = model.prefill.seconds(every, kind)
    return np.minimum(whole, model.prefill.seconds(every, kind, most[None, :]))


def _least_transfer(model: BatchModel, classes: Classes) -> Floats:
    """(N,) least seconds between two instances of a family that runs the request."""
    config = model.policy.kv_transfer_config
    size = model.queue.wire_per_token * model.queue.prompt
    if config is not None and config.overlap_compute:
        size = np.minimum(config.chunk_size, size)
    found = np.full(model.N, np.inf)
    for family in np.unique(classes.family).tolist():
        member = classes.family == family
        square = np.ix_(member, member)
        latency, rate = classes.latency[square].min(), classes.rate[square].min()
        runs = model.prefill.runs[:, classes.kind[member]].any(axis=1)
        if np.isfinite(latency):
            found = np.where(runs, np.minimum(found, latency + size * rate), found)
    return found
