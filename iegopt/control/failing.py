"""What follows when a stage fails: the same worker again, another one of its device, another device, or the end.

===========  ==============================================================================
transient    the same worker again (L0), after a growing delay from the second time on
oom          likewise; from the second time on another device, where there is one
kv_lost      likewise, without the copies that proved unreadable
timeout      another worker of the device, else another device (L1)
refused      another device, where there is one; else the end
context      the end: the sequence is longer than the model takes
error        the end, where it is not transient
===========  ==============================================================================
"""

from __future__ import annotations

from iegopt.control import ending, planning, recovering
from iegopt.control.core import Core
from iegopt.control.messages import Failed, Stop
from iegopt.control.pool import role_of
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State

__all__ = ["another_try", "failed", "fails", "strike", "take_away"]


def failed(core: Core, event: Failed) -> None:
    """A worker reports that a stage has failed."""
    found = core.attempt(event, event.worker)
    if found is not None:
        found[1].measured(event.seconds, core.now)
        fails(core, *found, event.cause, event.message, transient=event.transient)


def fails(core: Core, run: RequestRun, stage: StageRun, cause: str, message: str, *, transient: bool) -> None:
    """A stage has failed of itself."""
    worker, device = stage.worker, stage.device
    assert worker is not None
    assert device is not None
    if cause == "kv_lost":
        source = run.kv_source(stage.id)
        for name in (stage.id, *((source.id,) if source is not None else ())):
            run.kv.unreadable(name, worker)
    other = planning.elsewhere(core, run, stage, device)
    permanent = cause == "context" or (cause == "error" and not transient) or (cause == "refused" and not other)
    if not strike(core, run, stage, f"{cause}: {message}", "timeout" if cause == "timeout" else "error",
                  core.now, permanent=permanent):  # fmt: skip
        return
    if cause == "timeout":
        another_try(core, run, stage, worker, device)
    elif other and (cause == "refused" or (cause == "oom" and stage.failures > 1)):
        planning.move(core, run, stage, device, f"{cause} there")
    else:
        stage.target = worker


def strike(
    core: Core, run: RequestRun, stage: StageRun, why: str, cause: str, since: float, *,
    counted: bool = True, permanent: bool = False, timeout: bool = False,
) -> bool:  # fmt: skip
    """Take a stage through FAILED, to READY or to its end; whether it is ready again.

    Parameters
    ----------
    cause
        Of ``recovery.LEVELS``.
    since
        When the fault was.
    counted
        Whether it counts as a failure of the stage's own.
    timeout
        Whether it was blocked too long.
    """
    worker = stage.worker
    recovering.left_in_files(core, run, stage, cause)
    if not timeout:
        stage.runs(core.now)
    stage.step(State.FAILED, core.now, why)
    core.release_slot(run, stage)
    stage.failures += counted
    if permanent or run.ending is not None:
        stage.retries = core.policy.max_retries
    if stage.retries >= core.policy.max_retries:
        stage.step(State.TERMINAL, core.now)
        ending.end(core, run, "failed", f"stage {stage.id}: {why}")
        return False
    stage.retries += counted
    stage.step(State.READY, core.now)
    recovering.begin(core, run, stage, cause, since, worker)
    delay = core.policy.retry_after(stage.failures) if counted else 0.0
    if delay:
        stage.retry_at = core.now + delay
        core.timers.set(("retry", run.id, stage.id), stage.retry_at)
    core.wait(run, stage)
    return True


def take_away(core: Core, run: RequestRun, stage: StageRun, why: str, *, timeout: bool = False) -> None:
    """A worker has had a stage for too long: another try, whose attempt makes the old one void."""
    worker, device = stage.worker, stage.device
    assert worker is not None
    assert device is not None
    core.send(Stop(worker, run.id, stage.id, stage.attempt, "cancel"))
    if strike(core, run, stage, why, "timeout", core.now, timeout=timeout):
        another_try(core, run, stage, worker, device)


def another_try(core: Core, run: RequestRun, stage: StageRun, worker: str, device: str) -> None:
    """Another worker of the device, else another device, else the same again."""
    others = [w for w in core.pool.usable(device, role_of(stage.kind)) if w.id != worker]
    if others:
        stage.target = min(others, key=lambda w: (len(w.attempts) / w.slots, w.id)).id
    elif planning.elsewhere(core, run, stage, device):
        planning.move(core, run, stage, device, "it took too long there")
    else:
        stage.target = worker
