"""What may start does: requests from the queue, plans that are wanted, stages for which a worker has room."""

from __future__ import annotations

from typing import Any

from iegopt.control import admission, ending, planning, preemption, recovering
from iegopt.control.core import Core
from iegopt.control.line import Urgency, Waiting
from iegopt.control.messages import Dismiss, Release, Reserve, Start
from iegopt.control.pool import Place, Worker, role_of
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import PlannedStage, StageRun
from iegopt.control.states import State
from iegopt.control.work import build_work, kv_id, max_tokens, transfer_of
from iegopt.spec.stage import StageKind

__all__ = ["reserved_again", "settle", "start_command"]

_PREFILLS = (StageKind.PREFILL, StageKind.RE_PREFILL)


def settle(core: Core) -> None:
    """Begin all that the last event has made possible."""
    while core.settle:
        core.settle = False
        admission.admit(core)
        for name in list(core.unplanned):
            planning.ask(core, core.runs[name])
        _start_waiting(core)
        _dismiss(core)


def _start_waiting(core: Core) -> None:
    """Give waiting stages to workers, the most urgent first; where a device is full, make room for them."""
    line = core.line
    while line.fresh or line.stirred:
        fresh, line.fresh = line.fresh, {}
        for who in fresh:
            _stand_in_line(core, who)
        stirred, line.stirred = line.stirred, {}
        for place in stirred:
            _serve(core, place)


def _stand_in_line(core: Core, who: Waiting) -> None:
    """Join the line of the place that the plan gives; without one a new plan brings the stage here again."""
    run = core.runs[who[0]]
    stage = run.stages[who[1]]
    planned = _place(core, run, stage)
    if planned is not None:
        core.line.stand(who, (planned.device, role_of(stage.kind)), urgency(run, stage))


def _serve(core: Core, place: Place) -> None:
    """Start who stands in the line of a place, as far as there are slots."""
    short: list[tuple[Urgency, Waiting]] = []
    shut = False
    while not shut and (entry := core.line.first(place)) is not None:
        request_id, name = entry[1]
        run = core.runs[request_id]
        stage = run.stages[name]
        planned = _place(core, run, stage)
        if planned is None:
            continue
        worker = core.pool.best(*place, stage.target)
        if worker is not None:
            _start(core, run, stage, worker, planned)
        elif not core.pool.serves(*place):
            device, role = place
            planning.want_plan(core, run, f"{device} has no {role} worker for {stage.id}")
            stage.waits_for_plan = run.generation + 1
        else:
            short.append(entry)
            shut = not preemption.make_slot(core, run, *place, len(short))
    for entry in short:
        core.line.back(place, entry)


def urgency(run: RequestRun, stage: StageRun) -> Urgency:
    return run.priority, not stage.resumes, stage.ready_at, run.number, stage.id


def _place(core: Core, run: RequestRun, stage: StageRun) -> PlannedStage | None:
    """Where a stage may start now, ``None`` where it has to wait for a plan or for its next try."""
    if stage.waits_for_plan > run.planned or stage.retry_at > core.now:
        return None
    place = run.plan.get(stage.id)
    if place is None and run.planning is None and run.unplanned_since is None:
        planning.want_plan(core, run, f"stage {stage.id} has no place")
    return place


def _start(core: Core, run: RequestRun, stage: StageRun, worker: Worker, place: PlannedStage) -> None:
    if (
        stage.kind is StageKind.DECODE
        and max_tokens(run, stage) <= len(stage.emitted)
        and not _asks_no_more(run, stage)
    ):
        budget = run.request.dag_constraints.max_token_budget
        ending.reach_limit(core, run, "max_token_budget", f"{run.tokens} tokens are used, allowed {budget}")
        return
    core.waits_no_more(run, stage)
    if stage.state is State.READY:
        stage.step(State.SCHEDULED, core.now, f"on {worker.id}, device {worker.device}")
    else:
        stage.note(core.now, f"is scheduled anew, on {worker.id}, device {worker.device}")
    stage.attempt, stage.ran_before = stage.attempt + 1, stage.ran
    stage.worker, stage.device, stage.variant = worker.id, worker.device, place.variant
    stage.resumes = False
    worker.attempts[run.id, stage.id] = stage.attempt
    run.held[stage.id] = None
    run.touched[worker.id] = None
    if stage.target is not None and stage.target != worker.id:
        if stage.target not in run.kv.holders(stage.id):  # what it wrote there is still to be read
            core.send(Release(stage.target, kv_id(run, stage.id)))
        stage.target = None
    stage.reserved = 0
    if stage.kind in _PREFILLS:
        _reserve(core, run, stage)
    core.send(start_command(core, run, stage))
    recovering.resumed_on(core, run, stage, worker.id)


