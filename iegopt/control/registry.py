"""Workers come, give signs of life, go away for a moment, come back, drain, and are lost (part R8 of the registry).

Who comes back under the same epoch has gone on working: what it runs is left alone, what it has finished is taken over,
what it never got is sent again, and what is not wanted any more is stopped. Who comes back under another epoch has lost
all that it had.
"""

from __future__ import annotations

from iegopt.control import dispatch, faults, planning, preemption
from iegopt.control.core import Core
from iegopt.control.documents import read
from iegopt.control.messages import (
    AttemptKey,
    Disconnected,
    Draining,
    Failed,
    Finished,
    Forget,
    Heartbeat,
    Introduce,
    Preempted,
    Registered,
    Release,
    Stop,
)
from iegopt.control.pool import Worker
from iegopt.control.progress import running
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State
from iegopt.control.work import request_of, stage_of
from iegopt.errors import SpecError
from iegopt.spec.stage import StageKind

__all__ = ["disconnected", "draining", "expired", "heartbeat", "registered"]

_ENDS = (Finished, Failed, Preempted)


def registered(core: Core, event: Registered) -> None:
    """A worker is there."""
    old = core.pool.workers.get(event.worker)
    if old is None or old.lost_at is not None:
        worker = core.pool.register(event, core.now)
    elif old.epoch != event.epoch:
        worker = core.pool.register(event, core.now)
        faults.process_ended(core, old)
    else:
        worker = old
        worker.away_since, worker.addresses, worker.slots = None, event.addresses, event.slots
        worker.variants, worker.kv_free = event.variants, event.kv_free
    core.timers.clear(("forgotten", worker.id))
    _heard(core, worker)
    _take_over(core, worker, event)
    planning.pool_changed(core)
    core.look_again()


def _take_over(core: Core, worker: Worker, event: Registered) -> None:
    """Compare what a worker has with what it should have."""
    ended: set[AttemptKey] = set()
    for i, data in enumerate(event.finished):
        try:
            message = read(data | {"at": core.now}, f"{worker.id}: finished.{i}")
        except SpecError:
            continue  # whatever it was about is started again below
        if isinstance(message, _ENDS) and message.worker == worker.id:
            core.inbox.append(message)
            ended.add(AttemptKey(message.request_id, message.stage, message.attempt))
    _stop_unwanted(core, worker, event.running, (*(key.request_id for key in ended), *event.holds))
    for (request_id, stage_id), attempt in list(worker.attempts.items()):
        key = AttemptKey(request_id, stage_id, attempt)
        run = core.runs[request_id]
        stage = run.stages[stage_id]
        if key in ended:
            continue
        if key not in event.running:
            core.send(dispatch.start_command(core, run, stage))
        elif stage.state is State.SCHEDULED:
            running(core, run, stage)
        if stage.stopping is not None:
            core.send(Stop(worker.id, request_id, stage_id, attempt, stage.stopping))
    _release_unwanted(core, worker, event.kv, ended)
    dispatch.reserved_again(core, worker)


def _release_unwanted(core: Core, worker: Worker, held: tuple[str, ...], ended: set[AttemptKey]) -> None:
    """Have a worker let go of KV caches that nothing needs from it any more, of requests that go on: it may have been
    away when it was told to."""
    news = {(key.request_id, key.stage) for key in ended}
    for name in held:
        run = core.runs.get(request_of(name))
        stage = run.stages.get(stage_of(name)) if run is not None and not run.over else None
        if run is not None and stage is not None and not _wanted(run, stage, worker, news):
            core.send(Release(worker.id, name))


def _wanted(run: RequestRun, stage: StageRun, worker: Worker, news: set[tuple[str, str]]) -> bool:
    """Whether the KV cache of a stage is booked at a worker, or one that uses it runs there, is to, or just has."""
    users = [user for user in (stage, *run.kv_targets(stage.id)) if user.state is not State.COMPLETED]
    return worker.id in run.kv.holders(stage.id) or any(
        worker.id in (user.worker, user.target) or (run.id, user.id) in news for user in users if not user.withdrawn
    )


def _stop_unwanted(core: Core, worker: Worker, running: tuple[AttemptKey, ...], holds: tuple[str, ...]) -> None:
    """Stop attempts that a worker runs and that are not the present ones; have it forget what was answered while it was
    away, or before KV reached it that was on its way."""
    unwanted = [key for key in running if core.attempt(key, worker.id) is None]
    for key in unwanted:
        core.send(Stop(worker.id, key.request_id, key.stage, key.attempt, "cancel"))
    for request_id in dict.fromkeys((*(key.request_id for key in unwanted), *holds)):
        run = core.runs.get(request_id)
        if run is None or run.over:
            core.send(Forget(worker.id, request_id))


def heartbeat(core: Core, event: Heartbeat) -> None:
    """A sign of life, from a worker that was given up too."""
    worker = core.pool.workers.get(event.worker)
    if worker is None:
        core.send(Introduce(event.worker))
    if worker is None or worker.epoch != event.epoch:
        return
    if worker.lost_at is not None:
        worker.lost_at = worker.gone_at = None
        core.send(Introduce(worker.id))  # what it holds was given up
        core.timers.clear(("forgotten", worker.id))
        planning.pool_changed(core)
        core.look_again()
    if worker.away_since is not None:
        worker.away_since = None
        core.look_again()
    worker.kv_free, worker.variants, worker.load = event.kv_free, event.variants, event.load
    _heard(core, worker)
    _stop_unwanted(core, worker, event.running, event.holds)


def _heard(core: Core, worker: Worker) -> None:
    worker.heard = core.now
    core.pool.is_there(worker.id, core.now)
    core.timers.set(("worker", worker.id), core.now + core.policy.lost_after * core.policy.heartbeat)


def disconnected(core: Core, event: Disconnected) -> None:
    """A connection ended: the worker may come back within its time of grace."""
    worker = core.pool.workers.get(event.worker)
    if worker is None or worker.epoch != event.epoch or worker.lost_at is not None:
        return
    if worker.away_since is None:
        worker.away_since = core.now
        core.timers.set(("worker", worker.id), core.now + core.policy.grace)


def expired(core: Core, name: str) -> None:
    """A worker has been silent or away for too long."""
    worker = core.pool.workers.get(name)
    if worker is not None and worker.lost_at is None:
        faults.lose(core, worker)
        core.look_again()


def draining(core: Core, event: Draining) -> None:
    """A worker gets nothing new; its decodes go elsewhere where they can, the rest is finished."""
    worker = core.pool.workers.get(event.worker)
    if worker is None or worker.lost_at is not None or worker.draining:
        return
    core.pool.drain(worker)
    core.look_again()
    for request_id, stage_id in worker.attempts:
        run = core.runs[request_id]
        stage = run.stages[stage_id]
        movable = stage.kind is StageKind.DECODE and stage.state is not State.SCHEDULED and stage.stopping is None
        if movable and run.ending is None and planning.elsewhere(core, run, stage, worker.device):
            stage.note(core.now, f"leaves {worker.id}, which drains")
            preemption.stop(core, run, stage, "migrate")
            if not core.pool.serves(worker.device, worker.role):
                planning.want_plan(core, run, f"{worker.id} drains")
                stage.waits_for_plan = run.generation + 1
