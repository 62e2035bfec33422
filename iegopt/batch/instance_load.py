"""One instance under a partial plan, changed request by request: what a solver asks before it places.

A trial takes microseconds. It says what ``schedule.evaluate`` would say of the same instance: the same order by
deadlines, the same reuse, the same rounding allowed. What a slower pace here does to prefills elsewhere whose requests
decode here is theirs to check: ``decoding`` names the requests.
"""

from __future__ import annotations

from bisect import bisect_left
from math import inf

import numpy as np

from iegopt.batch.jobs import Job, JobMaker, eased, keep_rows
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import KEEP, MIGRATE, Placement
from iegopt.batch.violations import TOLERANCE

__all__ = ["InstanceLoad"]


class InstanceLoad:
    """The state of instance ``j``; it starts with what runs there, all kept.

    Attributes
    ----------
    pace
        Index into the model's paces, −1 without a decode.
    jobs
        Prefills, in their order.
    decoding
        Queued requests that decode here.
    left, gains
        Blocks that prefills here leave, and those that are the first of what one leaves; with how many do.
    memory, sequences, compute, read
        Bytes, sequences, and the rows of a step without its base.
    """

    def __init__(self, model: BatchModel, j: int) -> None:
        self.model, self.j = model, j
        instances, running = model.instances, model.running
        self._kind, self._paces = int(instances.kind[j]), model.paces.tolist()
        self._maker = JobMaker(model, j)
        self._bases = float(model.kinds.base_compute[self._kind]), float(model.kinds.base_read[self._kind])
        self._other, self._free = float(instances.other[j]), int(instances.free_for_more[j])
        self._most, self._moved_here = int(instances.batch_for_more[j]), 0
        self.pace = int(instances.base_pace[j])
        self.memory = self.sequences = 0
        self.compute = self.read = 0.0
        self._itl: dict[int, float] = {}
        self.jobs: list[Job] = []
        self.decoding: set[int] = set()
        self.left: dict[int, int] = {}
        self.gains: dict[int, int] = {}
        for r in np.flatnonzero(running.decode == j).tolist():
            self._run(r, 1)
        for r in np.flatnonzero((running.instance == j) & running.is_prefill).tolist():
            self._prefill(r, 1)

    @classmethod
    def of(cls, model: BatchModel, placement: Placement, j: int) -> InstanceLoad:
        """Instance ``j`` as a placement leaves it."""
        load = cls(model, j)
        pace, running = placement.pace, model.running
        for r in np.flatnonzero(
            (placement.action != KEEP) & ((running.decode == j) | (running.instance == j))
        ).tolist():
            load.drop(r)
        for r in np.flatnonzero((placement.action == MIGRATE) & (placement.to == j)).tolist():
            load.adopt(r)
        load.add(pace=int(pace[j]))
        for r in np.flatnonzero((placement.action == KEEP) & (running.instance == j) & (running.decode != j)).tolist():
            load.retime(r - model.R, float(model.paces[pace[running.decode[r]]]))
        for i in np.flatnonzero((placement.prefill == j) | (placement.decode == j)).tolist():
            q = int(placement.decode[i])
            decode = i if q == j else None
            tau = float(model.paces[pace[q]])
            job = load.job(i, q, tau, int(placement.fetch[i])) if placement.prefill[i] == j else None
            load.add(job, decode)
        return load

    def copy(self) -> InstanceLoad:
        """A state that changes apart from this one."""
        twin = object.__new__(InstanceLoad)
        twin.__dict__.update(self.__dict__)
        twin.jobs, twin._itl = list(self.jobs), dict(self._itl)
        twin.decoding, twin.left, twin.gains = set(self.decoding), dict(self.left), dict(self.gains)
        return twin

    def job(self, i: int, decode: int, pace: float, fetch: int = -1) -> Job:
        """The prefill of request ``i`` here, decoding on ``decode`` at ``pace`` seconds a token."""
        return self._maker.job(i, decode, pace, fetch)

    def fits(
        self, job: Job | None = None, decode: int | None = None, pace: int | None = None, spare: float = 0.0
    ) -> bool:
        """Whether all rules of this instance hold with one more prefill, one more decode, or another pace.

        Parameters
        ----------
        job
            A prefill here, made by ``job`` with the pace that its decode will have.
        decode
            A request that decodes here.
        pace
            In place of ``self.pace``.
        spare
            Share of its time beyond that, which other decodes are to have.
        """
        queue, rung = self.model.plain, self.pace if pace is None else pace
        memory, sequences, compute, read = self.memory, self.sequences, self.compute, self.read
        if decode is not None:
            memory += queue["kv_full"][decode]
            sequences += queue["sequences"][decode] if queue["output"][decode] else 0
            compute += queue["step_compute"][decode][self._kind]
            read += queue["step_read"][decode][self._kind]
        if job is not None and job.decode != self.j:
            memory += queue["kv_prompt"][job.request]
        if memory > self._free and self._takes_more(job, decode):
            return False
        if sequences > self._most and self._decodes_more(decode):
            return False
        tau = self._paces[rung] if rung >= 0 else inf
        if sequences and (rung < 0 or not self._paced(tau, rung != self.pace, decode)):
            return False
        share = max(self._bases[0] + compute, self._bases[1] + read) / tau if sequences else 0.0
        speed = 1.0 - share - self._other - spare
        if sequences and speed < -TOLERANCE:
            return False
        jobs = self.jobs if rung == self.pace else [self._at(old, tau) for old in self.jobs]
        if rung != self.pace:
            jobs.sort(key=lambda old: old.key)
        if job is not None:
            at = bisect_left(jobs, job.key, key=lambda old: old.key)
            jobs = [*jobs[:at], job, *jobs[at:]]
        return self._in_time(jobs, speed, job)

    def add(self, job: Job | None = None, decode: int | None = None, pace: int | None = None) -> None:
        """Make it so, whether or not it fits."""
        if pace is not None and pace != self.pace:
            self.pace, tau = pace, self._paces[pace] if pace >= 0 else inf
            self.jobs = sorted((self._at(old, tau) for old in self.jobs), key=lambda old: old.key)
        if decode is not None:
            self._decode(decode, 1)
            self.decoding.add(decode)
        if job is not None:
            self._insert(job)
            if job.decode != self.j:
                self.memory += int(self.model.queue.kv_prompt[job.request])

    def remove(self, i: int) -> None:
        """Take request ``i`` away: its prefill, its decode, or both."""
        gone = next((job for job in self.jobs if job.request == i), None)
        if gone is not None:
            self.jobs.remove(gone)
            self._count(gone, -1)
            if gone.decode != self.j:
                self.memory -= int(self.model.queue.kv_prompt[i])
        if i in self.decoding:
            self._decode(i, -1)
            self.decoding.remove(i)

    def drop(self, r: int) -> None:
        """Running stage ``r`` is put aside or moves away."""
        running = self.model.running
        if running.decode[r] == self.j:
            self._run(r, -1)
        if running.instance[r] == self.j and running.is_prefill[r]:
            self._prefill(r, -1)

    def adopt(self, r: int) -> None:
        """The running decode ``r`` moves here."""
        self._run(r, 1)
        self._moved_here += 1

    def retime(self, request: int, tau: float) -> None:
        """A prefill here (a running stage r: r − R) decodes elsewhere at another pace."""
        self.jobs = sorted(
            (self._maker.retimed(old, tau) if old.request == request else old for old in self.jobs),
            key=lambda old: old.key,
        )

    def ends(self) -> list[tuple[int, float]]:
        """(request, end of its prefill) in their order; a running stage r is r − R."""
        found: list[tuple[int, float]] = []
        self._in_time(self.jobs, self.speed, None, found)
        return found

    @property
    def tightest(self) -> float:
        """The least limit on the pace of what decodes here, in seconds."""
        return min(self._itl.values(), default=inf)

    @property
    def speed(self) -> float:
        """1 − φ − ρ."""
        if not self.sequences:
            return 1.0 - self._other
        step = max(self._bases[0] + self.compute, self._bases[1] + self.read)
        return 1.0 - step / float(self.model.paces[self.pace]) - self._other

    def _in_time(
        self, jobs: list[Job], speed: float, new: Job | None, ends: list[tuple[int, float]] | None = None
    ) -> bool:
        """Whether all prefills end in time; ``ends`` collects when they end, late or not."""
        if ends is None and not self._shares(new):
            return keep_rows(jobs, speed)
        left: set[int] = set()
        now, size = 0.0, self.model.holdings.block_tokens
        for job in jobs:
            work, ready, latest = job.row
            if job.gain in left:
                # What held its ancestors' place so far is on the device or in the plan: the run goes on from there.
                run = next((depth for depth, block in enumerate(job.lead) if block not in left), len(job.lead))
                planned = min((job.held + run) * size, job.prompt - 1)
                reused, ready = (planned, 0.0) if planned >= job.own else (job.own, job.own_ready)
                if job.fetched > reused:
                    reused, ready = job.fetched, job.fetch_ready
                work = self._maker.work(job, reused)
                latest = self._maker.latest(job, work)
            left.update(job.lead)
            now = (max(now, ready) + work / speed) if speed > 0.0 else inf
            if ends is not None:
                ends.append((job.request, now))
            elif now > latest:
                return False
        return True

    def _takes_more(self, job: Job | None, decode: int | None) -> bool:
        """Whether anything takes memory here that did not run here: what runs may exceed what there is, alone."""
        if job is not None or decode is not None or self.decoding or self._moved_here:
            return True
        return any(job.request >= 0 for job in self.jobs)

    def _decodes_more(self, decode: int | None) -> bool:
        """Likewise of decodes."""
        output, here = self.model.plain["output"], self.decoding if decode is None else {*self.decoding, decode}
        return bool(self._moved_here) or any(output[i] for i in here)

    def _shares(self, new: Job | None) -> bool:
        """Whether an earlier prefill may leave something to a later one."""
        if new is not None and (self.left.get(new.gain, 0) or not self.gains.keys().isdisjoint(new.lead)):
            return True
        return any(self.left.get(gain, 0) > 1 for gain in self.gains)

    def _at(self, job: Job, tau: float) -> Job:
        """The job with this instance at another pace: its deadline moves where it decodes here."""
        return self._maker.retimed(job, tau) if job.decode == self.j else job

    def _run(self, r: int, sign: int) -> None:
        """A running stage's decode comes or goes."""
        running = self.model.running
        self.memory += sign * int(running.kv_there[r])
        self.sequences += sign * int(running.sequences[r])
        self.compute += sign * float(running.step_compute[r, self._kind])
        self.read += sign * float(running.step_read[r, self._kind])
        if sign > 0:
            self._itl[r - self.model.R] = float(running.itl[r])
        else:
            del self._itl[r - self.model.R]

    def _prefill(self, r: int, sign: int) -> None:
        """A running prefill comes or goes."""
        if self.model.running.decode[r] != self.j:
            self.memory += sign * int(self.model.running.kv_here[r])
        if sign > 0:
            self._insert(self._maker.running(r))
        else:
            self.jobs = [job for job in self.jobs if job.request != r - self.model.R]

    def _paced(self, tau: float, changed: bool, decode: int | None) -> bool:
        """Whether a pace keeps the limits of all that decode here."""
        if changed and tau > eased(min(self._itl.values(), default=inf)):
            return False
        queue = self.model.plain
        return decode is None or not queue["output"][decode] or tau <= eased(queue["itl"][decode])

    def _decode(self, i: int, sign: int) -> None:
        queue = self.model.plain
        self.memory += sign * queue["kv_full"][i]
        self.compute += sign * queue["step_compute"][i][self._kind]
        self.read += sign * queue["step_read"][i][self._kind]
        if queue["output"][i]:
            self.sequences += sign * queue["sequences"][i]
        if sign > 0 and queue["output"][i]:
            self._itl[i] = queue["itl"][i]
        elif sign < 0:
            self._itl.pop(i, None)

    def _insert(self, job: Job) -> None:
        self.jobs.insert(bisect_left(self.jobs, job.key, key=lambda old: old.key), job)
        self._count(job, 1)

    def _count(self, job: Job, sign: int) -> None:
        for block in job.lead:
            self.left[block] = self.left.get(block, 0) + sign
        if job.lead:
            self.gains[job.gain] = self.gains.get(job.gain, 0) + sign
            if not self.gains[job.gain]:
                del self.gains[job.gain]
