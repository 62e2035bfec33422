"""One stage as it is carried out: its state, its attempt, what it has yielded, what befell it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from iegopt.control.results import Call, Result
from iegopt.control.states import LIVE, State, check_step
from iegopt.spec.stage import StageKind

__all__ = ["Note", "PlannedStage", "Sequence", "StageRun"]


class Note(NamedTuple):
    """A sentence of a story, and when."""

    at: float
    text: str


@dataclass(frozen=True)
class PlannedStage:
    """Where the plan puts a stage: seconds under load, bytes held, start after the plan's beginning."""

    device: str
    variant: str
    time: float
    memory: int
    start: float


@dataclass(frozen=True)
class Sequence:
    """All tokens of a sequence, and how each was fed to the model: ``(("prefill", n), ("decode", m), …)``.

    The segments cover exactly the tokens. A KV cache that is lost is made again in this form, so that every number in
    it comes out as before.
    """

    tokens: tuple[int, ...]
    segments: tuple[tuple[str, int], ...]

    def then(self, how: str, tokens: tuple[int, ...]) -> Sequence:
        """With more tokens at its end; a decode that goes on is one segment, a prefill after another is not."""
        if not tokens:
            return self
        last = self.segments[-1] if self.segments else None
        joined = how == "decode" and last is not None and last[0] == how
        kept = self.segments[:-1] if joined else self.segments
        count = len(tokens) + (last[1] if joined and last is not None else 0)
        return Sequence(self.tokens + tokens, (*kept, (how, count)))


@dataclass
class StageRun:
    """A stage of a running request.

    Attributes
    ----------
    attempt
        Of the last start; 0 before the first.
    worker, device, variant
        Of the present attempt; the device stays when the stage has ended.
    target
        The worker that it is to run on, before all others.
    reserved
        Bytes that its target keeps for it, until it is started there.
    stopping
        How its attempt was asked to stop (``messages.HOW``), ``None`` where it was not.
    stop_by
        When it is to have stopped.
    moved
        Bytes of KV cache sent or fetched for it.
    failures, losses, retries, moves
        Failures of its own; workers that were lost alone while they had it; tries after a failure, as the table counts
        them; times it was moved for slowness.
    emitted, text
        Tokens of a decode that were streamed, over all attempts, and their text.
    sequence
        What a stage of a model has handed on when it completed.
    speaker
        The decode whose text it passes on when it has completed.
    call
        What a tool stage, or the retrieval of a round, was asked.
    runs_since, ran, ran_before
        Since when it runs (``None`` while it does not); seconds that it ran before that, and before its attempt.
    waits_for_plan
        The generation before which it must not be scheduled.
    resumes
        It was preempted and goes first among its equals.
    withdrawn
        It will not run any more.
    """

    id: str
    kind: StageKind
    state: State = State.INIT
    attempt: int = 0
    worker: str | None = None
    device: str | None = None
    variant: str | None = None
    target: str | None = None
    reserved: int = 0
    stopping: str | None = None
    stop_by: float = 0.0
    failures: int = 0
    losses: int = 0
    moved: int = 0
    retries: int = 0
    moves: int = 0
    emitted: tuple[int, ...] = ()
    text: str = ""
    sequence: Sequence | None = None
    result: Result | None = None
    speaker: str | None = None
    call: Call | None = None
    ready_at: float = 0.0
    began: float | None = None
    ended: float | None = None
    runs_since: float | None = None
    ran: float = 0.0
    ran_before: float = 0.0
    waits_for_plan: int = 0
    retry_at: float = 0.0
    resumes: bool = False
    withdrawn: bool = False
    history: list[Note] = field(default_factory=list)

    @property
    def live(self) -> bool:
        """Whether a worker has an attempt of it."""
        return self.worker is not None and self.state in LIVE

    def step(self, to: State, at: float, why: str = "") -> None:
        """A transition of the table, with the clock of its running time."""
        sentence = check_step(self.id, self.state, to)
        if self.runs_since is not None and to is not State.RUNNING:
            self.ran += at - self.runs_since
            self.runs_since = None
        if to is State.RUNNING:
            self.runs_since = at
            self.began = at if self.began is None else self.began
        if to is State.READY:
            self.ready_at = at
        if to in (State.COMPLETED, State.TERMINAL):
            self.ended = at
        self.state = to
        self.note(at, f"{sentence}: {why}" if why else sentence)

    def runs(self, at: float) -> None:
        """Bring it to RUNNING from wherever its worker has it: what a worker says of a stage implies that it ran."""
        if self.state in (State.SCHEDULED, State.BLOCKED):
            self.step(State.RUNNING, at)

    def measured(self, seconds: float | None, at: float) -> None:
        """What its worker says that the attempt ran, now that it has ended. Here a beginning is heard of late, that of
        a short stage with its end; more than the time since the stage was ready is not believed."""
        if seconds is None:
            return
        if self.runs_since is not None:
            self.runs_since = at
        ran = min(seconds, at - self.ready_at)
        self.ran = self.ran_before + ran
        self.began = at - ran if self.began is None else min(self.began, at - ran)

    def run_time(self, at: float) -> float:
        """Seconds that it ran, up to now."""
        return self.ran + (at - self.runs_since if self.runs_since is not None else 0.0)

    def attempt_time(self, at: float) -> float:
        """Seconds that its present attempt ran, up to now."""
        return self.run_time(at) - self.ran_before

    def note(self, at: float, text: str) -> None:
        self.history.append(Note(at, text))
