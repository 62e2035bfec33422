"""Plans: what the planner is asked for, and what its answer changes.

A request has a plan by the time its first stage is placed, and another whenever its devices, its graph or its pace are
not those of the plan. Each has a generation; the answer to an older question is refused. A new plan moves only what no
worker has.
"""

from __future__ import annotations

import math
from typing import Any

from iegopt.control import ending
from iegopt.control.core import Core
from iegopt.control.growth import ahead
from iegopt.control.messages import MakePlan, Planned
from iegopt.control.pool import Expected, role_of
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import PlannedStage, StageRun
from iegopt.control.states import State
from iegopt.spec.graph import GraphSpec
from iegopt.spec.stage import StageKind, StageSpec
from iegopt.units import shown

__all__ = ["ask", "not_up", "pool_changed", "read_plan", "receive", "remaining_graph"]

_POLICIES = (
    "id", "precision", "sla_class", "weights", "objective", "no_overlap", "memory_accounting", "prefer",
    "kv_transfer_config", "fallback_policy",
)  # fmt: skip
"""Parts of a request that a plan of its graph depends on."""
_ASKED = {*_POLICIES, "dag_constraints", "sla"}
_UNLIMITED = "10000h"
_SHOWN = 5
"""Of the workers that are waited for."""


def ask(core: Core, run: RequestRun) -> None:
    """Ask for the plan that a request wants, if there is anything left to place."""
    reason, run.replan = run.replan, None
    core.unplanned.pop(run.id, None)
    graph = remaining_graph(core, run)
    if graph is None:
        _need_no_other(core, run)
    if reason is None or run.ending is not None or graph is None:
        return
    run.generation += 1
    run.planning = run.generation
    run.note(core.now, f"plan {run.generation} is asked for: {reason}")
    core.send(make_plan(core, run, graph, reason))


def make_plan(core: Core, run: RequestRun, graph: GraphSpec, reason: str) -> MakePlan:
    """The question for the generation that is being made."""
    assert run.planning is not None
    run.asked_on = core.pool.devices(run.avoid)
    return MakePlan(
        request_id=run.id, generation=run.planning, graph=graph.document(), request=_policies(run),
        live=dict(run.asked_on), slow=dict(core.pool.slow), reason=reason,
    )  # fmt: skip


def remaining_graph(core: Core, run: RequestRun) -> GraphSpec | None:
    """What is left to run, with the rounds ahead; running stages bound to their device.

    ``None`` where nothing is left to place.
    """
    whole, live = ahead(run, core.cards), core.pool.devices(run.avoid)
    stages: list[StageSpec] = []
    for spec in whole.stages:
        stage = run.stages.get(spec.id)
        if stage is None or not (stage.state is State.COMPLETED or stage.withdrawn):
            if stage is not None and stage.live and stage.stopping is None:
                if stage.device not in live:
                    continue
                spec = spec.model_copy(update={"affinity": spec.affinity.model_copy(update={"device": stage.device})})
            stages.append(spec)
    kept = {spec.id for spec in stages}
    if not any(_open(run, name) for name in kept):
        return None
    stages = [_near_its_kv(run, whole, spec, kept, live) for spec in stages]
    edges = tuple(edge for edge in whole.edges if edge.source in kept and edge.target in kept)
    rules = tuple(rule for rule in whole.affinity if kept.issuperset(rule.stages))
    return whole.model_copy(update={"stages": tuple(stages), "edges": edges, "affinity": rules})


def _open(run: RequestRun, name: str) -> bool:
    stage = run.stages.get(name)
    return stage is None or not stage.live or stage.stopping is not None


def _near_its_kv(
    run: RequestRun, graph: GraphSpec, spec: StageSpec, kept: set[str], live: dict[str, list[str]]
) -> StageSpec:
    """A stage names the device where its KV cache lies, if the stage that wrote it is not in the graph any more."""
    sized = spec.memory.kv_cache_size or (spec.tokens is not None and spec.tokens.context)
    source = next((e.source for e in graph.edges if e.kv and e.target == spec.id and e.source not in kept), None)
    if not sized or spec.affinity.kv_cache_location is not None or not _open(run, spec.id):
        return spec
    held = run.kv.holdings.get(spec.id) or (run.kv.holdings.get(source) if source is not None else None) or ()
    devices = (run.stages[name].device for name in (spec.id, source) if name in run.stages and held)
    device = next((device for device in devices if device in live), None)
    if device is None:
        return spec
    return spec.model_copy(update={"affinity": spec.affinity.model_copy(update={"kv_cache_location": device})})


