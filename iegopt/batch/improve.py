"""Making room: what runs or is placed gives way to a request that is worth more, moves elsewhere where that is enough,
and is put back where it still fits.

Every trial is taken back unless the plan is better level by level; their number bounds the work, so that the same plan
comes out whenever the clock does not end it.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.construct import insert
from iegopt.batch.model import BatchModel
from iegopt.batch.moving import Moving
from iegopt.batch.outcome import worth_more
from iegopt.batch.placement import KEEP, PREEMPT
from iegopt.batch.reach import Prices
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["hasten", "make_room", "quicken"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

PLACES = 4
"""Instances tried for a request."""
LEAVE = 4
"""The most that gives way to one request."""
CROWD, CLEARINGS = 32, 80
"""The most that leaves a whole instance, and how often one is cleared in a round."""
CALM = 8
"""The most where an earlier plan placed requests, which then stay or move together."""
CHAIN = 1
"""How many more are cleared one after the other for those who left the first."""
EPSILON = 1e-9


def make_room(board: Board, scout: Scout, turn: list[int], prices: Prices, clock: Clock, tries: int) -> int:
    """Try to place the requests of ``turn`` where something gives way; how many were placed."""
    room = _Room(board, scout, prices, clock)
    placed = 0
    for i in turn[:tries]:
        if clock.left <= 0.0:
            break
        placed += room.make(i)
    return placed


def quicken(board: Board, clock: Clock, *, anyway: bool) -> int:
    """Decode as fast as all rules allow on every instance where that is worth more, or ``anyway`` no less: whoever
    waits for the end waits less. How many instances changed."""
    changed = 0
    for j in np.flatnonzero(np.isfinite(board.tau)).tolist():
        for rung in range(int(board.plan.pace[j])):
            if clock.left <= 0.0:
                return changed
            before = board.worth.copy()
            board.begin()
            if board.repace(j, rung) and (
                worth_more(board.worth, before) or (anyway and not worth_more(before, board.worth))
            ):
                board.commit()
                changed += 1
                break
            board.rollback()
    return changed


def hasten(board: Board, scout: Scout, clock: Clock) -> int:
    """Let requests that are worth less for their pace decode elsewhere at one that is fast enough, those that lose most
    first; their prefills stay. How many do."""
    queue, plan, paces = board.model.queue, board.plan, board.model.paces
    enough = max(0, int(np.searchsorted(paces, board.model.policy.reference_pace * (1 + EPSILON), side="right")) - 1)
    placed = np.flatnonzero((plan.prefill >= 0) & queue.throughput & (queue.output > 0))
    slow = placed[plan.pace[plan.decode[placed]] > enough]
    turn = slow[
        np.argsort(-queue.weight[slow] * (1 - paces[enough] / paces[plan.pace[plan.decode[slow]]]), kind="stable")
    ]
    return sum(_hastened(board, scout, i, enough) for i in turn.tolist() if clock.left > 0.0)


def _hastened(board: Board, scout: Scout, i: int, enough: int) -> bool:
    plan, queue, before = board.plan, board.model.queue, board.worth.copy()
    p, fetch = int(plan.prefill[i]), int(plan.fetch[i])
    fast = np.isfinite(board.tau) & (plan.pace <= enough)
    room = (board.memory >= queue.kv_full[i]) & (board.sequences >= queue.sequences[i])
    places = [q for q in np.lexsort((-board.slack[:, -1], ~fast)).tolist() if room[q] and scout.may(i, p, q)]
    for q in places[:PLACES]:
        board.begin()
        rung = int(plan.pace[q]) if fast[q] else enough
        if board.remove(i) and board.place(i, p, q, rung, fetch) and worth_more(board.worth, before):
            board.commit()
            return True
        board.rollback()
    return False


class _Room:
    """A board on which room is made."""

    def __init__(self, board: Board, scout: Scout, prices: Prices, clock: Clock) -> None:
        self.board, self.scout, self.prices, self.clock = board, scout, prices, clock
        self.model: BatchModel = board.model
        self.moving, self._clearings = Moving(self.model), CLEARINGS
        planned = (self.model.queue.planned_prefill >= 0).any()
        self._crowd, self._chain = (CALM, 0) if planned else (CROWD, CHAIN)

    def make(self, i: int) -> bool:
        """Place request ``i`` where what gives way costs less than it brings."""
        for j in self._instances(i):
            for leave in (self._running, self._queued):
                self.board.begin()
                before = self.board.worth.copy()
                if leave(i, j) and worth_more(self.board.worth, before):
                    self.board.commit()
                    return True
                self.board.rollback()
        return self._alone(i, ())

    def _alone(self, i: int, before: tuple[int, ...]) -> bool:
        """Clear an instance for request ``i``, but those that were cleared ``before`` it."""
        places = [j for j in self._quickest(i) if j not in before]
        # What moves crowds together first, so that the others stay whole; where that comes to nothing, it spreads.
        turn = [(j, spread) for spread in ((False,) if before else (False, True)) for j in places]
        return any(self._clearings > 0 and self._cleared(i, j, before, spread) for j, spread in turn)

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
        if fits and insert(board, self.scout, i, self.prices, self.clock):
            work = self.scout.work[gone, self.model.instances.kind[j]]
            for k in gone[np.lexsort((gone, -work, queue.priority[gone]))].tolist():
                if not insert(board, self.scout, k, self.prices, self.clock) and len(before) < self._chain:
                    self._alone(k, (*before, j))
            if worth_more(board.worth, worth):
                board.commit()
                return True
        board.rollback()
        return False

    def _quickest(self, i: int) -> list[int]:
        """Instances on which the prefill is in time if nothing else is there but what may not move, those first from
        which least of its priority must; then those on which it ends soonest."""
        at, queue, running = self.model.instances, self.model.plain, self.model.running
        level, by = queue["priority"][i], min(queue["prefill_by"][i], queue["e2e"][i])
        j = np.flatnonzero(at.open & at.prefills)
        alone = self.scout.reaches.least[i][at.kind[j]] / np.maximum(1e-12, self.moving.free(level)[j])
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
        for r in self._victims(i, j):
            if not self.moving.moved(self.board, r, j):
                if not self._may_preempt(i, r):
                    continue
                self.board.preempt(r)
            if self._fits(i, j):
                return True
        return False

    def _victims(self, i: int, j: int) -> list[int]:
        action, running = self.board.plan.action, self.model.running
        there = [r for r in self.moving.there.get(j, ()) if action[r] == KEEP]
        there.sort(key=lambda r: (-int(running.priority[r]), float(self.board.loss[r]), r))
        return there[:LEAVE]

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

    def _fits(self, i: int, j: int) -> bool:
        queue, board = self.model.queue, self.board
        if not queue.output[i]:
            return board.place(i, j, j, int(board.plan.pace[j]))
        own = self.scout.own_rung(i)
        now = int(board.plan.pace[j])
        rungs = [own] if np.isinf(board.tau[j]) else [now, min(own, now), own]
        return any(board.place(i, j, j, rung) for rung in dict.fromkeys(rungs) if board.paces[rung] <= queue.itl[i])
