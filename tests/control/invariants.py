"""What must hold after every event, checked from the commands and the state of a controller."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from iegopt.control.controller import Controller
from iegopt.control.messages import (
    Accepted,
    Answer,
    Command,
    Event,
    Failed,
    Finished,
    Planned,
    Preempted,
    Progress,
    Restarted,
    Resumed,
    Start,
    Stream,
    Submitted,
    Waiting,
    WakeAt,
)  # fmt: skip
from iegopt.control.pool import role_of
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.states import LIVE, State

OF_ATTEMPT = (Accepted, Waiting, Resumed, Progress, Finished, Failed, Preempted)


class Watch:
    """Remembers what was sent, and compares."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer] = {}
        self.streamed: dict[tuple[str, str], tuple[tuple[int, ...], str]] = {}
        self.attempts: dict[tuple[str, str], tuple[int, str]] = {}
        self.untouched: Callable[[], Any] | None = None
        self.was: Any = None

    def before(self, controller: Controller, event: Event) -> None:
        """Remember what an event must leave as it is: one of an attempt or a plan that is not the present one."""
        self.untouched = None
        run = controller.core.runs.get(getattr(event, "request_id", ""))
        stage = run.stages.get(getattr(event, "stage", "")) if run is not None else None
        if isinstance(event, OF_ATTEMPT) and stage is not None and stage.attempt != event.attempt:
            self.untouched = lambda: (stage.state, stage.attempt, stage.worker, stage.emitted, stage.failures)
        elif isinstance(event, Planned) and run is not None and run.planning != event.generation:
            self.untouched = lambda: (run.planned, run.planning, dict(run.plan), run.replan, run.over)
        self.was = self.untouched() if self.untouched is not None else None

    def check(self, controller: Controller, event: Event, commands: tuple[Command, ...]) -> None:
        if self.untouched is not None:
            assert self.untouched() == self.was, f"{event} of the past changes the present"
            assert all(isinstance(command, WakeAt) for command in commands)
        for command in commands:
            self._check_command(event, command)
        check_state(controller)

    def _check_command(self, event: Event, command: Command) -> None:
        if isinstance(command, Answer):
            known = self.answers.get(command.request_id)
            again = isinstance(event, Restarted | Submitted)
            refused = command.answer["status"] == "refused"
            assert known is None or again or refused, f"{command.request_id} is answered twice"
            if known is not None and not refused:
                assert known == command
            self.answers[command.request_id] = command
        elif isinstance(command, Stream):
            self._check_stream(command)
        elif isinstance(command, Start):
            key = command.request_id, command.stage
            attempt, worker = self.attempts.get(key, (0, ""))
            known_one = command.attempt == attempt and command.worker == worker
            assert command.attempt == attempt + 1 or known_one, f"{key}: attempt {command.attempt} after {attempt}"
            self.attempts[key] = command.attempt, command.worker
            assert command.request_id not in self.answers
            _check_work(command)

    def _check_stream(self, command: Stream) -> None:
        key = command.request_id, command.stage
        tokens, text = self.streamed.get(key, ((), ""))
        if command.offset == 0 and tokens:  # told again after a restart: the same, from the beginning
            assert command.tokens == tokens
            assert command.text == text
            return
        assert command.offset == len(tokens), f"{key}: tokens from {command.offset} after {len(tokens)}"
        self.streamed[key] = tokens + command.tokens, text + command.text


def _check_work(start: Start) -> None:
    if "segments" in start.work:
        assert sum(count for _, count in start.work["segments"]) == len(start.work["tokens"])
        kinds = [kind for kind, _ in start.work["segments"]]
        assert ("decode", "decode") not in itertools.pairwise(kinds)  # one that goes on is one segment
    if start.kind == "decode":
        assert start.work["max_tokens"] >= 1
        assert start.work["generated"] <= start.work["max_tokens"]


def _check_that_it_cannot_start(controller: Controller, run: RequestRun, stage: StageRun) -> None:
    core, place = controller.core, run.plan.get(stage.id)
    waits_for_its_try = ("retry", run.id, stage.id) in core.timers.times
    if place is not None and stage.waits_for_plan <= run.planned and not waits_for_its_try:
        free = core.pool.best(place.device, role_of(stage.kind))
        assert free is None, f"{run.id}/{stage.id} waits beside {free}"


def check_state(controller: Controller) -> None:
    core = controller.core
    policy = core.policy
    held = {}
    for run in core.runs.values():
        assert run.preemptions <= policy.preemption.max_preempt_per_request
        assert not (run.over and any(run.live())), f"{run.id} is answered and runs"
        assert run.rounds <= (run.request.agent.max_rounds if run.request.agent else 0)
        assert set(run.held) == {stage.id for stage in run.stages.values() if stage.live}
        for stage in run.stages.values():
            before = [run.stages[edge.source] for edge in run.links.into[stage.id]]
            if stage.state is not State.INIT:
                assert all(s.state is State.COMPLETED for s in before), (
                    f"{stage.id} began before its predecessors ended"
                )
            if stage.live:
                held[run.id, stage.id] = (stage.worker, stage.attempt)
            assert (stage.worker is None) or stage.state in LIVE
            could_start = stage.state in (State.READY, State.SCHEDULED) and stage.worker is None and not stage.withdrawn
            assert ((run.id, stage.id) in core.waiting) == (could_start and not run.over)
            assert stage.retries <= policy.max_retries
            assert stage.state is not State.FAILED or stage.ended is not None
            assert (stage.runs_since is not None) == (stage.state is State.RUNNING)
    at_work = {key: (worker.id, attempt) for worker in core.pool.known() for key, attempt in worker.attempts.items()}
    assert at_work == held, "workers and stages disagree"
    for worker in core.pool.workers.values():
        assert len(worker.attempts) <= worker.slots or worker.lost_at is not None
    at_work_on = {run.id for run in core.runs.values() if run.admitted and not run.over}
    assert at_work_on == set(core.flying)
    assert len(at_work_on) <= policy.max_in_flight
    assert {run.id for run in core.runs.values() if not run.admitted and not run.over} == set(core.queued)
    for request_id, name in core.waiting:
        _check_that_it_cannot_start(controller, core.runs[request_id], core.runs[request_id].stages[name])
    assert not core.unplanned
    assert not core.settle
    assert not core.inbox
    assert not core.out