def _policies(run: RequestRun) -> dict[str, Any]:
    """The request as the planner gets it beside the graph: its policies; its limits in time up to its first plan.

    Later plans make the best of what is left, and the controller itself sees to the limits.
    """
    document = run.request.model_dump(mode="json", by_alias=True, exclude_unset=True, include=_ASKED)
    policies = {name: document[name] for name in _POLICIES if name in document}
    constraints = dict(document.get("dag_constraints", {}))
    policies["dag_constraints"] = constraints
    if run.planned == 0:
        sla = {name: value for name, value in document.get("sla", {}).items() if name != "itl"}
        prefills = any(spec.type is StageKind.PREFILL for spec in run.graph.stages)
        policies["sla"] = sla if prefills else {name: value for name, value in sla.items() if name != "ttft"}
    else:
        constraints["max_compute_time"] = _UNLIMITED
        constraints["termination_policy"] = {**constraints.get("termination_policy", {}), "timeout": _UNLIMITED}
    return policies


def receive(core: Core, event: Planned) -> None:
    """Take a plan over, or see what to do without one."""
    run = core.runs.get(event.request_id)
    if run is None or run.over:
        return
    if event.generation != run.planning:
        run.note(core.now, f"plan {event.generation} is refused: it is of an older question")
        return
    run.planning = None
    core.look_at(run, *run.stages.values())
    plan = read_plan(event.plan)
    if isinstance(plan, str):
        _without_plan(core, run, event.reason if event.plan is None else plan, event.final)
        return
    missing = _unplaced(core, run, plan)
    if missing is not None:
        run.note(core.now, f"plan {event.generation} is refused: {missing}")
        if core.pool.devices(run.avoid) != run.asked_on:
            want_plan(core, run, missing)
        else:  # the same question would have the same answer
            _without_plan(core, run, missing, final=False)
        return
    run.planned = event.generation
    _need_no_other(core, run)
    run.plan |= plan
    assert event.plan is not None
    run.transfers = tuple(event.plan.get("transfers", ()))
    run.note(core.now, f"plan {event.generation} is in force")


def _need_no_other(core: Core, run: RequestRun) -> None:
    """The plan does for now: patience begins anew when another one is missing."""
    run.unplanned_since = None
    core.timers.clear(("patience", run.id))


def read_plan(data: dict[str, Any] | None) -> dict[str, PlannedStage] | str:
    """The places of a plan's document; a sentence where it is none."""
    if data is None:
        return "there is no plan"
    stages = data.get("stages")
    if not isinstance(stages, dict):
        return f"plan.stages: {shown(stages)}: expected a mapping of stages"
    plan: dict[str, PlannedStage] = {}
    for name, place in stages.items():
        try:
            plan[name] = PlannedStage(
                device=str(place["device"]), variant=str(place["variant"]), time=float(place["time"]),
                memory=int(place["memory"]), start=float(place["start"]),
            )  # fmt: skip
        except (KeyError, TypeError, ValueError):
            expected = "device, variant, time, memory and start"
            return f"plan.stages.{name}: {shown(place)}: expected {expected}"
    return plan


def _unplaced(core: Core, run: RequestRun, plan: dict[str, PlannedStage]) -> str | None:
    """Why a plan does not hold for the stages that wait, ``None`` where it does."""
    for stage in run.stages.values():
        if stage.live or stage.withdrawn or stage.state is State.COMPLETED:
            continue
        place = plan.get(stage.id) or run.plan.get(stage.id)
        if place is None:
            return f"stage {stage.id} has no place"
        if not core.pool.serves(place.device, role_of(stage.kind)):
            return f"device {place.device} of stage {stage.id} has no worker for it"
    return None


