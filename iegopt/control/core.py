"""What all parts of the controller share: its policy, the time, the workers, the requests, what is to be sent."""

from __future__ import annotations

from dataclasses import dataclass, field

from iegopt.control.line import Line
from iegopt.control.messages import AttemptKey, Command, Event, OfAttempt
from iegopt.control.policy import ControlPolicy
from iegopt.control.pool import Pool, Worker
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.timers import Timers
from iegopt.graph.limits import Cards

__all__ = ["Core"]


@dataclass
class Core:
    """The state of a controller; two are equal that have seen the same events.

    Attributes
    ----------
    before, now
        When the event before was, and the present one.
    queued, flying
        Requests that wait to be begun, and those that are at work.
    next_up
        A heap of the queued ones by urgency, in which those that are queued no more are left to lie.
    unplanned
        Requests that want a plan.
    waiting
        Stages that wait for a worker, by (request, stage), in no order that matters.
    line
        Which of them are to be looked at, and which stand in line at a place that is full.
    settle
        Something has changed that may let a stage or a request begin.
    inbox
        Events inside the present one, which come next.
    woken
        When the shell was last asked to wake the controller.
    """

    policy: ControlPolicy
    cards: Cards = field(compare=False)
    before: float = 0.0
    now: float = 0.0
    arrivals: int = 0
    pool: Pool = field(default_factory=Pool)
    runs: dict[str, RequestRun] = field(default_factory=dict)
    queued: dict[str, None] = field(default_factory=dict)
    flying: dict[str, None] = field(default_factory=dict)
    next_up: list[tuple[int, int, str]] = field(default_factory=list, compare=False)
    unplanned: dict[str, None] = field(default_factory=dict)
    waiting: dict[tuple[str, str], None] = field(default_factory=dict)
    line: Line = field(default_factory=Line, compare=False)
    timers: Timers = field(default_factory=Timers)
    settle: bool = False
    woken: float | None = None
    inbox: list[Event] = field(default_factory=list, compare=False)
    out: list[Command] = field(default_factory=list, compare=False)

    def resume(self) -> None:
        """Make anew what is only there for speed, after the rest was set."""
        self.next_up = sorted((self.runs[name].priority, self.runs[name].number, name) for name in self.queued)
        self.line.clear()
        self.line.fresh |= self.waiting

    def send(self, command: Command) -> None:
        self.out.append(command)

    def attempt(self, key: AttemptKey | OfAttempt, worker: str) -> tuple[RequestRun, StageRun] | None:
        """The request and stage of a worker's message, ``None`` where it is not about the present attempt."""
        run = self.runs.get(key.request_id)
        stage = run.stages.get(key.stage) if run is not None else None
        if run is None or stage is None or not stage.live or stage.attempt != key.attempt or stage.worker != worker:
            return None
        return run, stage

    def worker_of(self, stage: StageRun) -> Worker | None:
        return self.pool.workers.get(stage.worker) if stage.worker is not None else None

    def release_slot(self, run: RequestRun, stage: StageRun) -> None:
        """The attempt of a stage is over: its worker has room again, and nothing waits for it in time."""
        worker = self.worker_of(stage)
        if worker is not None:
            worker.attempts.pop((run.id, stage.id), None)
            self.line.stir(worker.serves)
        run.held.pop(stage.id, None)
        stage.worker, stage.stopping = None, None
        self.timers.clear(("slow", run.id, stage.id), ("block", run.id, stage.id), ("stop", run.id, stage.id))
        self.settle = True

    def wait(self, run: RequestRun, stage: StageRun) -> None:
        """A stage waits for a worker."""
        self.waiting[run.id, stage.id] = self.line.fresh[run.id, stage.id] = None
        self.settle = True

    def waits_no_more(self, run: RequestRun, stage: StageRun) -> None:
        who = run.id, stage.id
        if who in self.waiting:
            del self.waiting[who]
            self.line.leave(who)

    def look_at(self, run: RequestRun, *stages: StageRun) -> None:
        """Something has changed for stages, of which those that wait may perhaps start."""
        for stage in stages:
            if (run.id, stage.id) in self.waiting:
                self.line.fresh[run.id, stage.id] = None
        self.settle = True

    def look_again(self) -> None:
        """Workers came or went: any stage may perhaps start."""
        self.line.clear()
        self.line.fresh |= self.waiting
        self.settle = True
