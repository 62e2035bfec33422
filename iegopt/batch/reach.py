"""Which instances run a request, and of many the few that are worth a closer look."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.bound_rows import least_work
from iegopt.batch.model import BatchModel

__all__ = ["Prices", "Reach", "Reaches", "least"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

WINDOW = 32
"""Instances looked at for a prefill, and for a decode, where there are more."""


@dataclass(frozen=True, eq=False)
class Prices:
    """What resources are worth in utility.

    Attributes
    ----------
    work (J, G + 1)
        A second of prefill that is due by each of the board's deadlines; 0 after the last.
    share, memory (J,)
        All of an instance's time, and a byte.
    batch (J, P)
        A second of a step at each pace.
    wish (J,)
        Pace of an instance where nothing decodes yet, −1 without one.
    delay
        A second of weighted delay.
    """

    work: Floats
    share: Floats
    memory: Floats
    batch: Floats
    wish: Ints
    delay: float


@dataclass(frozen=True, eq=False)
class Reach:
    """Instances that run a request, their kinds, and whether each prefills and decodes."""

    instance: Ints
    kind: Ints
    prefills: Bools
    decodes: Bools
    family: Ints

    def of(self, rows: Ints) -> Reach:
        return Reach(
            self.instance[rows], self.kind[rows], self.prefills[rows], self.decodes[rows], self.family[rows]
        )  # fmt: skip


class Reaches:
    """The reach of every request of a model.

    Attributes
    ----------
    least (N, K)
        Seconds of its prefill on each kind with the most reuse that there could be.
    """

    def __init__(self, model: BatchModel) -> None:
        self.model = model
        rows, group = np.unique(model.prefill.runs, axis=0, return_inverse=True)
        self._group = group.reshape(-1).tolist()
        self._reaches = [self._reach(row) for row in rows]
        self.least = least_work(model, np.arange(model.K)).T
        self._paces = model.paces.tolist()
        self._step = np.maximum(model.queue.step_compute, model.queue.step_read)

    def _reach(self, row: Bools) -> Reach:
        at = self.model.instances
        j = np.flatnonzero(at.open & row[at.kind] & (at.prefills | at.decodes))
        return Reach(j, at.kind[j], at.prefills[j], at.decodes[j], self.model.kinds.family[at.kind[j]])

    def group(self, i: int) -> int:
        """What requests have in common that the same instances run."""
        return self._group[i]

    def every(self, i: int) -> Reach:
        """All instances that run request ``i``."""
        return self._reaches[self._group[i]]

    def near(self, board: Board, i: int, prices: Prices) -> Reach:
        """Instances that may have time for the prefill, the cheapest of them, and the cheapest for the decode; none
        where no instance has time."""
        reach, queue = self.every(i), self.model.plain
        j = reach.instance
        if not len(j):
            return reach
        at = min(bisect_left(board.deadlines, queue["prefill_by"][i]), len(board.deadlines) - 1)
        work = self.least[i][reach.kind]
        fits = reach.prefills & (work <= board.slack[j, at])
        if not fits.any():
            return reach.of(np.zeros(0, dtype=np.int64))
        if len(j) <= 2 * WINDOW:
            return reach
        cost = prices.work[j, at] * work + prices.delay * (board.due[j, at] + work)
        rows = least(np.where(fits, cost, np.inf), WINDOW)
        if queue["output"][i]:
            rows = sorted({*rows, *self._decodes(board, i, reach, prices)})
        return reach.of(np.array(rows))

    def _decodes(self, board: Board, i: int, reach: Reach, prices: Prices) -> list[int]:
        """Rows of the instances where one more decode costs least, roughly."""
        queue, j, at = self.model.plain, reach.instance, self.model.instances
        memory, left, tau = board.memory[j], board.sequences[j], board.tau[j]
        fits = reach.decodes & (queue["kv_full"][i] <= memory) & (queue["sequences"][i] <= left)
        idle = np.isinf(tau)
        slow = ~idle & (tau > queue["itl"][i])
        pace = np.where(idle | slow, min(queue["itl"][i], self._paces[-1]), tau)
        extra = np.where(idle & (prices.wish[j] < 0), board.read[j], 0.0) + np.where(slow, board.read[j], 0.0)
        full = 2.0 - memory / np.maximum(at.free[j], 1) - left / np.maximum(at.max_batch[j], 1)
        cost = prices.share[j] * ((self._step[i][reach.kind] + extra) / pace + full) + prices.delay * (full + pace)
        return least(np.where(fits, cost, np.inf), WINDOW)


def least(score: Floats, most: int) -> list[int]:
    """The rows of the least finite scores, ascending; ties by row."""
    if len(score) > 4 * most:
        near = np.flatnonzero(score <= np.partition(score, most - 1)[most - 1])
    else:
        near = np.arange(len(score))
    near = near[np.isfinite(score[near])]
    rows: list[int] = near[np.argsort(score[near], kind="stable")][:most].tolist()
    return rows
