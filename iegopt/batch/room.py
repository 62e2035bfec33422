"""Room for a request: what runs or is placed on an instance gives way to it, moves elsewhere where that is enough, and
is put back where it still fits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.construct import insert
from iegopt.batch.model import BatchModel
from iegopt.batch.moving import Moving
from iegopt.batch.outcome import worth_more
from iegopt.batch.pinned import free_beside
from iegopt.batch.placement import KEEP, PREEMPT
from iegopt.batch.reach import Prices
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["Room"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PLACES = 4
"""Instances tried for a request."""
LEAVE = 4
"""The most requests that give way to one."""
CROWD, CLEARINGS = 32, 80
"""The most that leaves a whole instance, and how often one is cleared in a round."""
CALM = 8
"""The most where an earlier plan placed requests, which then stay or move together."""
CHAIN = 1
"""How many more are cleared one after the other for those who left the first."""
EPSILON = 1e-9


class Room:
    """A board on which room is made."""

    def __init__(self, board: Board, scout: Scout, prices: Prices, clock: Clock) -> None:
        self.board, self.scout, self.prices, self.clock = board, scout, prices, clock
        self.model: BatchModel = board.model
        self.moving, self._clearings = Moving(self.model), CLEARINGS
        planned = (self.model.queue.planned_prefill >= 0).any()
        self._crowd, self._chain = (CALM, 0) if planned else (CROWD, CHAIN)
        self._left: dict[int, Floats] = {}

    def make(self, i: int) -> bool:
        """Place request ``i`` where what gives way costs less than it brings."""
        for j in self._instances(i):
            for leave in (self._running, self._queued):
                if self.clock.left <= 0.0:
                    return False
                self.board.begin()
                before = self.board.worth.copy()
                if leave(i, j) and worth_more(self.board.worth, before):
                    self.board.commit()
                    return True
                self.board.rollback()
        return self._alone(i, ())

    def make_on(self, i: int, j: int) -> bool:
        """Place request ``i`` on ``j``, from which all that runs goes that may; whatever that costs."""
        for spread in (False, True):
            self.board.begin()
            self.moving.cleared(self.board, j, int(self.model.queue.priority[i]), spread=spread)
            if self._fits(i, j, apart=True) or self._aside(i, j):
                self.board.commit()
                return True
            self.board.rollback()
        return False

    def _alone(self, i: int, before: tuple[int, ...]) -> bool:
        """Clear an instance for request ``i``, but those that were cleared ``before`` it."""
        places = [j for j in self._quickest(i) if j not in before]
        # What moves crowds together first, so that the others stay whole; where that comes to nothing, it spreads.
        ways = (False,) if before or not self.model.policy.migration else (False, True)
        turn = [(j, spread) for spread in ways for j in places]
        return any(
            self._clearings > 0 and self.clock.left > 0.0 and self._cleared(i, j, before, spread) for j, spread in turn
        )

    def _cleared(self, i: int, j: int, before: tuple[int, ...], spread: bool) -> bool:
        """What is placed on ``j``, and what runs there and may move, goes; the request takes the best place there is
        then, and who went goes where else there is room, the highest priority and the longest prefill first."""
        board, plan, queue = self.board, self.board.plan, self.model.queue
        gone = np.flatnonzero((plan.prefill == j) | (plan.decode == j))
        touched = {j, *plan.prefill[gone].tolist(), *plan.decode[gone].tolist()}
        aside = any(plan.action[r] == PREEMPT for at in touched for r in self.moving.there.get(at, ()))
        if len(gone) > self._crowd or aside:  # who was put aside is so in favour of somebody who might leave
            return False
        self._clearings -= 1
        board.begin()
        worth = board.worth.copy()
        sources = np.unique(plan.prefill[gone]).tolist()
        for k in gone.tolist():
            board.remove(k)
        self.moving.cleared(board, j, int(queue.priority[i]), spread=spread)
        fits = all(board.loads[p].fits() for p in sources)
        if fits and (insert(board, self.scout, i, self.prices, self.clock) or self._aside(i, j)):
            work = self.scout.work[gone, self.model.instances.kind[j]]
            for k in gone[np.lexsort((gone, -work, queue.priority[gone]))].tolist():
                if not insert(board, self.scout, k, self.prices, self.clock) and len(before) < self._chain:
                    self._alone(k, (*before, j))
            if worth_more(board.worth, worth):
                board.commit()
                return True
        board.rollback()
        return False

    def _aside(self, i: int, j: int) -> bool:
        """Put what is left on ``j`` and may be aside, the least loss first, until request ``i`` fits there."""
        for r in self._victims(j):
            if self._may_preempt(i, r):
                self.board.preempt(r)
                if self._fits(i, j, apart=True):
                    return True
        return False

    def _free(self, level: int) -> Floats:
        """(J,) share of its time that an instance has for prefills where all goes that may for a level's request."""
        if level not in self._left:
            running, config = self.model.running, self.model.policy.preemption_config
            goes = config.enabled & (running.preempted < config.max_preempt_per_request)
            goes &= running.priority - config.min_priority_gap >= level
            self._left[level] = free_beside(self.model, ~(goes | self.moving.may(level)))
        return self._left[level]

    def _quickest(self, i: int) -> list[int]:
        """Instances on which the prefill is in time if nothing else is there but what may not move, those first from
        which least of its priority must; then those on which it ends soonest."""
        at, queue, running = self.model.instances, self.model.plain, self.model.running
        level, by = queue["priority"][i], min(queue["prefill_by"][i], queue["e2e"][i])
        j = np.flatnonzero(at.open & at.prefills)
        alone = self.scout.reaches.least[i][at.kind[j]] / np.maximum(1e-12, self._free(level)[j])
        hurts = (running.priority == level) & (self.board.plan.action == KEEP)
        there = np.bincount(running.decode, hurts, self.model.J)
        turn = np.lexsort((alone, there[j]))
        return [int(n) for n in j[turn[alone[turn] <= by]][: 2 * PLACES]]

    def _instances(self, i: int) -> list[int]:
        """Instances that run the request, those where its prefill is quickest first, of a kind the least loaded."""
        model, at = self.model, self.model.instances
        j = np.flatnonzero(at.open & at.prefills & (at.decodes | (model.queue.output[i] == 0)))
        work = self.scout.work[i][at.kind[j]]
        load = self.board.due[j, -1] - self.board.slack[j, -1]
        turn = np.lexsort((j, load, work))
        turn = turn[np.isfinite(work[turn])]
        kinds: dict[int, int] = {}
        found = []
        for n in turn.tolist():
            kind = int(at.kind[j[n]])
            kinds[kind] = kinds.get(kind, 0) + 1
            if kinds[kind] <= PLACES:
                found.append(int(j[n]))
        return found[: 3 * PLACES]

    def _running(self, i: int, j: int) -> bool:
        """Running stages leave ``j``, the least loss first, until the request fits; each moves where it can."""
        for r in self._victims(j):
            if not self.moving.moved(self.board, r, j):
                if not self._may_preempt(i, r):
                    continue
                self.board.preempt(r)
            if self._fits(i, j):
                return True
        return False

    def _victims(self, j: int) -> list[int]:
        action, running = self.board.plan.action, self.model.running
        there = [r for r in self.moving.there.get(j, ()) if action[r] == KEEP]
        there.sort(key=lambda r: (-int(running.priority[r]), float(self.board.loss[r]), r))
        return there[:CROWD]

    def _may_preempt(self, i: int, r: int) -> bool:
        config, running = self.model.policy.preemption_config, self.model.running
        gap = int(running.priority[r]) - int(self.model.queue.priority[i])
        return config.enabled and gap >= config.min_priority_gap and (
            int(running.preempted[r]) < config.max_preempt_per_request
        )  # fmt: skip

    def _queued(self, i: int, j: int) -> bool:
        """Requests of the plan leave ``j`` until the request fits, and go where else there is room."""
        gone: list[int] = []
        for k in self._lesser(i, j):
            if not self.board.remove(k):
                return False
            gone.append(k)
            if self._fits(i, j):
                for k in gone:
                    insert(self.board, self.scout, k, self.prices, self.clock)
                return True
        return False

    def _lesser(self, i: int, j: int) -> Iterator[int]:
        """Requests on ``j`` that the request may take the place of: of lower priority first, then the longest
        prefill that is no longer than its own."""
        plan, queue = self.board.plan, self.model.queue
        there = np.flatnonzero((plan.prefill == j) & (plan.decode == j) & (queue.priority >= queue.priority[i]))
        work = self.scout.work[there, self.model.instances.kind[j]]
        own = float(self.scout.work[i, self.model.instances.kind[j]])
        turn = np.lexsort((there, -np.where(work <= own, work, -work), -queue.priority[there]))
        yield from there[turn][:LEAVE].tolist()

    def _fits(self, i: int, j: int, *, apart: bool = False) -> bool:
        """Place request ``i`` on ``j``, its decode there or elsewhere (``apart``), with the best of its prefix that it
        can have."""
        queue, board = self.model.plain, self.board
        reach = self.scout.reaches.every(i)
        n = int(np.searchsorted(reach.instance, j))
        if n == len(reach.instance) or reach.instance[n] != j:
            return False
        work, fetches, _ = self.scout.works(board, i, reach)
        fetch, by = int(fetches[n]), min(queue["prefill_by"][i], queue["e2e"][i])
        if work[n] > board.speed[j] * by * (1.0 + EPSILON):
            return False
        if not queue["output"][i]:
            return board.place(i, j, j, int(board.plan.pace[j]), fetch)
        own = self.scout.own_rung(i)
        now = int(board.plan.pace[j])
        rungs = [own] if np.isinf(board.tau[j]) else [now, min(own, now), own]
        here = (rung for rung in dict.fromkeys(rungs) if board.paces[rung] <= queue["itl"][i])
        return any(board.place(i, j, j, rung, fetch) for rung in here) or any(
            board.place(i, j, q, int(board.plan.pace[q]), fetch) for q in (self._fast(i, j) if apart else ())
        )

    def _fast(self, i: int, j: int) -> list[int]:
        """Instances that decode fast enough for a request on ``j``, those with most time left."""
        board, queue = self.board, self.model.plain
        room = (board.memory >= queue["kv_full"][i]) & (board.sequences >= queue["sequences"][i])
        fast = np.flatnonzero(room & (board.tau <= queue["itl"][i]))
        turn = fast[np.lexsort((fast, -board.slack[fast, -1]))]
        return [q for q in turn.tolist() if q != j and self.scout.may(i, j, q)][:PLACES]
