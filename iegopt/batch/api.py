"""``replan``: a queue planned at once."""

from __future__ import annotations

import math
import time

from iegopt.batch.answer import LevelBound, to_plan
from iegopt.batch.arguments import check_milliseconds, check_type
from iegopt.batch.build import build_model
from iegopt.batch.confirm import confirm
from iegopt.batch.levels import SMALL, Search
from iegopt.batch.resume import resumed
from iegopt.batch.tail import Tail
from iegopt.batch_plans import BatchPlan
from iegopt.errors import InputError
from iegopt.problem.cluster import CompiledCluster
from iegopt.solvers.clock import Clock
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.snapshot import PlannedSpec, SnapshotSpec

__all__ = ["DEFAULT_TIME_LIMIT", "after", "replan"]

DEFAULT_TIME_LIMIT = 5.0
"""Seconds a plan may take where the caller sets no deadline."""
SHORT = 4e-3
"""Seconds a request below which a first plan is made by itself, since the search may not come to one."""


def replan(
    snapshot: SnapshotSpec,
    cluster: CompiledCluster,
    policy: BatchPolicy | None = None,
    *,
    deadline_ms: float | None = None,
    previous: BatchPlan | None = None,
    tail: Tail | None = None,
) -> BatchPlan:
    """Plan the queue of a snapshot.

    Parameters
    ----------
    deadline_ms
        Milliseconds until the best plan so far is wanted, reading the snapshot included; without, five seconds.
    previous
        The plan before: what it placed and still waits is planned there, where the snapshot does not say so itself.
    tail
        What the answer after the search takes, learnt from plan to plan by who plans again and again; by itself a call
        depends on none before it.

    Raises
    ------
    InputError
        Naming the entry that does not fit the cluster; a snapshot from before the previous plan.
    TypeError
        An argument of another type.
    """
    check_type("snapshot", snapshot, SnapshotSpec, made_by="iegopt.load_snapshot reads one")
    check_type("policy", policy, BatchPolicy, optional=True, made_by="iegopt.load_policy reads one")
    check_type("previous", previous, BatchPlan, optional=True)
    check_milliseconds("deadline_ms", deadline_ms)
    if deadline_ms is not None and not (math.isfinite(deadline_ms) and deadline_ms >= 0):
        raise InputError(f"deadline_ms {deadline_ms}: expected a number of milliseconds, at least 0")
    clock = Clock(DEFAULT_TIME_LIMIT if deadline_ms is None else deadline_ms / 1000, time.perf_counter())
    if previous is not None:
        snapshot = after(previous, snapshot)
    policy = policy if policy is not None else BatchPolicy()
    tail = Tail() if tail is None else tail
    model = build_model(cluster, snapshot, policy)
    # What follows the search takes its time too: the answer and its verification.
    search = Search(model, clock.slice(clock.left - tail.seconds(model, 0)))
    if previous is not None and model.N * model.J <= SMALL:  # a larger one takes its places one by one, by the clock
        search.offer(resumed(model, previous))
    if clock.limit < SHORT * model.N:
        search.begin(tail.each)
    search.clock = clock.slice(clock.left - tail.seconds(model, int((search.best.prefill >= 0).sum())))
    search.run()
    begun = clock.seconds
    bounds = {level: LevelBound(value, search.bounds.proof[level]) for level, value in search.bounds.value.items()}
    note = _note(search, clock)
    plan = to_plan(
        model, search.best, search.outcome, solver="prices", seconds=clock.seconds, bounds=bounds, note=note
    )  # fmt: skip
    confirm(plan, snapshot, policy, cluster)
    tail.learn(model, int((search.best.prefill >= 0).sum()), clock.seconds - begun)
    return plan


def _note(search: Search, clock: Clock) -> str:
    """What a search that ended before it was through leaves open."""
    if search.clock.left > 0.0:
        return ""
    return (
        f"the {clock.limit:.3g} s were up before the search was through: more time may place more, and bound it closer"
    )


def after(previous: BatchPlan, snapshot: SnapshotSpec) -> SnapshotSpec:
    """The snapshot with the places that the plan before gave to requests that still wait.

    Raises
    ------
    InputError
        The clock ran backwards.
    """
    if snapshot.time < previous.time:
        raise InputError(
            f"snapshot.time: {snapshot.time:g}s is before the {previous.time:g}s of the plan before: the clock ran "
            "backwards"
        )
    up = {instance.id for instance in snapshot.instances}
    places = {
        decision.id: PlannedSpec(prefill=decision.prefill, decode=decision.decode)
        for decision in previous.queue
        if decision.prefill in up and decision.decode in up and decision.prefill and decision.decode
    }
    queue = tuple(
        queued.model_copy(update={"planned": places[queued.id]})
        if queued.planned is None and queued.id in places
        else queued
        for queued in snapshot.queue
    )
    return snapshot.model_copy(update={"queue": queue})
