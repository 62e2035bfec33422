"""Check of a batch plan against the snapshot, the policy and the cluster it was made for, in plain loops.

Nothing here comes from the model or the method of replanning: instances, requests, times, shares, memory, limits,
utilities, losses and sums are worked out again from the user's documents, as docs/replanning.md states them. The cost
model of one stage on one device is shared (it is data about hardware, tested on its own).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from iegopt.batch_plans import BatchPlan, QueuedDecision
from iegopt.cost.model import CostModel
from iegopt.devices import Device
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.snapshot import InstanceState, SnapshotSpec
from iegopt.verify.batch_claims import check_claims, check_levels
from iegopt.verify.batch_rules import check_placed, check_refused, check_running, check_uses
from iegopt.verify.consequences import Consequences, Placed, Roads
from iegopt.verify.engine import Engine, engines_of, model_of
from iegopt.verify.report import Report, Violation
from iegopt.verify.stages import ease, stages_of
from iegopt.verify.tenants import check_tenants, holdings_of
from iegopt.verify.waiting import Blocks, Waiting, waiting_of

__all__ = ["check_batch"]


def check_batch(
    plan: BatchPlan, snapshot: SnapshotSpec, policy: BatchPolicy, cluster: ClusterSpec, devices: Mapping[str, Device],
    state: Mapping[str, tuple[float, int]], model: CostModel, count_tokens: Callable[[str], int],
) -> Report:  # fmt: skip
    """Every way in which a plan breaks its snapshot, its policy or the cluster, or misstates itself.

    Parameters
    ----------
    devices, state
        The cluster's devices by id, and what is known of each: (T/T0, free bytes).
    count_tokens
        Of a prompt given as text.

    Returns
    -------
    Report
        Its objective is the sum over the levels; the makespan is when the last placed request ends.
    """
    engines = engines_of(snapshot, policy, cluster, devices, state, model)
    config = policy.kv_transfer_config or cluster.kv_transfer_config
    lost = {}
    for spec in snapshot.instances:
        if spec.state is InstanceState.LOST:
            card, variant = model_of(spec.variant, cluster)
            lost[spec.id] = card, variant.precision
    waiting = {w.id: w for w in waiting_of(snapshot, engines, lost, config, count_tokens)}
    stages = stages_of(snapshot, engines, config)
    broken = [*_complete(plan, snapshot, engines, waiting)]
    if broken:
        return Report(tuple(broken), None, None)
    roads = Roads(cluster, devices, engines, config)
    bases, ladder = ease(stages.values(), engines, policy, roads.seconds)
    paces = {use.id: use.pace for use in plan.instances if use.pace is not None}
    placed = [
        _placed(decision, waiting[decision.id], engines, paces, policy)
        for decision in plan.queue
        if decision.status == "placed"
    ]
    done = {decision.id: decision for decision in plan.running}
    blocks = Blocks(engines, snapshot.block_tokens)
    found = Consequences(engines, stages, bases, blocks, roads, policy, placed, paces, done, ladder)
    memory = sum(max(engine.free, bases[name].memory) for name, engine in engines.items())
    held = holdings_of(plan, found, policy)
    violations = [
        *check_placed(found),
        *check_running(found),
        *check_uses(plan, found),
        *check_refused(plan, waiting, found),
        *check_tenants(plan, snapshot, policy, held, float(memory), len(engines)),
        *check_claims(plan, found),
        *check_levels(plan, found),
    ]
    objective = sum(level.objective for level in plan.levels)
    return Report(tuple(violations), objective, max((one.finish for one in placed), default=0.0))


def _complete(
    plan: BatchPlan, snapshot: SnapshotSpec, engines: Mapping[str, Engine], waiting: Mapping[str, Waiting]
) -> Iterator[Violation]:
    """Every request and running stage once, under its own words, and every name that of something there is."""
    if (plan.snapshot, plan.time) != (snapshot.name, snapshot.time):
        yield Violation("claim", "snapshot", f"{plan.snapshot} at {plan.time}", f"{snapshot.name} at {snapshot.time}")
    running = {stage.id: stage for stage in snapshot.running}
    for kind, wanted, given in (
        ("request", list(waiting), [decision.id for decision in plan.queue]),
        ("stage", list(running), [decision.id for decision in plan.running]),
        ("instance", list(engines), [use.id for use in plan.instances]),
    ):
        times = Counter(given)
        for name in wanted:
            if times[name] != 1:
                yield Violation(kind, name, f"{times[name]} times", "once")
        for name in times.keys() - set(wanted):
            yield Violation(kind, name, "in the plan", f"no such {kind}")
    for decision in plan.queue:
        if decision.id in waiting:
            yield from _decision(decision, waiting[decision.id], engines)
    for act in plan.running:
        if act.id not in running:
            continue
        at = running[act.id].instance
        if act.instance != at:
            yield Violation("claim", f"instance of {act.id}", act.instance, at)
        if (act.action == "requeue") != (at not in engines):
            yield Violation("stage", act.id, act.action, "requeue where its instance is lost, and only there")
        if (act.action == "migrate") != (act.to is not None) or (act.to is not None and act.to not in engines):
            yield Violation("migration", act.id, f"to {act.to}", "an instance that is up, where it migrates")


def _decision(decision: QueuedDecision, request: Waiting, engines: Mapping[str, Engine]) -> Iterator[Violation]:
    """Whether a decision is whole: all or nothing of a place, and a reason where there is none."""
    name = decision.id
    if (decision.tenant, decision.priority) != (request.tenant, request.priority):
        stated, true = f"{decision.tenant} at {decision.priority}", f"{request.tenant} at {request.priority}"
        yield Violation("claim", f"tenant of {name}", stated, true)
    times = (decision.work, decision.start, decision.first_token, decision.transfer, decision.finish)
    if decision.status == "placed":
        for place in (decision.prefill, decision.decode):
            if place not in engines:
                yield Violation("place", name, str(place), "an instance that is up")
        if decision.reason is not None or None in times or decision.path is None:
            yield Violation("request", name, "placed in part", "placed with all its times, or not at all")
        return
    if decision.reason is None:
        yield Violation("request", name, f"{decision.status} without a reason", "a reason")
    figures = (decision.reused, decision.fetched, decision.transferred, decision.memory, decision.utility)
    names = (decision.prefill, decision.decode, decision.pace, decision.reused_from, decision.path)
    if any(x is not None for x in (*times, *names)) or any(figures):
        yield Violation("request", name, f"{decision.status}, with a place", "no place")


def _placed(
    decision: QueuedDecision, request: Waiting, engines: Mapping[str, Engine], paces: Mapping[str, float],
    policy: BatchPolicy,
) -> Placed:  # fmt: skip
    p, q = engines[str(decision.prefill)], engines[str(decision.decode)]
    pace = paces.get(q.id, math.inf) if request.output else 0.0
    window, here = policy.window, p.costs.prefill(request.prompt, 0, request.sequences)
    if 2.0 * here > window:
        able = {id(e.costs): e.costs for e in engines.values() if request.runs_on(e)}
        fastest = min((c.prefill(request.prompt, 0, request.sequences) for c in able.values()), default=0.0)
        window = max(window, 2.0 * fastest)
    return Placed(request, decision, p, q, pace, min(request.ttft, window))