def _without_plan(core: Core, run: RequestRun, reason: str, final: bool) -> None:
    """The workers of now, fewer rounds ahead, devices avoided so far, the plan before, patience; then the request
    fails."""
    run.note(core.now, f"there is no plan: {reason}")
    if run.unplanned_since is None:
        run.unplanned_since = core.now
    holds = _holds(core, run)
    if final and not holds:
        ending.end(core, run, "failed", f"no plan: {reason}")
    elif core.pool.devices(run.avoid) != run.asked_on and core.now < _patience_ends(core, run):
        want_plan(core, run, "workers have changed meanwhile")  # nobody may come or go again to bring it up
    elif run.lookahead:
        run.lookahead -= 1
        want_plan(core, run, "fewer rounds are planned ahead")
    elif run.avoid:
        run.avoid.clear()
        want_plan(core, run, "devices avoided so far may serve again")
    elif holds:
        run.note(core.now, f"goes on by plan {run.planned}")
        _need_no_other(core, run)
    else:
        _wait_for_workers(core, run, reason)


def _holds(core: Core, run: RequestRun) -> bool:
    """Whether all that is left may run by the plan there is: another was asked for only because it might be better."""
    left = (s for s in run.stages.values() if not (s.withdrawn or s.state is State.COMPLETED))
    return run.planned > 0 and all(s.waits_for_plan <= run.planned for s in left) and _unplaced(core, run, {}) is None


def _wait_for_workers(core: Core, run: RequestRun, reason: str) -> None:
    """Ask again whenever workers come or go, until patience ends; longer where some are still to come up."""
    until = _patience_ends(core, run)
    if core.now >= until:
        ending.end(core, run, "failed", f"no plan: {reason}{not_up(core, run)}")
        return
    missed = _missed(core, run)
    run.note(core.now, f"waits for a plan for up to {until - core.now:g} s{f', and for {missed}' if missed else ''}")
    core.timers.set(("patience", run.id), until)


def _patience_ends(core: Core, run: RequestRun) -> float:
    """Up to when a plan is waited for. One who has just come, or is to, may be what it takes."""
    policy, sla = core.policy, run.request.sla
    assert run.unplanned_since is not None
    limits = [limit for limit in (sla.ttft, sla.e2e) if limit is not None and run.planned == 0]
    longest = run.submitted + min(limits, default=math.inf)
    ends = [run.unplanned_since + policy.plan_patience]
    for worker in _needed(core, run).values():
        if worker.since is None:
            ends.append(worker.came + policy.plan_patience)
        else:
            ends.append(min(longest, worker.since + policy.startup_grace))
    return max(ends)


def _needed(core: Core, run: RequestRun) -> dict[str, Expected]:
    """The cluster's workers of a role that a request still needs."""
    left = (s for s in run.stages.values() if not (s.withdrawn or s.state is State.COMPLETED))
    roles = {role_of(stage.kind) for stage in left}
    return {name: worker for name, worker in core.pool.expected.items() if worker.role in roles}


def not_up(core: Core, run: RequestRun) -> str:
    """Which workers a request without a plan waits for, to follow a reason; empty where there are none."""
    missed = _missed(core, run)
    if not missed or run.unplanned_since is None:
        return ""
    return f"; {core.now - run.unplanned_since:.1f} s were waited for workers that did not come up: {missed}"


def _missed(core: Core, run: RequestRun) -> str:
    names = [name for name, worker in _needed(core, run).items() if worker.since is not None]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"{', '.join(names[:_SHOWN])}{more}"


def pool_changed(core: Core) -> None:
    """Workers came or went: requests without a plan ask again."""
    for run in core.runs.values():
        if run.unplanned_since is not None and run.planning is None and not run.over and run.replan is None:
            want_plan(core, run, "workers have changed")


def out_of_patience(core: Core, run: RequestRun) -> None:
    """Ask a last time."""
    if run.unplanned_since is not None and run.planning is None and run.replan is None:
        want_plan(core, run, "a last time")


def move(core: Core, run: RequestRun, stage: StageRun, device: str, why: str) -> None:
    """Have a stage placed on another device than this one."""
    run.avoid[device] = why
    want_plan(core, run, f"{stage.id} leaves {device}: {why}")
    stage.waits_for_plan = run.generation + 1


def want_plan(core: Core, run: RequestRun, reason: str) -> None:
    """Have a new plan made when the present event has been dealt with."""
    run.replan = run.replan or reason
    core.unplanned[run.id] = None
    core.settle = True


def elsewhere(core: Core, run: RequestRun, stage: StageRun, device: str | None) -> bool:
    """Whether another device could run a stage."""
    live = core.pool.devices((*run.avoid, device or ""))
    return any(role_of(stage.kind) in roles for roles in live.values())
