"""One instance under a partial plan, changed request by request: what a solver asks before it places.

A trial takes microseconds. It says what ``schedule.evaluate`` would say of the same instance: the same order by
deadlines, the same reuse, the same rounding allowed. What a slower pace here does to prefills elsewhere whose requests
decode here is theirs to check: ``decoding`` names the requests.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace
from math import ceil, inf

import numpy as np

from iegopt.batch.jobs import Job, eased, keep_rows
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
    memory, sequences, compute, read
        Bytes, sequences, and the rows of a step without its base.
    """

    def __init__(self, model: BatchModel, j: int) -> None:
        self.model, self.j = model, j
        instances, running = model.instances, model.running
        self._kind, self._paces = int(instances.kind[j]), model.paces.tolist()
        self._family = model.kinds.family[instances.kind].tolist()
        self._bases = float(model.kinds.base_compute[self._kind]), float(model.kinds.base_read[self._kind])
        self._other, self._free = float(instances.other[j]), int(instances.free[j])
        self._most = int(instances.max_batch[j])
        self.pace = int(instances.base_pace[j])
        self.memory = self.sequences = 0
        self.compute = self.read = 0.0
        self._itl: dict[int, float] = {}
        self.jobs: list[Job] = []
        self.decoding: set[int] = set()
        self._left: dict[int, int] = {}
        self._gains: dict[int, int] = {}
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
        twin.decoding, twin._left, twin._gains = set(self.decoding), dict(self._left), dict(self._gains)
        return twin

    def job(self, i: int, decode: int, pace: float, fetch: int = -1) -> Job:
        """The prefill of request ``i`` here, decoding on ``decode`` at ``pace`` seconds a token."""
        model, queue, j = self.model, self.model.plain, self.j
        prompt, kv, wire = queue["prompt"][i], queue["kv_per_token"][i], queue["wire_per_token"][i]
        own, read = model.holdings.one(i, j, prompt)
        there, ready = 0, 0.0
        if fetch >= 0 and fetch != j and self._family[fetch] == self._family[j]:
            there, slow = model.holdings.one(i, fetch, prompt)
            rate = wire * float(model.instances.seconds_per_byte[fetch, j]) + kv * slow
            ready = float(model.instances.latency[fetch, j]) + (there - own) * rate
        size = 0.0 if decode == j else float(ceil(wire * prompt))
        output, blocks, order = queue["output"][i], model.holdings.blocks[i], queue["order"][i]
        tail, own_ready = output * pace if output else 0.0, read * kv * own
        # What is read first an earlier prefill may still spare; what is on the device it may not.
        held = 0 if own_ready else -(-own // model.holdings.block_tokens)
        lead = blocks[held:]
        made = Job(
            i, decode, (0.0, order), queue["prefill_by"][i], queue["e2e"][i], tail, size, prompt, own, own_ready, there,
            max(ready, own_ready), held, lead, lead[0] if lead else -1,
        )  # fmt: skip
        self._time(made)
        return made

    def fits(self, job: Job | None = None, decode: int | None = None, pace: int | None = None) -> bool:
        """Whether all rules of this instance hold with one more prefill, one more decode, or another pace.

        Parameters
        ----------
        job
            A prefill here, made by ``job`` with the pace that its decode will have.
        decode
            A request that decodes here.
        pace
            In place of ``self.pace``.
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
        if memory > self._free or sequences > self._most:
            return False
        tau = self._paces[rung] if rung >= 0 else inf
        if sequences and (rung < 0 or not self._paced(tau, rung != self.pace, decode)):
            return False
        share = max(self._bases[0] + compute, self._bases[1] + read) / tau if sequences else 0.0
        speed = 1.0 - share - self._other
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

    def retime(self, request: int, tau: float) -> None:
        """A prefill here (a running stage r: r − R) decodes elsewhere at another pace."""
        self.jobs = sorted(
            (self._paced_job(old, tau) if old.request == request else old for old in self.jobs), key=lambda old: old.key
        )

    def ends(self) -> list[tuple[int, float]]:
        """(request, end of its prefill) in their order; a running stage r is r − R."""
        found: list[tuple[int, float]] = []
        self._in_time(self.jobs, self.speed, None, found)
        return found

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
                work = self._work(job, reused)
                latest = self._latest(job, work)
            left.update(job.lead)
            now = (max(now, ready) + work / speed) if speed > 0.0 else inf
            if ends is not None:
                ends.append((job.request, now))
            elif now > latest:
                return False
        return True

    def _shares(self, new: Job | None) -> bool:
        """Whether an earlier prefill may leave something to a later one."""
        if new is not None and (self._left.get(new.gain, 0) or not self._gains.keys().isdisjoint(new.lead)):
            return True
        return any(self._left.get(gain, 0) > 1 for gain in self._gains)

    def _latest(self, job: Job, work: float) -> float:
        """When a prefill of so many seconds must end, rounding allowed."""
        latest = eased(job.by)
        return latest if job.end == inf else min(latest, eased(job.end) - self._transfer(job, work) - job.tail)

    def _time(self, job: Job) -> None:
        """Set a job's deadline, and its row."""
        before = job.end - self._transfer(job, self._work(job, job.own)) - job.tail
        job.key = (min(job.by, before), job.key[1])
        fetches = job.fetched > job.own
        work = self._work(job, job.fetched if fetches else job.own)
        job.row = (work, job.fetch_ready if fetches else job.own_ready, self._latest(job, work))

    def _transfer(self, job: Job, work: float) -> float:
        """X, as ``transfer_seconds`` gives it."""
        if not job.size:
            return 0.0
        instances, config = self.model.instances, self.model.policy.kv_transfer_config
        latency = float(instances.latency[self.j, job.decode])
        rate = float(instances.seconds_per_byte[self.j, job.decode])
        seconds = latency + job.size * rate
        if config is None or not config.overlap_compute:
            return seconds
        chunks = max(1.0, -(-job.size // config.chunk_size))
        return max(seconds - work * (chunks - 1.0) / chunks, latency + min(config.chunk_size, job.size) * rate)

    def _work(self, job: Job, reused: int) -> float:
        if reused not in job.work:
            job.work[reused] = self.model.prefill.one(job.request, self._kind, reused)
        return job.work[reused]

    def _at(self, job: Job, tau: float) -> Job:
        """The job with this instance at another pace: its deadline moves where it decodes here."""
        return self._paced_job(job, tau) if job.decode == self.j else job

    def _paced_job(self, job: Job, tau: float) -> Job:
        tokens = self.model.running.remaining if job.request < 0 else self.model.queue.output
        if not tokens[job.request]:
            return job
        moved = replace(job, tail=int(tokens[job.request]) * tau)
        self._time(moved)
        return moved

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
            self._insert(self._running_job(r))
        else:
            self.jobs = [job for job in self.jobs if job.request != r - self.model.R]

    def _running_job(self, r: int) -> Job:
        model, running = self.model, self.model.running
        q = int(running.decode[r])
        tail = 0.0
        if running.sequences[r]:
            tail = int(running.remaining[r]) * float(model.paces[model.instances.base_pace[q]])
        by, end, work = float(running.prefill_by[r]), float(running.finish_by[r]), float(running.prefill[r])
        size = float(running.wire_end[r]) if q != self.j and running.sequences[r] else 0.0
        job = Job(r - model.R, q, (0.0, r - model.R), by, end, tail, size, 0, 0, 0.0, 0, 0.0, work={0: work})
        self._time(job)
        return job

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
            self._left[block] = self._left.get(block, 0) + sign
        if job.lead:
            self._gains[job.gain] = self._gains.get(job.gain, 0) + sign
            if not self._gains[job.gain]:
                del self._gains[job.gain]
