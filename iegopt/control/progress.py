"""What workers tell of stages at work: accepted, waiting for a resource, going on, tokens emitted."""

from __future__ import annotations

from iegopt.control import preemption, recovering
from iegopt.control.core import Core
from iegopt.control.messages import (
    Accepted,
    Progress,
    ReservationRefused,
    Reserved,
    Resumed,
    Stream,
    Waiting,
)
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State
from iegopt.spec.stage import StageKind

__all__ = ["accepted", "emit", "has_run", "progress", "refused", "reserved", "resumed", "running", "waits"]

Message = Accepted | Waiting | Resumed | Progress


def _found(core: Core, event: Message) -> tuple[RequestRun, StageRun] | None:
    return core.attempt(event, event.worker)


def accepted(core: Core, event: Accepted) -> None:
    found = _found(core, event)
    if found is not None and found[1].state is State.SCHEDULED:
        running(core, *found)


def resumed(core: Core, event: Resumed) -> None:
    found = _found(core, event)
    if found is not None:
        running(core, *found)


def running(core: Core, run: RequestRun, stage: StageRun) -> None:
    """A stage is at work, if it was not before: watch how long it takes."""
    worker = core.worker_of(stage)
    if worker is not None and stage.kind is StageKind.DECODE:
        core.line.stir(worker.serves)  # it may now be one that gives way
    if has_run(core, run, stage):
        watch_pace(core, run, stage)
        watch_compute_time(core, run)


def has_run(core: Core, run: RequestRun, stage: StageRun) -> bool:
    """Take a stage to RUNNING, if it was not there; whether it was not."""
    if stage.state not in (State.SCHEDULED, State.BLOCKED):
        return False
    stage.runs(core.now)
    core.timers.clear(("block", run.id, stage.id))
    recovering.closed(core, run, stage)
    return True


def watch_pace(core: Core, run: RequestRun, stage: StageRun, patience: float = 1.0) -> None:
    """Wake up when a stage has run for so much longer than planned that it is slow."""
    place, policy = run.plan.get(stage.id), core.policy
    if place is not None:
        allowed = patience * max(policy.slow_floor, policy.slow_factor * place.time)
        core.timers.set(("slow", run.id, stage.id), core.now + max(0.0, allowed - stage.attempt_time(core.now)))


def watch_compute_time(core: Core, run: RequestRun) -> None:
    """Wake up when the stages of a request may have run for as long as they may in sum.

    As long as no more of them run at once than when it was last watched, that is no earlier than was said then.
    """
    at_work = sum(run.stages[name].runs_since is not None for name in run.held)
    if at_work <= run.watched and ("compute", run.id) in core.timers.times:
        return
    run.watched = at_work
    left = run.request.dag_constraints.max_compute_time - run.compute_time(core.now)
    if at_work and run.ending is None:
        core.timers.set(("compute", run.id), core.now + max(0.0, left) / at_work)


def waits(core: Core, event: Waiting) -> None:
    """A stage waits for a resource; for memory a less urgent decode may have to go."""
    found = _found(core, event)
    if found is None:
        return
    run, stage = found
    running(core, run, stage)
    if stage.state is State.RUNNING:
        stage.step(State.BLOCKED, core.now, event.resource)
        core.timers.clear(("slow", run.id, stage.id))
        core.timers.set(("block", run.id, stage.id), core.now + core.policy.block_timeout)
    if event.resource == "memory":
        preemption.make_memory(core, run, event.worker)


def progress(core: Core, event: Progress) -> None:
    """Tokens of a decode: those that are new go to the client."""
    found = _found(core, event)
    if found is None:
        return
    run, stage = found
    running(core, run, stage)
    if stage.kind is StageKind.DECODE and event.offset == len(stage.emitted):
        emit(core, run, stage, event.tokens, event.text)
    elif event.offset + len(event.tokens) > len(stage.emitted):
        # Neither next nor known: the result will tell the whole.
        stage.note(core.now, f"tokens from {event.offset} on are left for later, {len(stage.emitted)} are known")


def emit(core: Core, run: RequestRun, stage: StageRun, tokens: tuple[int, ...], text: str) -> None:
    """Stream the next tokens of a decode."""
    if not tokens and not text:
        return
    core.send(Stream(run.id, stage.id, len(stage.emitted), tokens, text))
    stage.emitted += tokens
    stage.text += text
    run.tokens += len(tokens)


def reserved(core: Core, event: Reserved) -> None:
    run = core.runs.get(event.request_id)
    stage = run.stages.get(event.stage) if run is not None else None
    if stage is not None and stage.target == event.worker:
        stage.note(core.now, f"{event.bytes} bytes are reserved on {event.worker}")


def refused(core: Core, event: ReservationRefused) -> None:
    """No memory for a decode that will follow: a less urgent one may have to go."""
    run = core.runs.get(event.request_id)
    stage = run.stages.get(event.stage) if run is not None else None
    if run is None or stage is None or stage.target != event.worker or stage.live or run.over:
        return
    stage.note(core.now, f"no memory is reserved on {event.worker}: {event.reason}")
    preemption.make_memory(core, run, event.worker)
