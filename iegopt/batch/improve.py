"""Making room: what runs or is placed gives way to a request that is worth more, moves elsewhere where that is enough,
and is put back where it still fits.

Every trial is taken back unless the plan is better level by level; their number bounds the work, so that the same plan
comes out whenever the clock does not end it.
"""

from __future__ import annotations

import numpy as np

from iegopt.batch.board import Board
from iegopt.batch.outcome import worth_more
from iegopt.batch.reach import Prices
from iegopt.batch.room import Room
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["hasten", "make_room", "quicken"]

PLACES = 4
"""Instances tried for a request."""
EPSILON = 1e-9


def make_room(board: Board, scout: Scout, turn: list[int], prices: Prices, clock: Clock, tries: int) -> int:
    """Try to place the requests of ``turn`` where something gives way; how many were placed."""
    room = Room(board, scout, prices, clock)
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
