"""Like requests of a queue as groups, so that one decision serves many: of the same priority, quota, models and limits,
and about the same prefill, reuse and deadline."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.bound_rows import Items
from iegopt.batch.model import BatchModel

__all__ = ["Groups", "slowest_rungs"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

SIZE = 1.6
"""Ratio of the longest to the shortest prefill of a group."""
REUSES = 3
"""Parts by which a prefill's reuse is told apart."""
DECODE = 0.8
"""Part of what is left until the end that a decode may take, so that its prefill has the rest."""
MOST_GROUPS = 400
"""From so many on, groups are made coarser."""


@dataclass(frozen=True, eq=False)
class Groups:
    """n groups of requests; means of their requests in arrays of (n,), by class (C, n).

    Attributes
    ----------
    of (N,)
        Group of every request, −1 of one that is not wanted, or that no class can prefill.
    count, level, weight
        Requests, priority, and utility.
    work, step (C, n)
        Seconds of a prefill, and that a decode adds to a step; ∞ where the class does not do it.
    sequences, memory
        Of a decode.
    decodes, due, top
        Whether anything is decoded, the deadline of the prefill as an index into a grid, and the slowest pace that it
        may have.
    worth (P, n)
        Part of the utility that is left at every pace, 0 where it may not have it, or a slower one is worth as much.
    tenant
        Of those with a quota; −1 for all others.
    """

    of: Ints
    count: Floats
    level: Ints
    weight: Floats
    work: Floats
    step: Floats
    sequences: Floats
    memory: Floats
    decodes: Bools
    due: Ints
    top: Ints
    worth: Floats
    tenant: Ints

    def __len__(self) -> int:
        return len(self.count)

    @classmethod
    def of_queue(cls, model: BatchModel, items: Items, grid: Floats, wanted: Bools) -> Groups:
        """The groups of the requests of a queue that are wanted (N,).

        Parameters
        ----------
        items
            The whole queue.
        grid
            Deadlines, ascending.
        """
        for coarser in range(8):
            of, first = _alike(model, items, grid, wanted, SIZE * 2.0**coarser)
            if len(first) <= MOST_GROUPS:
                break
        member, n = of >= 0, len(first)
        at, count = of[member], np.bincount(of[member], minlength=n).astype(float)

        def mean(values: npt.NDArray[np.generic]) -> Floats:
            return np.asarray(np.bincount(at, values[member], n) / count)

        def means(rows: Floats) -> Floats:
            there = np.isfinite(rows)
            found = [mean(np.where(fine, row, 0.0)) for row, fine in zip(rows, there, strict=True)]
            every = [mean(fine) == 1.0 for fine in there]
            return np.where(np.array(every), np.array(found), np.inf).reshape(len(rows), n)

        top = slowest_rungs(model)[first]
        lost = items.lost[:, first] / items.value[first]
        rungs = np.arange(len(model.paces))[:, None]
        fastest = np.minimum(top, np.searchsorted(model.paces, model.policy.reference_pace))
        may = np.isfinite(lost) & (rungs <= top) & (rungs >= fastest)
        return cls(
            of, count, items.level[first], mean(items.value), means(items.work),
            means(np.maximum(items.compute, items.read)), mean(items.sequences), mean(items.memory),
            items.decodes[first], _due(model, grid)[first], top, np.where(may, 1.0 - lost, 0.0),
            _limited(model)[first],
        )  # fmt: skip


def slowest_rungs(model: BatchModel) -> Ints:
    """(N,) the slowest pace that leaves every request its limits, as an index; at least the fastest."""
    queue = model.queue
    with np.errstate(divide="ignore"):
        rest = np.where(queue.output > 0, DECODE * queue.e2e / np.maximum(1, queue.output), np.inf)
    limit = np.minimum(queue.itl, rest)
    return np.asarray(np.maximum(0, np.searchsorted(model.paces, limit * (1.0 + 1e-9), side="right") - 1))


def _due(model: BatchModel, grid: Floats) -> Ints:
    return np.minimum(np.searchsorted(grid, np.minimum(model.queue.prefill_by, model.queue.e2e)), len(grid) - 1)


def _limited(model: BatchModel) -> Ints:
    """(N,) tenants that have a quota, −1 for the others."""
    limited = np.isfinite(np.array([model.quota_requests, model.quota_memory, model.quota_time])).any(axis=0)
    return np.where(limited[model.queue.tenant], model.queue.tenant, -1)


def _alike(model: BatchModel, items: Items, grid: Floats, wanted: Bools, size: float) -> tuple[Ints, Ints]:
    """(N,) group of every request or −1, and the first request of every group."""
    queue, best = model.queue, items.work.min(axis=0, initial=np.inf)
    there: Bools = wanted & np.isfinite(best) & ~model.alone.hopeless
    whole = model.prefill.seconds(np.arange(model.N)[:, None], np.arange(model.K)[None, :]).min(axis=1, initial=np.inf)
    least = np.where(there, np.maximum(best, 1e-9), 1.0)
    runs = np.unique(model.prefill.runs, axis=0, return_inverse=True)[1].reshape(-1)
    reuse = np.floor(REUSES * (1.0 - least / np.where(there, whole, 1.0)))
    marks = [
        queue.priority, runs, queue.throughput, queue.output > 0, slowest_rungs(model), _due(model, grid), reuse,
        np.floor(np.log(least) / np.log(size)), _limited(model),
    ]  # fmt: skip
    rows = np.stack([np.asarray(mark, dtype=np.int64) for mark in marks], axis=1)[there]
    _, first, inverse = np.unique(rows, axis=0, return_index=True, return_inverse=True)
    of = np.full(model.N, -1)
    of[there] = inverse.reshape(-1)
    return of, np.flatnonzero(there)[first]
