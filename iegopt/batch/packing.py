"""A plan after a blueprint: every request on an instance of the classes that its group was given, the largest first.

On what a class still has to decode, its prefills take no time: the share that the blueprint gives decodes is reserved
until they come. What fits nowhere so goes wherever all keeps its worth, or where what runs makes way for it, and what
does not fit there either is left. Requests that need most of an instance's time claim theirs first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import chain, islice
from math import isfinite

import numpy as np
import numpy.typing as npt

from iegopt.batch.blueprint import Blueprint, slowest_allowed
from iegopt.batch.board import Board
from iegopt.batch.bound_rows import Classes
from iegopt.batch.construct import plain_prices
from iegopt.batch.dealing import Target, dealt
from iegopt.batch.groups import slowest_rungs
from iegopt.batch.leavings import Leavings
from iegopt.batch.moving import Moving
from iegopt.batch.outcome import worth_more
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["Packing"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

PREFILLS, DECODES = 4, 2
"""Instances tried for a prefill, and for its decode."""
MANY = 16
"""Instances of a class from which some more than the blueprint opens are made fast."""
LOOKS = 12
"""Instances among which those for the decode are looked for."""
CLEARED, CLEARINGS, MOVED = 2, 100, 10
"""Instances that are cleared for one request, and for all, at most; and stages that leave one, since others must take
them."""


class Packing:
    """A board on which a blueprint is followed.

    Attributes
    ----------
    wish (J,)
        The pace of every instance, −1 where none decodes.
    missed
        Part of the last level's requests placed by the blueprint that found no room.

    Parameters
    ----------
    claims
        Requests that need most of an instance, and where they go (``dealing.whole_instances``).
    """

    def __init__(
        self, board: Board, scout: Scout, classes: Classes, blueprint: Blueprint, leavings: Leavings,
        claims: Mapping[int, Target],
    ) -> None:  # fmt: skip
        self.board, self.scout, self.classes, self.blueprint = board, scout, classes, blueprint
        model = board.model
        self.model, self.leavings = model, leavings
        self._claims = claims
        self.wish, self.missed = self._wished(), 0.0
        every = [np.flatnonzero(classes.of == c) for c in range(classes.size)]
        self._members = every
        self._pools = [[js[self.wish[js] == rung] for rung in range(len(model.paces))] for js in every]
        self._reserve = self._reserved()
        top = slowest_rungs(model)
        wanted = np.searchsorted(model.paces, model.policy.reference_pace * (1.0 + 1e-9), side="right") - 1
        self._slowest = np.where(model.queue.throughput, np.minimum(top, max(0, int(wanted))), top).tolist()
        at = model.instances
        rows, group = np.unique(model.prefill.runs, axis=0, return_inverse=True)
        self._runs = group.reshape(-1).tolist()
        self._prefills = [np.flatnonzero(at.open & at.prefills & row[at.kind]) for row in rows]
        family = model.kinds.family[at.kind]
        self._family = family.tolist()
        self._decodes = [
            {f: np.flatnonzero(at.open & at.decodes & row[at.kind] & (family == f)) for f in set(self._family)}
            for row in rows
        ]
        self._held: dict[int, Ints] = {}
        self._moving, self._clearings, self._prices = Moving(model), CLEARINGS, plain_prices(model, board.grid)

    def claim(self, clock: Clock) -> None:
        """Place those that need most of an instance, before all others are spread over the instances."""
        for i, target in self._claims.items():
            if clock.left > 0.0:
                self._put(i, *target)

    def fill(self, level: int, clock: Clock) -> Ints:
        """Place the requests of a level that are not yet placed, while there is time; those that are left, the ones
        that the blueprint places first."""
        dealing = dealt(self.board, self.scout, self.blueprint, level)
        left = [i for i, target in dealing.targets.items() if clock.left <= 0.0 or not self._put(i, *target)]
        self.missed = len(left) / max(1, len(dealing.targets))
        return np.array(left + dealing.rest, dtype=np.int64)

    def _kept(self) -> Bools:
        """(J,) the instances of every class with most time, as many as it has requests that need most of one."""
        kept, other = np.zeros(self.model.J, dtype=bool), self.model.instances.other
        for c, count in Counter(c for c, _, _ in self._claims.values()).items():
            mine = np.flatnonzero(self.classes.of == c)
            kept[mine[np.argsort(other[mine], kind="stable")][:count]] = True
        return kept

    def _wished(self) -> Ints:
        """As many instances of each class at each pace as the blueprint opens, and where there are many some more fast
        ones; the slow ones are those that are so already, and the fullest, and what then is left decodes fast."""
        board, classes, rungs = self.board, self.classes, len(self.model.paces)
        now = np.where(np.isfinite(board.tau), board.plan.pace, -1)
        wish, tightest = now.copy(), slowest_allowed(board)
        room = (board.slack / np.maximum(board.grid, 1e-3)).min(axis=1)
        room[self._kept()] = -np.inf
        for c in range(classes.size):
            left = np.flatnonzero(classes.of == c)
            opened = np.maximum(0.0, self.blueprint.opened[c] - 1e-6)
            # Work does not come in equal parts: the margin that a pool needs grows with its root.
            counts = np.ceil(opened + (np.sqrt(opened) if len(left) >= MANY else 0.0)).astype(int)
            for rung in reversed(range(rungs)):
                count = min(int(counts[rung]), len(left) - int(counts[:rung].sum()))
                able = left[tightest[left] >= rung]
                turn = able[np.lexsort((able, room[able], now[able] != rung))][: max(0, count)]
                wish[turn] = rung
                left = np.setdiff1d(left, turn)
        return wish

    def _reserved(self) -> Floats:
        """(J,) share of its time that the blueprint gives decodes that are not yet placed."""
        groups, found = self.blueprint.groups, np.zeros(self.model.J)
        step = np.where(np.isfinite(groups.step) & groups.decodes, groups.step, 0.0)
        for c, pools in enumerate(self._pools):
            for rung, pool in enumerate(pools):
                if len(pool):
                    share = float((step[c] * self.blueprint.decode[:, c, rung]).sum()) / float(self.model.paces[rung])
                    found[pool] = share / len(pool)
        return found

    def _put(self, i: int, c: int, d: int, rung: int) -> bool:
        """Place request ``i`` on class ``c``, its decode on ``d`` at a pace; else elsewhere; else on an instance that
        is cleared."""
        if not self._allowed(i):
            return False
        decodes = self.model.plain["output"][i] > 0
        tau = self.board.paces[rung]
        pool = self._pools[d][rung]
        here = self._in_time(i, self._members[c], tau)
        there = self._with_room(i, pool, rung, self._reserve[pool]) if decodes else []
        for p in here:
            own = [p] if not decodes or (c == d and self.wish[p] == rung) else []
            if any(self._place(i, p, q, rung) for q in dict.fromkeys(chain(own, there))):
                return True
        return self._anywhere(i, rung, there) or self._on_cleared(i, rung, there)

    def _anywhere(self, i: int, rung: int, there: list[int]) -> bool:
        """Place request ``i`` on any instances that let it keep its worth; on reserved time only where all else is
        full."""
        board, model, group = self.board, self.model, self._runs[i]
        slowest = self._slowest[i]
        limit = board.paces[slowest] * (1.0 + 1e-9)
        more: dict[int, list[int]] = {}
        for family, pool in self._decodes[group].items():
            kept = pool[board.tau[pool] <= limit]
            more[family] = self._with_room(i, kept, slowest, board.speed[kept] - self._reserve[kept])
        every = self._prefills[group]
        for spared in (True, False):
            for p in self._in_time(i, every, min(limit, board.paces[rung]), spared=spared):
                if not model.plain["output"][i]:
                    if self._place(i, p, p, rung, spared=spared):
                        return True
                    continue
                own = [p] if board.tau[p] <= limit and model.instances.decodes[p] else []
                for q in dict.fromkeys(chain(own, there, more[self._family[p]])):
                    if self._place(i, p, q, min(slowest, self._rung(q, rung)), spared=spared):
                        return True
        return False

    def _on_cleared(self, i: int, rung: int, there: list[int]) -> bool:
        """Place request ``i`` that has a claim where no request decodes and all that runs leaves, on the
        instance that has least time to spare then, if it is worth what the moves cost."""
        board, level = self.board, self.model.plain["priority"][i]
        may = i in self._claims and self._clearings > 0
        for p in self._clearable(i, rung) if may else ():
            self._clearings -= 1
            worth, reserve = board.worth.copy(), self._reserve.copy()
            board.begin()
            self._moving.cleared(board, p, level)
            own = [p] if self.model.instances.decodes[p] else []
            placed = any(self._place(i, p, q, self._rung(q, rung)) for q in (*there, *own)) or self._fetching(i)
            if placed and worth_more(board.worth, worth):
                board.commit()
                return True
            board.rollback()
            self._reserve = reserve
        return False

    def _clearable(self, i: int, rung: int) -> list[int]:
        """Instances where no request and few stages decode, and with time for the prefill if all leaves that may, the
        least first."""
        board, queue, reach = self.board, self.model.plain, self.scout.reaches.every(i)
        js = reach.instance
        work, _, ready = self.scout.works(board, i, reach)
        by = min(queue["prefill_by"][i], queue["e2e"][i] - queue["output"][i] * board.paces[rung])
        due = board.due[js, min(int(np.searchsorted(board.grid, by)), len(board.grid) - 1)]
        free = self._moving.free(queue["priority"][i])[js]
        room = np.minimum(free * by - due, free * (by - ready)) - work
        few = [
            not board.loads[j].decoding and isfinite(board.tau[j]) and len(self._moving.there.get(j, ())) <= MOVED
            for j in js.tolist()
        ]
        return _most(js, np.where((room >= 0.0) & few & reach.prefills, -room, -np.inf), CLEARED)

    def _fetching(self, i: int) -> bool:
        """Place request ``i`` anywhere, with what it can fetch of its prefix."""
        for place in self.scout.places(self.board, i, self._prices):
            if self.board.place(i, place.prefill, place.decode, place.rung, place.fetch):
                self.leavings.leave(i, place.prefill)
                return True
        return False

    def _rung(self, q: int, wanted: int) -> int:
        return int(self.board.plan.pace[q]) if np.isfinite(self.board.tau[q]) else wanted

    def _place(self, i: int, p: int, q: int, rung: int, *, spared: bool = True) -> bool:
        if self._family[p] != self._family[q]:
            return False
        share = self._share(i, q, rung)
        spare = self._reserve[p] if p != q else max(0.0, self._reserve[p] - share)
        if not self.board.place(i, p, q, rung, spare=float(spare) if spared else 0.0):
            return False
        self.leavings.leave(i, p)
        self._reserve[q] = max(0.0, self._reserve[q] - share)
        return True

    def _share(self, i: int, q: int, rung: int) -> float:
        """Share of its instance's time that a decode takes."""
        queue, kind = self.model.plain, int(self.model.instances.kind[q])
        if not queue["output"][i]:
            return 0.0
        step = max(queue["step_compute"][i][kind], queue["step_read"][i][kind])
        return float(step / self.board.paces[rung])

    def _in_time(self, i: int, js: Ints, tau: float, *, spared: bool = True) -> list[int]:
        """The instances of ``js`` that have time for the prefill, those first of whose time it is the least part."""
        board, queue = self.board, self.model.plain
        by = min(queue["prefill_by"][i], queue["e2e"][i] - queue["output"][i] * tau)
        at = min(int(np.searchsorted(board.grid, by)), len(board.grid) - 1)
        reserve = self._reserve[js] if spared else 0.0
        work = self._works(i, js)
        room = np.minimum(board.slack[js, at] - reserve * board.grid[at], (board.speed[js] - reserve) * by) / work
        return _most(js, np.where(room >= 1.0, room, -np.inf), PREFILLS)

    def _with_room(self, i: int, js: Ints, rung: int, score: Floats) -> list[int]:
        """The instances of ``js`` that have memory, batch and time for the decode, the highest score first."""
        queue, board = self.model.plain, self.board
        step = np.maximum(self.model.queue.step_compute[i], self.model.queue.step_read[i])
        more = step[self.model.instances.kind[js]] / np.minimum(board.tau[js], board.paces[rung])
        fits = (board.memory[js] >= queue["kv_full"][i]) & (board.sequences[js] >= queue["sequences"][i])
        # Rows do not see what prefills of the plan leave to others: they put last, and the exact trial decides.
        tight = (board.slack[js] < more[:, None] * board.grid).any(axis=1)
        rungs = {q: self._rung(q, rung) for q in _most(js, np.where(fits, score - 2.0 * tight, -np.inf), LOOKS)}
        sure = (q for q, own in rungs.items() if board.loads[q].fits(decode=i, pace=own))
        return list(islice(sure, DECODES))

    def _works(self, i: int, js: Ints) -> Floats:
        """Seconds of the prefill on instances with what they hold or are left of its prefix."""
        work: Floats = self.scout.work[i][self.model.instances.kind[js]]
        matched = self._matched(i)
        if matched is None:
            return work
        tokens = matched[js]
        for reused in np.unique(tokens[tokens > 0]).tolist():
            at = tokens == reused
            for kind in np.unique(self.model.instances.kind[js[at]]).tolist():
                seconds = self.model.prefill.one(i, kind, reused)
                work[at & (self.model.instances.kind[js] == kind)] = seconds
        return work

    def _matched(self, i: int) -> Ints | None:
        """(J,) tokens of its prompt that every instance holds or is left; ``None``: nobody any."""
        holdings, prompt = self.model.holdings, self.model.plain["prompt"][i]
        chain = int(holdings.chain[i])
        if chain not in self._held:
            self._held[chain] = np.zeros(self.model.J, dtype=np.int64)
            if chain >= 0:
                entries = slice(holdings.ptr[chain], holdings.ptr[chain + 1])
                self._held[chain][holdings.instance[entries]] = holdings.tokens[entries]
        found: Ints | None = None if chain < 0 else np.minimum(self._held[chain], prompt - 1)
        for sent, run in self.leavings.runs(i):
            found = np.zeros(self.model.J, dtype=np.int64) if found is None else found
            found[sent] = np.maximum(found[sent], run)
        return found

    def _allowed(self, i: int) -> bool:
        """Whether the tenant may have one more at all."""
        tenancy = self.board.tenancy
        if not tenancy.limited:
            return True
        p = self._prefills[self._runs[i]]
        return len(p) > 0 and tenancy.allows(tenancy.of_queued(i, int(p[0]), int(p[0]), np.inf, 0.0))


def _most(js: Ints, score: Floats, count: int) -> list[int]:
    """The instances of the highest finite scores, ties as they stand."""
    turn = np.argsort(-score, kind="stable")[:count]
    found: list[int] = js[turn[score[turn] > -np.inf]].tolist()
    return found
