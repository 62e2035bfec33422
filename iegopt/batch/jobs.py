"""Prefills on one instance, one at a time: what ``InstanceLoad`` keeps in order."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil, inf

from iegopt.batch.model import BatchModel
from iegopt.batch.violations import TOLERANCE

__all__ = ["Job", "JobMaker", "eased", "keep_rows"]


@dataclass(slots=True)
class Job:
    """A prefill on an instance.

    Attributes
    ----------
    request, decode
        Index into the queue (a running stage r: r − R), and the instance where it decodes.
    key
        Deadline, then what breaks ties.
    by, end, tail
        Seconds by which the prefill ends, by which all ends, and that decoding takes: 0 where nothing decodes.
    size
        Bytes on the wire to another instance, 0 where it stays.
    own, own_ready, fetched, fetch_ready
        Tokens held here and when they have been read; tokens that a fetch would make of it and when it ends.
    held, lead, gain
        Leading blocks on the device, the blocks after them, and the first of those (−1 without), which an earlier
        prefill may have left.
    work
        Tokens reused -> seconds; of a running stage, 0 alone.
    row
        Seconds, when it may start, and when it must end, unless an earlier prefill leaves it something.
    """

    request: int
    decode: int
    key: tuple[float, int]
    by: float
    end: float
    tail: float
    size: float
    prompt: int
    own: int
    own_ready: float
    fetched: int
    fetch_ready: float
    held: int = 0
    lead: tuple[int, ...] = ()
    gain: int = -1
    row: tuple[float, float, float] = (0.0, 0.0, 0.0)
    work: dict[int, float] = field(default_factory=dict)


class JobMaker:
    """Makes and times the prefills of instance ``j``."""

    def __init__(self, model: BatchModel, j: int) -> None:
        self.model, self.j = model, j
        self._kind = int(model.instances.kind[j])
        self._family = model.kinds.family[model.instances.kind].tolist()

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

    def running(self, r: int) -> Job:
        """The rest of running prefill ``r``, its decode at the pace that it has with nothing placed."""
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

    def retimed(self, job: Job, tau: float) -> Job:
        """The job with its decode at another pace."""
        tokens = self.model.running.remaining if job.request < 0 else self.model.queue.output
        if job.end == inf or not tokens[job.request]:
            return job
        # ``replace`` would take most of the time of a trial.
        moved = Job(
            job.request, job.decode, job.key, job.by, job.end, int(tokens[job.request]) * tau, job.size, job.prompt,
            job.own, job.own_ready, job.fetched, job.fetch_ready, job.held, job.lead, job.gain, job.row, job.work,
        )  # fmt: skip
        self._time(moved)
        return moved

    def latest(self, job: Job, work: float) -> float:
        """When a prefill of so many seconds must end, rounding allowed."""
        latest = eased(job.by)
        return latest if job.end == inf else min(latest, eased(job.end) - self._transfer(job, work) - job.tail)

    def _time(self, job: Job) -> None:
        """Set a job's deadline, and its row."""
        before = job.end - self._transfer(job, self.work(job, job.own)) - job.tail
        job.key = (min(job.by, before), job.key[1])
        fetches = job.fetched > job.own
        work = self.work(job, job.fetched if fetches else job.own)
        job.row = (work, job.fetch_ready if fetches else job.own_ready, self.latest(job, work))

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

    def work(self, job: Job, reused: int) -> float:
        if reused not in job.work:
            job.work[reused] = self.model.prefill.one(job.request, self._kind, reused)
        return job.work[reused]


def keep_rows(jobs: list[Job], speed: float) -> bool:
    """Whether prefills that leave each other nothing all end in time."""
    now = 0.0
    if speed <= 0.0:
        return all(job.row[2] == inf for job in jobs)
    for job in jobs:
        work, ready, latest = job.row
        now = (now if now > ready else ready) + work / speed
        if now > latest:
            return False
    return True


def eased(limit: float) -> float:
    """A limit with the rounding that is allowed it."""
    return limit if limit == inf else limit + TOLERANCE * max(1.0, abs(limit))
