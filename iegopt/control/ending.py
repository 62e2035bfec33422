"""How a request ends: when its graph is done, or before, with what it has yielded and the reason (section 5.3).

Where a limit is reached, what runs is finished, what waits is cancelled, and the partial result is answered with the
reason. Where ``graceful_stop`` is off, and where the client cancels, what runs is stopped as well.
"""

from __future__ import annotations

from iegopt.control.answer import refusal, write_answer
from iegopt.control.core import Core
from iegopt.control.messages import Answer, Forget, Stop
from iegopt.control.request_run import Ending, RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State

__all__ = ["abandon", "end", "finish_if_done", "reach_limit", "refuse"]


def refuse(core: Core, request_id: str, reason: str) -> None:
    """Answer a request that is not begun; nothing of it is kept but the answer, for its client."""
    core.timers.set(("answered", request_id), core.now + core.policy.answer_kept)
    core.send(Answer(request_id, refusal(request_id, reason)))


def reach_limit(core: Core, run: RequestRun, limit: str, reason: str) -> None:
    """A limit of ``dag_constraints``: end with a partial result."""
    graceful = run.request.dag_constraints.termination_policy.graceful_stop
    end(core, run, "partial", reason, limit, stop=not graceful)


def end(core: Core, run: RequestRun, status: str, reason: str, limit: str | None = None, *, stop: bool = False) -> None:
    """End a request early. The first reason counts; a later one may still stop what runs."""
    if run.over:
        return
    if run.ending is None:
        run.ending = Ending(status, reason, limit)
        run.note(core.now, f"ends ({status}): {reason}")
        core.timers.set(("grace", run.id), core.now + core.policy.stop_grace)
    run.replan, run.planning = None, None
    for stage in run.stages.values():
        if stage.live and (stop or stage.state is State.SCHEDULED):
            abandon(core, run, stage, run.ending.reason)
        elif not stage.live:
            withdraw(core, run, stage)
    finish_if_done(core, run)


def withdraw(core: Core, run: RequestRun, stage: StageRun) -> None:
    """A stage that no worker has will not run any more."""
    if stage.state not in (State.COMPLETED, State.TERMINAL) and not stage.withdrawn:
        stage.withdrawn = True
        stage.note(core.now, "is cancelled: it waited")
    core.waits_no_more(run, stage)


def abandon(core: Core, run: RequestRun, stage: StageRun, why: str) -> None:
    """Take a stage from its worker for good."""
    assert stage.worker is not None
    core.send(Stop(stage.worker, run.id, stage.id, stage.attempt, "cancel"))
    if stage.state is not State.SCHEDULED:
        stage.runs(core.now)
        stage.step(State.FAILED, core.now, f"stopped: {why}")
        stage.retries = core.policy.max_retries
        stage.step(State.TERMINAL, core.now)
    core.release_slot(run, stage)
    withdraw(core, run, stage)


def finish_if_done(core: Core, run: RequestRun) -> None:
    """Answer a request whose stages have all completed, or that ends and has none running."""
    if run.over:
        return
    done = all(stage.state is State.COMPLETED for stage in reversed(run.stages.values()))  # the last ends last
    if done or (run.ending is not None and not any(run.live())):
        _answer(core, run)


def _answer(core: Core, run: RequestRun) -> None:
    run.answer = write_answer(run, core.now)
    run.note(core.now, f"is answered: {run.answer['status']}")
    for names in (core.queued, core.flying, core.unplanned):
        names.pop(run.id, None)
    core.send(Answer(run.id, run.answer))
    for worker in run.touched:
        core.send(Forget(worker, run.id))
    core.timers.clear(*((kind, run.id) for kind in ("timeout", "compute", "grace", "patience")))
    core.timers.clear(*(("retry", run.id, stage) for stage in run.stages))
    core.timers.set(("answered", run.id), core.now + core.policy.answer_kept)
    core.settle = True
