"""Lost workers: how wide the fault is, what went with it, what has to be done again (section 8 of the source).

Only what was lost is done again: stages that ran there, and the KV caches that lie nowhere else. Results of stages that
have completed are kept by the controller.

A fault is as wide as the widest group all of whose workers went together: a rack or data centre of two devices or more.
"""

from __future__ import annotations

from collections.abc import Callable

from iegopt.control import ending, planning, recovering
from iegopt.control.core import Core
from iegopt.control.failing import strike
from iegopt.control.pool import Worker, role_of
from iegopt.control.recovery import LEVELS
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State

__all__ = ["Fault", "forget_old", "lose", "process_ended", "width"]

Fault = tuple[str, list[Worker]]
"""A cause of ``recovery.LEVELS``, and all workers that went with it."""

_ALONE = ("process", "device")
"""Faults for which a stage may be the cause."""

_KEPT = 60.0
"""Seconds for which a lost worker is remembered."""


def width(core: Core, worker: Worker) -> Fault:
    """How wide the fault is that took a worker."""
    policy = core.policy
    since = policy.fault_window + policy.heartbeat

    def gone(other: Worker) -> bool:
        if other.id == worker.id:
            return True
        if other.lost_at is not None:
            return True  # a member only where it went lately
        return other.away_since is not None or other.is_silent(core.now, policy.heartbeat)

    def lately(other: Worker) -> bool:
        return other.lost_at is None or abs((other.gone_at or 0.0) - _gone_at(worker)) <= since

    members = [other for other in core.pool.workers.values() if lately(other)]
    device = [w for w in members if w.device == worker.device]
    rack = [w for w in members if w.place[:2] == worker.place[:2]]
    centre = [w for w in members if w.place[0] == worker.place[0]]
    wide = _all_of(gone)
    if wide(centre) and (len(centre) > len(rack) or len(members) > len(centre)):
        return "datacenter", centre
    if wide(rack):
        return "rack", rack
    served = any(w.role == worker.role and not gone(w) for w in device)
    return ("process" if served else "device"), [worker]


def _all_of(gone: Callable[[Worker], bool]) -> Callable[[list[Worker]], bool]:
    return lambda group: len({w.device for w in group}) > 1 and all(map(gone, group))


def _gone_at(worker: Worker) -> float:
    """When a worker ended, as far as can be told."""
    if worker.gone_at is not None:
        return worker.gone_at
    return worker.away_since if worker.away_since is not None else worker.heard


def lose(core: Core, worker: Worker) -> None:
    """Give up a worker, and all that went with it."""
    cause, group = width(core, worker)
    lost = [w for w in group if w.lost_at is None]
    for one in lost:
        one.gone_at, one.lost_at = _gone_at(one), core.now
        core.pool.is_missed(one.id, core.now)
        core.timers.clear(("worker", one.id))
        core.timers.set(("forgotten", one.id), core.now + _KEPT)
    _struck(core, lost, cause, files=LEVELS[cause] >= LEVELS["rack"])
    for run in core.runs.values():
        for recovery in run.recoveries:
            if recovery.ended is None and recovery.worker in {w.id for w in group}:
                recovery.widen(cause)
    planning.pool_changed(core)


def process_ended(core: Core, old: Worker) -> None:
    """A worker is there again as a new process: all that the old one had in memory is lost."""
    old.gone_at = _gone_at(old)
    _struck(core, [old], "process", files=False)


def forget_old(core: Core, name: str) -> None:
    """A worker that was lost long ago belongs to no group any more."""
    worker = core.pool.workers.get(name)
    if worker is not None and worker.lost_at is not None:
        core.pool.remove(name)


def _struck(core: Core, lost: list[Worker], cause: str, *, files: bool) -> None:
    names = {worker.id for worker in lost}
    for run in [run for run in core.runs.values() if not run.over]:
        for name in run.kv.lose(names, files=files):
            _kv_lost(core, run, name, cause, lost)
        for stage in run.stages.values():
            if stage.target in names:
                stage.target = None
    for worker in lost:
        for request_id, stage_id in list(worker.attempts):
            run = core.runs[request_id]
            stage = run.stages[stage_id]
            if stage.live and stage.worker == worker.id:  # the end of its request may have taken it away meanwhile
                _stage_lost(core, run, stage, worker, cause)
    for run in [run for run in core.runs.values() if not run.over and run.ending is None]:
        _places_lost(core, run)


def _stage_lost(core: Core, run: RequestRun, stage: StageRun, worker: Worker, cause: str) -> None:
    """The attempt of a stage went with its worker."""
    since = _gone_at(worker)
    why = f"worker {worker.id} is lost ({cause})"
    stage.losses += cause in _ALONE  # one that ends its worker at once has not always been heard to run
    if stage.state is not State.SCHEDULED:
        ends_them = stage.losses > core.policy.max_losses
        if ends_them:
            why = f"{why}, as were {stage.losses - 1} others that had it"
        strike(core, run, stage, why, cause, since, counted=False, permanent=ends_them)
        return
    core.release_slot(run, stage)
    stage.note(core.now, f"{why} before it began")
    if run.ending is not None:
        ending.withdraw(core, run, stage)
        ending.finish_if_done(core, run)
        return
    recovering.begin(core, run, stage, cause, since, worker.id)
    core.wait(run, stage)


def _kv_lost(core: Core, run: RequestRun, name: str, cause: str, lost: list[Worker]) -> None:
    """A copy of a KV cache is gone; where it was the last, whoever continues it has to compute it again."""
    if run.kv.holdings.get(name) or run.ending is not None:
        return
    worker = lost[0]
    for stage in run.kv_targets(name):
        if stage.state is not State.COMPLETED and not stage.live:
            stage.note(core.now, f"the KV cache of {name} is lost with {worker.id}")
            recovering.begin(core, run, stage, cause, _gone_at(worker), worker.id)


def _places_lost(core: Core, run: RequestRun) -> None:
    """Stages that were to run on a device which nobody serves any more need another place."""
    for stage in run.stages.values():
        place = run.plan.get(stage.id)
        if place is None or stage.live or stage.withdrawn or stage.state is State.COMPLETED:
            continue
        if not core.pool.serves(place.device, role_of(stage.kind)):
            planning.want_plan(core, run, f"device {place.device} is lost")
            stage.waits_for_plan = run.generation + 1
