"""A plan while it is made: the state of every instance under it, changed request by request, and taken back at will.

Every change is checked exactly (``InstanceLoad``) before it is made; the arrays over all instances are what a search
looks at to find the places worth a check.
"""

from __future__ import annotations

from math import inf

import numpy as np
import numpy.typing as npt

from iegopt.batch.grid import deadline_grid
from iegopt.batch.instance_load import InstanceLoad
from iegopt.batch.losses import preemption_costs
from iegopt.batch.marks import Mark
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import KEEP, MIGRATE, PREEMPT, Placement
from iegopt.batch.tenancy import Holding, Tenancy

__all__ = ["Board"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SLACK = 1e-7
"""Rounding that the arrays allow, well above the exact trial's."""


class Board:
    """A plan of ``model``; it starts with nothing placed and all that runs kept.

    Attributes
    ----------
    plan
        What a caller may read, and only this class changes.
    worth (L,)
        Utility less losses by level, the levels ascending.
    grid (G,), due (J, G)
        Deadlines, and seconds of prefill due by them.
    slack (J, G)
        Seconds of prefill that fit in more by each of them, no decode added.
    compute, read, tau, tightest (J,)
        Rows of a step with their base, pace (∞ where nothing decodes), and the least limit on it.
    memory, sequences (J,)
        What is left for more; below 0 where what runs takes more than there is.
    gains
        Block -> instances where prefills leave it, and do not find it there.
    """

    def __init__(self, model: BatchModel) -> None:
        self.model, self.plan = model, Placement.empty(model)
        self.loads = [InstanceLoad(model, j) for j in range(model.J)]
        self.tenancy = Tenancy(model, self.plan)
        self.paces = model.paces.tolist()
        self.worth = np.zeros(len(self.tenancy.levels))
        self.grid = deadline_grid(model)
        kinds, instances, J = model.kinds, model.instances, model.J
        self.base_compute, self.base_read = kinds.base_compute[instances.kind], kinds.base_read[instances.kind]
        self.compute, self.read = np.zeros(J), np.zeros(J)
        self.speed = np.zeros(J)
        self.tau, self.tightest = np.zeros(J), np.zeros(J)
        self.memory, self.sequences = np.zeros(J, dtype=np.int64), np.zeros(J, dtype=np.int64)
        self.deadlines = self.grid.tolist()
        self.due, self.slack = np.zeros((J, len(self.grid))), np.zeros((J, len(self.grid)))
        self.loss = preemption_costs(model).loss
        self._far: dict[int, list[int]] = {}
        running = model.running
        apart = running.is_prefill & (running.instance != running.decode) & (running.sequences > 0)
        for r in np.flatnonzero(apart).tolist():
            self._far.setdefault(int(running.decode[r]), []).append(r)
        self._holds: dict[int, Holding] = {}
        self._marks: list[Mark] = []
        self.gains: dict[int, set[int]] = {}
        self._seen: list[frozenset[int]] = [frozenset()] * J
        for j in range(J):
            self._look(j)

    @classmethod
    def of(cls, model: BatchModel, plan: Placement, worth: Floats, work: Floats) -> Board:
        """The board of a plan: what it is worth by level, and the seconds of its prefills (N,)."""
        board = cls(model)
        board.plan, board.worth = plan.copy(), worth.copy()
        board.tenancy = Tenancy(model, plan)
        for j in range(model.J):
            board.loads[j] = InstanceLoad.of(model, plan, j)
            board._look(j)
        for i in np.flatnonzero(plan.prefill >= 0).tolist() if board.tenancy.limited else ():
            p, q = int(plan.prefill[i]), int(plan.decode[i])
            tau = board.paces[plan.pace[q]] if plan.pace[q] >= 0 else inf
            board._holds[i] = board.tenancy.of_queued(i, p, q, tau, float(work[i]))
            board.tenancy.add(board._holds[i])
        return board

    def begin(self) -> None:
        """From here on changes can be taken back, to here before to where it was called earlier."""
        holds = dict(self._holds) if self.tenancy.limited else {}
        self._marks.append(Mark(self.worth.copy(), self.tenancy.sums.copy(), holds))

    def commit(self) -> None:
        """Keep what was changed since the last ``begin``, as far as that before it is concerned."""
        mark = self._marks.pop()
        if self._marks:
            self._marks[-1].absorb(mark)

    def rollback(self) -> None:
        """Back to the last ``begin``."""
        mark = self._marks.pop()
        for array, at, value in reversed(mark.undo):
            array[at] = value
        for j, load in mark.old.items():
            self.loads[j] = load
            self._look(j)
        self.worth, self.tenancy.sums, self._holds = mark.worth, mark.sums, mark.holds

    def utility(self, i: int, tau: float) -> float:
        """What request ``i`` is worth at a pace."""
        queue = self.model.plain
        if not queue["throughput"][i] or not queue["output"][i]:
            return float(queue["weight"][i])
        return float(queue["weight"][i] * min(1.0, self.model.policy.reference_pace / tau))

    def place(self, i: int, p: int, q: int, rung: int, fetch: int = -1, spare: float = 0.0) -> bool:
        """Place request ``i`` if all rules hold with it, ``q`` then at pace ``rung``."""
        queue, here, there = self.model.plain, self.loads[p], self.loads[q]
        decodes = queue["output"][i] > 0
        if not decodes:
            rung = there.pace
        tau = self.paces[rung] if rung >= 0 else inf
        job = here.job(i, q, tau, fetch)
        if self.tenancy.limited:
            held = self.tenancy.of_queued(i, p, q, tau, job.row[0])
            if not self.tenancy.allows(held):
                return False
        if p == q:
            if not here.fits(job, i, rung, spare):
                return False
        elif not there.fits(None, i, rung) or not here.fits(job, spare=spare):
            return False
        if rung != there.pace and not self._others_in_time(q, tau, p if p != q else -1):
            return False
        self._touch(p)
        self._touch(q)
        self._set_pace(q, rung)
        here, there = self.loads[p], self.loads[q]
        here.add(job)
        there.add(decode=i)
        self._write(self.plan.prefill, i, p)
        self._write(self.plan.decode, i, q)
        self._write(self.plan.fetch, i, fetch)
        self.worth[self.tenancy.queue_level[i]] += self.utility(i, tau)
        if self.tenancy.limited:
            self.tenancy.add(held)
            self._holds[i] = held
        self._look(p)
        self._look(q)
        return True

    def remove(self, i: int) -> bool:
        """Take request ``i`` off the plan; whether its instances keep all rules, which only prefills that reuse what
        it left, or wait for a fetch, may break."""
        p, q = int(self.plan.prefill[i]), int(self.plan.decode[i])
        tau = self.loads[q].pace
        for j in {p, q}:
            self._touch(j)
            self.loads[j].remove(i)
        for array in (self.plan.prefill, self.plan.decode, self.plan.fetch):
            self._write(array, i, -1)
        self.worth[self.tenancy.queue_level[i]] -= self.utility(i, self.paces[tau] if tau >= 0 else inf)
        if self.tenancy.limited:
            self.tenancy.add(self._holds.pop(i), -1)
        for j in {p, q}:
            self._look(j)
        return self.loads[p].fits()

    def repace(self, q: int, rung: int) -> bool:
        """Set the pace of an instance if all rules hold with it."""
        if rung == self.loads[q].pace:
            return True
        if not self.loads[q].fits(pace=rung) or not self._others_in_time(q, self.paces[rung], -1):
            return False
        self._touch(q)
        self._set_pace(q, rung)
        self._look(q)
        return True

    def preempt(self, r: int) -> None:
        """Put running stage ``r`` aside; in whose favour is the caller's to see to."""
        running = self.model.running
        for j in {int(running.instance[r]), int(running.decode[r])}:
            self._touch(j)
            self.loads[j].drop(r)
            self._look(j)
        self._write(self.plan.action, r, PREEMPT)
        self.worth[self.tenancy.running_level[r]] -= float(self.loss[r])
        if self.tenancy.limited:
            self._hold_running(r, int(running.decode[r]), -1)

    def move(self, r: int, to: int, rung: int, loss: float) -> bool:
        """Move the running decode ``r`` at a loss, if ``to`` can take it with the pace ``rung``."""
        trial = self.loads[to].copy()
        trial.adopt(r)
        if self.model.running.itl[r] < self.paces[rung] or not trial.fits(pace=rung):
            return False
        if rung != self.loads[to].pace and not self._others_in_time(to, self.paces[rung], -1):
            return False
        source = int(self.model.running.instance[r])
        self._touch(to)
        self._touch(source)
        self._set_pace(to, rung)
        self.loads[to].adopt(r)
        self.loads[source].drop(r)
        self._write(self.plan.action, r, MIGRATE)
        self._write(self.plan.to, r, to)
        self.worth[self.tenancy.running_level[r]] -= loss
        self._look(source)
        self._look(to)
        return True

    def _set_pace(self, q: int, rung: int) -> None:
        load = self.loads[q]
        if rung == load.pace:
            return
        old = load.pace
        tau = self.paces[rung]
        for i in load.decoding:
            if self.model.plain["throughput"][i]:
                gain = self.utility(i, tau) - self.utility(i, self.paces[old])
                self.worth[self.tenancy.queue_level[i]] += gain
        if self.tenancy.limited:
            self._retime_holdings(q, tau)
        load.add(pace=rung)
        for i in load.decoding:
            p = int(self.plan.prefill[i])
            if p != q:
                self._touch(p)
                self.loads[p].retime(i, tau)
                self._look(p)
        for r in self._far.get(q, ()):
            if self.plan.action[r] == KEEP:
                p = int(self.model.running.instance[r])
                self._touch(p)
                self.loads[p].retime(r - self.model.R, tau)
                self._look(p)
        self._write(self.plan.pace, q, rung)

    def _others_in_time(self, q: int, tau: float, checked: int) -> bool:
        """Whether prefills elsewhere whose requests decode on ``q`` are in time at another pace of it."""
        trials: dict[int, InstanceLoad] = {}
        far = [(int(self.plan.prefill[i]), i) for i in self.loads[q].decoding if self.plan.prefill[i] != q]
        far += [
            (int(self.model.running.instance[r]), r - self.model.R)
            for r in self._far.get(q, ())
            if self.plan.action[r] == KEEP
        ]
        for p, request in far:
            if p == checked:
                return False  # the trial there saw the old pace
            if p not in trials:
                trials[p] = self.loads[p].copy()
            trials[p].retime(request, tau)
        return all(load.fits() for load in trials.values())

    def _retime_holdings(self, q: int, tau: float) -> None:
        """Shares of time of all that decodes on ``q`` at a new pace."""
        for i in self.loads[q].decoding:
            old, p = self._holds[i], int(self.plan.prefill[i])
            work = next(job for job in self.loads[p].jobs if job.request == i).row[0]
            self._holds[i] = self.tenancy.of_queued(i, p, q, tau, work)
            self.tenancy.add(old, -1)
            self.tenancy.add(self._holds[i])
        decoding = np.where(self.plan.action == MIGRATE, self.plan.to, self.model.running.decode)
        now = self.paces[self.loads[q].pace] if self.loads[q].pace >= 0 else inf
        for r in np.flatnonzero((decoding == q) & (self.plan.action != PREEMPT)).tolist():
            self.tenancy.add(self.tenancy.of_running(r, q, now), -1)
            self.tenancy.add(self.tenancy.of_running(r, q, tau))

    def _hold_running(self, r: int, q: int, sign: int) -> None:
        tau = self.paces[self.loads[q].pace] if self.loads[q].pace >= 0 else inf
        self.tenancy.add(self.tenancy.of_running(r, q, tau), sign)

    def _touch(self, j: int) -> None:
        if self._marks and j not in self._marks[-1].old:
            self._marks[-1].old[j] = self.loads[j]
            self.loads[j] = self.loads[j].copy()

    def _write(self, array: Ints, at: int, value: int) -> None:
        if self._marks:
            self._marks[-1].undo.append((array, at, int(array[at])))
        array[at] = value

    def _look(self, j: int) -> None:
        """Refresh the arrays from the state of instance ``j``."""
        load = self.loads[j]
        self.compute[j] = self.base_compute[j] + load.compute
        self.read[j] = self.base_read[j] + load.read
        self.tau[j] = self.paces[load.pace] if load.sequences else inf
        self.tightest[j] = load.tightest
        self.memory[j] = self.model.instances.free_for_more[j] - load.memory
        self.sequences[j] = self.model.instances.batch_for_more[j] - load.sequences
        if load.jobs:
            at = np.searchsorted(self.grid, [job.key[0] for job in load.jobs])
            work = np.bincount(at, [job.row[0] for job in load.jobs], len(self.grid) + 1)
            self.due[j] = np.cumsum(work[:-1])
        else:
            self.due[j] = 0.0
        self.speed[j] = load.speed
        left = (self.speed[j] * (1.0 + SLACK) + SLACK) * self.grid - self.due[j]
        self.slack[j] = np.minimum.accumulate(left[::-1])[::-1]
        if load.gains.keys() != self._seen[j]:
            for block in self._seen[j]:
                self.gains[block].discard(j)
            self._seen[j] = frozenset(load.gains)
            for block in self._seen[j]:
                self.gains.setdefault(block, set()).add(j)