def _asks_no_more(run: RequestRun, stage: StageRun) -> bool:
    """Whether a decode has all the tokens of its own limit, so that it needs none of the budget."""
    tokens = run.spec(stage.id).tokens
    return tokens is not None and 0 < tokens.output <= len(stage.emitted)


def start_command(core: Core, run: RequestRun, stage: StageRun) -> Start:
    """The start of a stage's present attempt."""
    assert stage.worker is not None
    limits = {"timeout": core.policy.tool_timeout if stage.kind is StageKind.TOOL else None}
    push = _push(core, run, stage) if stage.kind in _PREFILLS else None
    silent = core.pool.silent(core.now, core.policy.heartbeat) - {stage.worker}
    work = build_work(run, stage, stage.worker, core.policy, push, silent)
    return Start(stage.worker, run.id, stage.id, stage.attempt, str(stage.kind), work, limits)


def reserved_again(core: Core, worker: Worker) -> None:
    """Have a worker that was away keep what it may never have heard that it should."""
    for run in core.runs.values():
        for stage in run.stages.values():
            if stage.reserved and stage.target == worker.id and not (run.over or stage.live or stage.withdrawn):
                core.send(Reserve(worker.id, run.id, stage.id, stage.reserved))


def _reserve(core: Core, run: RequestRun, prefill: StageRun) -> None:
    """Keep memory for the decode that follows a prefill."""
    decode = _decode_after(run, prefill)
    place = run.plan.get(decode.id) if decode is not None else None
    if decode is None or place is None:
        return
    workers = core.pool.usable(place.device, "lm")
    target = min(workers, key=lambda w: (w.id != decode.target, len(w.attempts) / w.slots, w.id), default=None)
    if target is None:
        return
    if decode.target is not None and decode.target != target.id:
        core.send(Release(decode.target, kv_id(run, decode.id)))
    decode.target, decode.reserved = target.id, place.memory
    run.touched[target.id] = None
    core.send(Reserve(target.id, run.id, decode.id, place.memory))


def _push(core: Core, run: RequestRun, prefill: StageRun) -> dict[str, Any] | None:
    """Where the KV cache of a prefill is to be streamed: to the worker that keeps memory for the decode."""
    decode = _decode_after(run, prefill)
    target = core.pool.workers.get(decode.target) if decode is not None and decode.target is not None else None
    if target is None or target.lost_at is not None or target.id == prefill.worker:
        return None
    return {
        "worker": target.id, "addresses": target.addresses, "transfer": transfer_of(run, core.policy),
        "patience": core.policy.kv_patience,
    }  # fmt: skip


def _decode_after(run: RequestRun, prefill: StageRun) -> StageRun | None:
    return next((s for s in run.kv_targets(prefill.id) if s.kind is StageKind.DECODE and not s.withdrawn), None)


def _dismiss(core: Core) -> None:
    """Let draining workers go that nothing needs."""
    for worker in [core.pool.workers[name] for name in core.pool.leaving]:
        if worker.attempts or worker.lost_at is not None:
            continue
        if not any(_needs(run, worker.id) for run in core.runs.values() if not run.over):
            core.send(Dismiss(worker.id))
            core.timers.clear(("worker", worker.id))
            core.pool.remove(worker.id)


def _needs(run: RequestRun, worker: str) -> bool:
    """Whether a KV cache that only this worker holds is still to be continued, by its own stage or a following one."""
    return any(
        set(run.kv.holders(name)) == {worker}
        and any(
            stage.state is not State.COMPLETED and not stage.withdrawn
            for stage in (run.stages[name], *run.kv_targets(name))
        )
        for name in run.kv.holdings
    )
