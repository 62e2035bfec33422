"""Preemption (section 5.4): a decode of lower priority makes room where a higher one is planned on a full device.

It stops between two tokens, keeps its KV cache on its worker, and goes on from there: next (``resume_policy:
immediate``) or after those that wait already (``queued``).
"""

from __future__ import annotations

from collections.abc import Iterable

from iegopt.control import ending
from iegopt.control.core import Core
from iegopt.control.messages import Preempted, Release, Stop
from iegopt.control.pool import Worker
from iegopt.control.request_run import RequestRun
from iegopt.control.results import read_kv
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State
from iegopt.control.work import kv_id
from iegopt.errors import SpecError
from iegopt.spec.stage import StageKind

__all__ = ["make_memory", "make_slot", "preempted", "stop", "watch_stopping"]


def make_slot(core: Core, run: RequestRun, device: str, role: str, waiting: int) -> bool:
    """Preempt one decode on a device for the n-th stage that waits for it, unless as many are stopping already.

    Returns
    -------
    bool
        Whether there will be a slot for it.
    """
    workers = core.pool.usable(device, role)
    stopping = sum(stage.stopping is not None for _, stage in _on(core, workers))
    return stopping >= waiting or _preempt(core, run, workers, "a slot")


def make_memory(core: Core, run: RequestRun, worker: str) -> None:
    """Preempt one decode on a worker that has no memory for a stage of a more urgent request."""
    found = core.pool.workers.get(worker)
    if found is not None and not any(stage.stopping is not None for _, stage in _on(core, [found])):
        _preempt(core, run, [found], "memory")


def _on(core: Core, workers: Iterable[Worker]) -> list[tuple[RequestRun, StageRun]]:
    return [(core.runs[r], core.runs[r].stages[s]) for worker in workers for r, s in worker.attempts]


def _preempt(core: Core, run: RequestRun, workers: list[Worker], need: str) -> bool:
    """Whether there was a decode to preempt."""
    config = core.policy.preemption
    if not config.enabled:
        return False
    candidates = [
        (victim, stage)
        for victim, stage in _on(core, workers)
        if victim.priority - run.priority >= config.min_priority_gap
        and victim.preemptions < config.max_preempt_per_request
        and victim.ending is None
        and _worth_it(core, victim, stage)
    ]
    if not candidates:
        return False
    victim, stage = max(candidates, key=lambda c: (c[0].priority, c[1].began or 0.0, c[0].number, c[1].id))
    victim.preemptions += 1
    stage.note(core.now, f"gives way to {run.id}, which needs {need}")
    stop(core, victim, stage, "preempt")
    return True


def _worth_it(core: Core, run: RequestRun, stage: StageRun) -> bool:
    """A decode at work that is not about to end by its plan."""
    if stage.kind is not StageKind.DECODE or stage.stopping is not None:
        return False
    place, ran = run.plan.get(stage.id), stage.run_time(core.now)
    nearly_done = place is not None and 0 <= place.time - ran <= core.policy.preemption.preemption_overhead
    return stage.state in (State.RUNNING, State.BLOCKED) and not nearly_done


def stop(core: Core, run: RequestRun, stage: StageRun, how: str) -> None:
    """Ask a worker to stop a decode and keep its KV cache; it has a time of grace to do so, as long as it is heard."""
    assert stage.worker is not None
    stage.stopping, stage.stop_by = how, core.now + core.policy.stop_grace
    watch_stopping(core, run, stage)
    core.send(Stop(stage.worker, run.id, stage.id, stage.attempt, how))


def watch_stopping(core: Core, run: RequestRun, stage: StageRun) -> None:
    """Wake up when a stage is to have stopped, or when its worker is silent before that."""
    assert stage.worker is not None
    silent = core.pool.workers[stage.worker].overdue_at(core.policy.heartbeat)
    core.timers.set(("stop", run.id, stage.id), silent if core.now < silent < stage.stop_by else stage.stop_by)


def preempted(core: Core, event: Preempted) -> None:
    """A decode has stopped between two tokens: it is ready to go on."""
    found = core.attempt(event, event.worker)
    if found is None:
        return
    run, stage = found
    how, worker = stage.stopping, event.worker
    stage.runs(core.now)
    stage.measured(event.seconds, core.now)
    stage.step(State.PREEMPTED, core.now, how or "")
    _keep_kv(core, run, stage, event)
    core.release_slot(run, stage)
    if run.ending is not None:
        ending.withdraw(core, run, stage)
        ending.finish_if_done(core, run)
        return
    stage.step(State.READY, core.now)
    stage.resumes = how != "migrate" and core.policy.preemption.resume_policy == "immediate"
    stage.target = stage.target if how == "migrate" else worker
    core.wait(run, stage)


def _keep_kv(core: Core, run: RequestRun, stage: StageRun, event: Preempted) -> None:
    worker = core.pool.workers.get(event.worker)
    if event.kv is None or worker is None:
        return
    try:
        kv = read_kv(event.kv, f"{event.worker}: {run.id}/{stage.id}")
    except SpecError as error:
        stage.note(core.now, f"its KV cache is not usable: {error}")
        return
    for old in run.kv.write(stage.id, worker.id, worker.addresses, kv, None):
        core.send(Release(old, kv_id(run, stage.id)))
