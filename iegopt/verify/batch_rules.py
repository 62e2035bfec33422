"""The rules of replanning, held against what follows from a plan."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from iegopt.batch_plans import BatchPlan, RunningDecision
from iegopt.verify.consequences import Consequences, Placed
from iegopt.verify.engine import Engine
from iegopt.verify.report import Violation
from iegopt.verify.stages import Stage
from iegopt.verify.waiting import Waiting

__all__ = ["check_placed", "check_refused", "check_running", "check_uses", "late"]

_ROUNDING = 1e-8
"""Of a limit, or seconds where it is shorter than one: by so much sums in another order differ."""

_SHORT = frozenset({"ttft", "e2e", "itl", "memory", "batch", "context", "quota", "fairness"})
"""Reasons that say what a request needs and that it is more than there is."""


def late(moment: float, limit: float) -> bool:
    """Whether a moment misses a limit by more than rounding."""
    return moment > limit + _ROUNDING * max(1.0, abs(limit)) if limit < math.inf else False


def check_placed(found: Consequences) -> Iterator[Violation]:
    """Places and limits of what is placed."""
    for one in found.placed:
        request, p, q = one.request, one.p, one.q
        wrong = _wrong_place(one)
        if wrong is not None:
            yield Violation("place", request.id, f"prefill on {p.id}, decode on {q.id}", wrong)
        for rule, moment, limit in (
            ("ttft", one.end, one.prefill_by),
            ("e2e", one.finish, request.e2e),
            ("itl", one.pace, min(request.itl, found.policy.paces[-1])),
        ):
            if late(moment, limit):
                yield Violation(rule, request.id, moment, limit)


def _wrong_place(one: Placed) -> str | None:
    """What a place lacks."""
    request, p, q = one.request, one.p, one.q
    if not (p.open and q.open):
        return "instances that take something new"
    if not p.prefills:
        return "an instance that prefills"
    if not (q.decodes if request.output else p is q):
        return "an instance that decodes" if request.output else "no other instance: it decodes nothing"
    if not request.runs_on(p):
        return "an instance of its model and precision"
    return None if p.like(q) else "instances of one model and precision"


def check_running(found: Consequences) -> Iterator[Violation]:
    """Limits of what runs, whom it gives way to, and where it moves."""
    first = _first_places(found)
    for stage in found.stages.values():
        decision = found.done[stage.id]
        if decision.action == "preempt":
            yield from _preemption(found, stage, decision, first)
            continue
        where = found.decoding[stage.id]
        if decision.action == "migrate":
            fine = found.policy.migration and not stage.is_prefill and where is not stage.at
            if not (fine and where.open and where.decodes and where.like(stage.at)):
                allowed = "leave to move, and another instance of its model that decodes and takes something new"
                yield Violation("migration", stage.id, f"to {where.id}", allowed)
                continue
        if stage.is_prefill:
            end = found.stage_end[stage.id]
            if late(end, stage.prefill_by):
                yield Violation("ttft", stage.id, end, stage.prefill_by)
            if late(end + found.after(stage), stage.finish_by):
                yield Violation("e2e", stage.id, end + found.after(stage), stage.finish_by)
        pace = found.paces.get(where.id, math.inf)
        if stage.output and not found.aside(stage).misses and late(pace, stage.itl):
            yield Violation("itl", stage.id, pace, stage.itl)


def _first_places(found: Consequences) -> dict[str, list[Placed]]:
    """Instance -> the placed requests that prefill or decode there."""
    places: dict[str, list[Placed]] = {}
    for one in found.placed:
        for name in {one.p.id, one.q.id}:
            places.setdefault(name, []).append(one)
    return places


def _preemption(
    found: Consequences, stage: Stage, decision: RunningDecision, places: Mapping[str, list[Placed]]
) -> Iterator[Violation]:
    config = found.policy.preemption_config
    if not config.enabled:
        yield Violation("preemption", stage.id, "put aside", "preemption is not enabled")
    if stage.spec.preempted >= config.max_preempt_per_request:
        used = f"put aside for the {stage.spec.preempted + 1}. time"
        yield Violation("preemption", stage.id, used, f"{config.max_preempt_per_request} times at most")
    most = stage.spec.priority - config.min_priority_gap
    there = [one for name in {stage.at.id, stage.to.id} for one in places.get(name, ())]
    if not any(one.request.id == decision.by and one.request.priority <= most for one in there):
        allowed = f"a request of priority {most} or before that is placed on its instance"
        yield Violation("preemption", stage.id, f"in favour of {decision.by}", allowed)


def check_uses(plan: BatchPlan, found: Consequences) -> Iterator[Violation]:
    """Capacities of instances, and what the plan states of them."""
    for use in plan.instances:
        engine, base, load = found.engines[use.id], found.bases[use.id], found.loads[use.id]
        free = max(engine.free, base.memory)
        # What runs may exceed what there is; once anything is added, what there is holds.
        room = engine.free if load.takes_more else free
        most = engine.spec.max_batch if load.decodes_more else max(engine.spec.max_batch, base.sequences)
        if load.memory > room:
            yield Violation("memory", use.id, load.memory, room)
        if load.sequences > most:
            yield Violation("batch", use.id, load.sequences, most)
        known = use.pace is not None and any(math.isclose(use.pace, pace, rel_tol=1e-9) for pace in found.ladder)
        if (use.pace is not None) != bool(load.sequences) or not (known or use.pace is None):
            allowed = f"one of {', '.join(f'{pace:g}' for pace in found.ladder)}" if load.sequences else "none"
            yield Violation("pace", use.id, str(use.pace), allowed)
        if load.sequences and load.speed < -_ROUNDING:
            yield Violation("time", use.id, load.share + base.other, 1.0)
        for what, claimed, true in (
            ("decode share", use.decode_share, load.share),
            ("other share", use.other_share, base.other),
            ("prefill seconds", use.prefill_seconds, load.prefill_seconds),
            ("memory", use.memory, load.memory),
            ("free memory", use.free, free),
            ("sequences", use.sequences, load.sequences),
        ):
            exact = isinstance(true, int)
            if claimed != true and (exact or abs(claimed - true) > _ROUNDING * abs(true) + 1e-12):
                yield Violation("claim", f"{what} of {use.id}", claimed, true)


def check_refused(plan: BatchPlan, waiting: Mapping[str, Waiting], found: Consequences) -> Iterator[Violation]:
    """Requests that are refused although they would keep their limits alone from the next replan on, and reasons that
    are none: what is said to be short is enough."""
    kinds = _alike(found.engines.values())
    for decision in plan.queue:
        reason = decision.reason
        if (
            reason is not None
            and reason.rule in _SHORT
            and reason.need is not None
            and reason.have is not None
            and reason.need <= reason.have
        ):
            yield Violation("reason", decision.id, f"{reason.rule}: it needs {reason.need}", f"more than {reason.have}")
        if decision.status == "refused":
            where = _alone(waiting[decision.id], kinds, found)
            if where is not None:
                yield Violation("refusal", decision.id, "refused", f"held: alone it keeps its limits on {where}")


@dataclass(frozen=True, eq=False)
class _Alike:
    """Instances of one kind, as a refused request is tried on them: the first that prefills, and of those that
    decode (and of those that do both) each that has more free than all before it, so that the first with room for a
    request is among them."""

    first: Engine | None
    last: tuple[Engine, ...]
    both: tuple[Engine, ...]


def _alike(engines: Iterable[Engine]) -> list[tuple[Engine, _Alike]]:
    """One instance of every kind, and the kind."""
    kinds: dict[int, list[Engine]] = {}
    for engine in engines:
        kinds.setdefault(id(engine.costs), []).append(engine)
    found = []
    for same in kinds.values():
        last = [engine for engine in same if engine.decodes]
        first = next((engine for engine in same if engine.prefills), None)
        both = [engine for engine in last if engine.prefills]
        found.append((same[0], _Alike(first, tuple(_roomier(last)), tuple(_roomier(both)))))
    return found


def _roomier(engines: Iterable[Engine]) -> Iterator[Engine]:
    most = -1
    for engine in engines:
        if engine.free > most:
            most = engine.free
            yield engine


def _alone(request: Waiting, kinds: Iterable[tuple[Engine, _Alike]], found: Consequences) -> str | None:
    """An instance, or two, on which a request would keep its limits if it ran alone; one of each kind is tried."""
    if request.card is None or request.prompt > request.card.max_context:
        return None
    able = [kind for one, kind in kinds if request.runs_on(one)]
    both = [next((e for e in kind.both if request.kv_full <= e.free), None) for kind in able]
    pairs = [(engine, engine) for engine in both if engine is not None]
    if request.output:
        last = [next((e for e in kind.last if request.kv_full <= e.free), None) for kind in able]
        ends = [(kind.first, q) for kind in able for q in last]
        pairs += [(p, q) for p, q in ends if p is not None and q is not None and p is not q and p.like(q)]
    return next((f"{p.id}, {q.id}" for p, q in pairs if _keeps(request, p, q, found)), None)


def _keeps(request: Waiting, p: Engine, q: Engine, found: Consequences) -> bool:
    """Whether it keeps its limits on p and q if it starts at the next replan and nothing else is there."""
    held, rate = found.blocks.held(request, p.id)
    work = p.costs.prefill(request.prompt, held, request.sequences)
    end = found.policy.period + rate * request.kv_per_token * held + work
    pace = 0.0
    if request.output:
        a, b = q.costs.step(request.sequences, request.prompt, request.output)
        alone = max(q.costs.base[0] + a, q.costs.base[1] + b)
        pace = next((tau for tau in found.policy.paces if tau >= alone), math.inf)
    moved = found.roads.seconds(p.id, q.id, request.wire, work)
    finish = end + moved + request.output * pace if request.output else end
    return pace < math.inf and end <= request.ttft and finish <= request.e2e and pace <= request.itl
