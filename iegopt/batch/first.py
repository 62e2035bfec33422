"""A first plan, quickly: what is worth most for what it takes goes where its first token comes soonest.

Level by level the requests stand in the order of utility per what they cost. Of every class of instances the one with
most time left is tried, the quickest class first, and those that hold most of the prompt before all. Requests like some
that found no place are not tried again. It takes about a tenth of a millisecond a request, where the linear programme
and what follows it take about one.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heapreplace

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.construct import order_by_density, place_as_planned, planned_turn
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import Placement
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["FirstPlan", "first_plan"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

CLASSES, HOLDERS = 3, 2
"""Classes tried for a request, and instances that hold some of its prompt."""
MISSES = 4
"""Like requests in a row that find no place before the rest of them is left."""
AT_LEAST = 0.2
"""Part of the time spent so far that a first plan may take where there is no time left."""
SIZE = 1.3
"""Ratio of the longest to the shortest prefill of like requests."""


def first_plan(scout: Scout, cost: Floats, clock: Clock, each: float) -> Placement:
    """A plan request by request: what was planned stays where it can. Where making the model has taken all the time
    already, a part of that is taken for it all the same.

    Parameters
    ----------
    cost (N,)
        What each request takes, in any unit.
    each
        Seconds that every request placed takes later, to be kept back.
    """
    board = Board(scout.model)
    first = FirstPlan(board, scout, each)
    clock = Clock(max(clock.limit, (1.0 + AT_LEAST) * clock.seconds), clock.start)
    first.keep(planned_turn(scout, scout.model.queue.planned_prefill), clock)
    first.fill(cost, clock)
    return board.plan


class FirstPlan:
    """A board that is filled: the instances of every class by the time that is left on them.

    Parameters
    ----------
    each
        Seconds that every request placed takes later, to be kept back from the clock.
    """

    def __init__(self, board: Board, scout: Scout, each: float = 0.0) -> None:
        self._each, self._placed = each, 0
        self.board, self.scout = board, scout
        self.model: BatchModel = board.model
        at = self.model.instances
        self._kind = at.kind.tolist()
        self._decodes = at.decodes.tolist()
        self._like, self._shared = _like(self.model, scout), self.model.holdings.shared
        code = np.where(at.open & at.prefills, 2 * at.kind + at.decodes, -1)
        self._prefills = {c: self._heap(np.flatnonzero(code == c)) for c in np.unique(code[code >= 0]).tolist()}
        family = self.model.kinds.family[at.kind]
        self._decoders = {
            f: self._heap(np.flatnonzero(at.open & at.decodes & (family == f))) for f in np.unique(family).tolist()
        }
        self._family = family.tolist()
        self._classes: dict[int, list[int]] = {}

    def fill(self, cost: Floats, clock: Clock) -> None:
        """Place what is not placed, as far as there is time.

        Parameters
        ----------
        cost (N,)
            What each takes, in any unit.
        """
        model, board = self.model, self.board
        waits = (board.plan.prefill < 0) & np.isfinite(cost) & ~model.alone.hopeless
        for level in np.unique(model.queue.priority).tolist():
            requests = np.flatnonzero(waits & (model.queue.priority == level))
            self._fill(order_by_density(model, requests, cost[requests]).tolist(), clock)

    def keep(self, turn: list[int], clock: Clock) -> None:
        """Place planned requests where they were, as far as there is time."""
        queue = self.model.queue
        for i in turn:
            if clock.left <= self._each * self._placed:
                return
            p, q = int(queue.planned_prefill[i]), int(queue.planned_decode[i])
            self._placed += place_as_planned(self.board, self.scout, i, p, q)

    def _fill(self, turn: list[int], clock: Clock) -> None:
        misses: dict[int, int] = {}
        for i in turn:
            like = self._like[i]
            if misses.get(like, 0) >= MISSES:
                continue
            if clock.left <= self._each * self._placed:
                return
            there = self._place(i)
            misses[like] = 0 if there else misses.get(like, 0) + 1
            self._placed += there

    def _place(self, i: int) -> bool:
        return any(self._at(i, p) for p in self._candidates(i))

    def _candidates(self, i: int) -> list[int]:
        """Instances to prefill on, those first on which it would end first."""
        work = self.scout.work[i]
        ends = []
        for c in self._runs(i):
            heap = self._prefills[c]
            left, p = heap[0]
            if -left != self._left(p):  # a decode, or a holder's prefill, has come since
                heapreplace(heap, (-self._left(p), p))
                left, p = heap[0]
            ends.append((self._end(p, float(work[c >> 1])), p))
        ends.sort()
        found = [p for _, p in ends[:CLASSES]]
        return [*(known := self._knowing(i)), *(p for p in found if p not in known)]

    def _knowing(self, i: int) -> list[int]:
        """Instances that hold most of its prompt, and the one with most time left of those that have its beginning by
        then."""
        board, at, found = self.board, self.model.instances, []
        holders, tokens, _ = self.model.holdings.of(i, self.model.plain["prompt"][i])
        if len(holders):
            found = holders[np.lexsort((holders, board.due[holders, -1], -tokens))[:HOLDERS]].tolist()
        blocks = self._shared.get(i)
        if blocks:
            left = board.gains.get(blocks[0], ())
            found += [min(left, key=lambda j: (-self._left(j), j))] if left else []
        runs = self.model.prefill.runs
        return [p for p in dict.fromkeys(found) if at.open[p] and at.prefills[p] and runs[i, self._kind[p]]]

    def _at(self, i: int, p: int) -> bool:
        """Place request ``i`` on ``p``, its decode there or where most time is left."""
        output = self.model.plain["output"][i]
        q = p if self._decodes[p] or not output else self._decoders[self._family[p]][0][1]
        return any(self.board.place(i, p, q, rung) for rung in self._rungs(i, q)) and self._moved(p, q)

    def _rungs(self, i: int, q: int) -> Iterator[int]:
        """The pace of an instance where it is fast enough, else the slowest that the request may have."""
        board, now = self.board, int(self.board.plan.pace[q])
        own = self.scout.own_rung(i)
        if np.isfinite(board.tau[q]) and board.tau[q] <= self.model.plain["itl"][i]:
            yield now
            if own < now:
                yield own
        else:
            yield own

    def _moved(self, p: int, q: int) -> bool:
        """Put instances at their new place among those of their class."""
        for heap in (self._prefills.get(2 * self._kind[p] + self._decodes[p]), self._decoders.get(self._family[q])):
            if heap and heap[0][1] in (p, q):
                j = heap[0][1]
                heapreplace(heap, (-self._left(j), j))
        return True

    def _left(self, j: int) -> float:
        """Seconds of prefill that fit in more by the last deadline."""
        return float(self.board.slack[j, -1])

    def _heap(self, js: Ints) -> list[tuple[float, int]]:
        heap = [(-self._left(j), j) for j in js.tolist()]
        heapify(heap)
        return heap

    def _end(self, p: int, work: float) -> float:
        """Seconds until the prefill would end behind all that is placed there, about."""
        return (float(self.board.due[p, -1]) + work) / max(1e-6, float(self.board.speed[p]))

    def _runs(self, i: int) -> list[int]:
        """Classes of instances that prefill the request."""
        group = self.scout.reaches.group(i)
        if group not in self._classes:
            self._classes[group] = [c for c in self._prefills if self.model.prefill.runs[i, c >> 1]]
        return self._classes[group]


def _like(model: BatchModel, scout: Scout) -> list[int]:
    """(N,) an index that requests have in common of the same tenant, models, limits and size of the prefill, about."""
    queue, best = model.queue, np.maximum(1e-9, scout.work.min(axis=1, initial=np.inf))
    by = np.maximum(1e-9, np.minimum(queue.prefill_by, queue.e2e))
    size = np.where(np.isfinite(best), np.floor(np.log(np.where(np.isfinite(best), best, 1.0)) / np.log(SIZE)), 0.0)
    due = np.floor(np.log(np.where(np.isfinite(by), by, 1.0)) / np.log(SIZE))
    pace = np.searchsorted(model.paces, queue.itl)
    rows = np.stack([np.unique(model.prefill.runs, axis=0, return_inverse=True)[1].reshape(-1), size, due, pace,
                     queue.tenant if model.tenants else np.zeros(model.N), queue.output > 0])  # fmt: skip
    found: list[int] = np.unique(rows.T.astype(np.int64), axis=0, return_inverse=True)[1].reshape(-1).tolist()
    return found
