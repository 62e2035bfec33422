"""Online rescheduling (section 5.3): what is done when a stage takes longer than planned, or than it may.

A slow decode moves to another device with its KV cache, any other slow stage gets another try; what has not started is
planned anew with the device's measured pace.
"""

from __future__ import annotations

from iegopt.control import ending, failing, planning, preemption, recovering
from iegopt.control.core import Core
from iegopt.control.pool import role_of
from iegopt.control.progress import watch_compute_time, watch_pace
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import StageRun
from iegopt.control.states import State
from iegopt.spec.stage import StageKind

__all__ = ["blocked_too_long", "compute_time_used", "grace_over", "slow", "timed_out", "will_not_stop"]


def slow(core: Core, run: RequestRun, stage: StageRun) -> None:
    """A stage has run for much longer than planned."""
    place, device, worker = run.plan.get(stage.id), stage.device, stage.worker
    if place is None or device is None or worker is None or stage.state is not State.RUNNING:
        return
    took = stage.attempt_time(core.now)
    first = device not in core.pool.slow
    core.pool.slow[device] = took / max(place.time, 1e-9)
    stage.note(core.now, f"is slow: {took:.3f} s, planned {place.time:.3f} s")
    if run.ending is not None or stage.stopping is not None:
        return
    others = [w for w in core.pool.usable(device, role_of(stage.kind)) if w.id != worker]
    elsewhere = planning.elsewhere(core, run, stage, device)
    may_retry = (others or elsewhere) and stage.retries < core.policy.max_retries
    if may_retry and core.pool.workers[worker].is_silent(core.now, core.policy.heartbeat):
        failing.take_away(core, run, stage, f"slow: {took:.3f} s, planned {place.time:.3f} s, and {worker} is silent")
    elif stage.kind is StageKind.DECODE and elsewhere and stage.moves < core.policy.max_migrations:
        stage.moves += 1
        recovering.begin(core, run, stage, "slow", core.now, worker)
        preemption.stop(core, run, stage, "migrate")
        planning.move(core, run, stage, device, "it is slow there")
    elif stage.kind is not StageKind.DECODE and may_retry:
        failing.take_away(core, run, stage, f"slow: {took:.3f} s, planned {place.time:.3f} s")
    else:
        watch_pace(
            core, run, stage, patience=2 * took / max(core.policy.slow_floor, core.policy.slow_factor * place.time)
        )
    if first:
        planning.want_plan(core, run, f"{device} is slow")


def blocked_too_long(core: Core, run: RequestRun, stage: StageRun) -> None:
    """BLOCKED -> FAILED."""
    if stage.state is State.BLOCKED:
        why = f"blocked for {core.policy.block_timeout:g} s"
        failing.take_away(core, run, stage, why, timeout=True)


def will_not_stop(core: Core, run: RequestRun, stage: StageRun) -> None:
    """A worker was asked to stop a stage and did not."""
    if not stage.live or stage.stopping is None or stage.worker is None:
        return
    if core.now >= stage.stop_by:
        failing.take_away(core, run, stage, f"did not stop within {core.policy.stop_grace:g} s")
    elif core.pool.workers[stage.worker].is_silent(core.now, core.policy.heartbeat):
        failing.take_away(core, run, stage, f"{stage.worker} is silent and does not stop it")
    else:
        preemption.watch_stopping(core, run, stage)


def compute_time_used(core: Core, run: RequestRun) -> None:
    """The limit ``max_compute_time``, as measured."""
    limit, used = run.request.dag_constraints.max_compute_time, run.compute_time(core.now)
    if used + 1e-6 < limit:
        watch_compute_time(core, run)
    else:
        ending.reach_limit(core, run, "max_compute_time", f"stages ran for {used:.3f} s, allowed {limit:g} s")


def timed_out(core: Core, run: RequestRun) -> None:
    """The limit ``termination_policy.timeout``, from the submission on."""
    limit = run.request.dag_constraints.termination_policy.timeout
    over = f"{core.now - run.submitted:.3f} s are over, allowed {limit:g} s"
    ending.reach_limit(core, run, "timeout", f"{over}{planning.not_up(core, run)}")


def grace_over(core: Core, run: RequestRun) -> None:
    """What still runs of a request that ends is stopped."""
    if run.ending is not None:
        ending.end(core, run, run.ending.status, run.ending.reason, stop=True)
