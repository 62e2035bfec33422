"""What a batch plan states of its requests, running stages and levels, held against what follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterator

from iegopt.batch_plans import SAME_INSTANCE, BatchPlan, LevelResult
from iegopt.verify.batch_rules import late
from iegopt.verify.consequences import Consequences, Placed
from iegopt.verify.report import Violation

__all__ = ["check_claims", "check_levels"]

_RELATIVE = 1e-8
_OPTIMAL = 1e-6
"""Gap up to which a plan may call itself optimal."""


def check_claims(plan: BatchPlan, found: Consequences) -> Iterator[Violation]:
    """Figures of placed requests and of running stages."""
    for one in found.placed:
        yield from _placed(one, found)
    for stage in found.stages.values():
        said, true = found.done[stage.id], found.aside(stage)
        yield from _compare(stage.id, "seconds", said.seconds, true.seconds)
        yield from _compare(stage.id, "bytes", said.bytes, true.bytes)
        yield from _compare(stage.id, "loss", said.loss, true.loss)
        for what, claimed, fact in (("how", said.how, true.how), ("misses", said.misses, true.misses)):
            if claimed != fact:
                yield Violation("claim", f"{what} of {stage.id}", str(claimed), str(fact))
        if (said.by is not None) != (said.action == "preempt"):
            yield Violation("claim", f"by of {stage.id}", str(said.by), "a request where it is preempted")
    for said in plan.running:
        if said.action == "requeue" and (said.seconds or said.bytes or said.loss or said.misses or said.by or said.how):
            yield Violation("claim", f"cost of {said.id}", "some", "none: it waits again")


def _placed(one: Placed, found: Consequences) -> Iterator[Violation]:
    said, name = one.decision, one.request.id
    for what, claimed, true in (
        ("work", said.work, one.work),
        ("start", said.start, one.start),
        ("first token", said.first_token, one.end),
        ("transfer", said.transfer, one.transfer),
        ("finish", said.finish, one.finish),
        ("pace", said.pace, one.pace if one.request.output else None),
        ("reused", said.reused, one.reused),
        ("fetched", said.fetched, one.fetched),
        ("transferred", said.transferred, one.wire),
        ("memory", said.memory, one.request.kv_full),
        ("utility", said.utility, worth(one, found)),
    ):
        yield from _compare(name, what, claimed, true)
    link = found.roads.link(one.p.id, one.q.id)
    for what, text, fact in (
        ("reused from", said.reused_from, one.source),
        ("path", said.path, SAME_INSTANCE if link is None else link[0]),
    ):
        if text != fact:
            yield Violation("claim", f"{what} of {name}", str(text), str(fact))


def worth(one: Placed, found: Consequences) -> float:
    """w, or w·min(1, τ_ref/τ) of the throughput class; nothing where a limit is missed."""
    request = one.request
    if late(one.end, one.prefill_by) or late(one.finish, request.e2e) or late(one.pace, request.itl):
        return 0.0
    slower = min(1.0, found.policy.reference_pace / one.pace) if one.pace > 0.0 else 1.0
    return request.weight * (slower if request.throughput else 1.0)


def _compare(name: str, what: str, claimed: float | None, true: float | None) -> Iterator[Violation]:
    same = claimed == true
    if not same and claimed is not None and true is not None:
        same = abs(claimed - true) <= _RELATIVE * max(1.0, abs(true)) and not isinstance(true, int)
    if not same:
        stated, fact = (str(value) if value is None else value for value in (claimed, true))
        yield Violation("claim", f"{what} of {name}", stated, fact)


def check_levels(plan: BatchPlan, found: Consequences) -> Iterator[Violation]:
    """Sums of every priority, its bound and its gap."""
    utility: dict[int, float] = {}
    loss: dict[int, float] = {}
    for one in found.placed:
        utility[one.request.priority] = utility.get(one.request.priority, 0.0) + worth(one, found)
    for stage in found.stages.values():
        loss[stage.spec.priority] = loss.get(stage.spec.priority, 0.0) + found.aside(stage).loss
    stated = [level.priority for level in plan.levels]
    if stated != sorted(set(stated)):
        yield Violation("claim", "levels", str(stated), "every priority once, 0 first")
    for missing in sorted((utility.keys() | loss.keys()) - set(stated)):
        yield Violation("claim", f"level {missing}", "not stated", "its utility and loss")
    for level in plan.levels:
        yield from _level(level, utility.get(level.priority, 0.0), loss.get(level.priority, 0.0))
    proven = all(level.gap is not None and level.gap <= _OPTIMAL for level in plan.levels)
    if (plan.status == "optimal") != proven:
        yield Violation("claim", "status", plan.status, "optimal where every gap is closed, else feasible")


def _level(level: LevelResult, utility: float, loss: float) -> Iterator[Violation]:
    name = f"level {level.priority}"
    yield from _compare(name, "utility", level.utility, utility)
    yield from _compare(name, "loss", level.loss, loss)
    yield from _compare(name, "objective", level.objective, utility - loss)
    if level.bound is None:
        if level.gap is not None:
            yield Violation("claim", f"gap of {name}", level.gap, "none without a bound")
        return
    missing = level.bound - (utility - loss)
    if missing < -_RELATIVE * max(1.0, abs(level.bound)):
        yield Violation("bound", name, level.bound, utility - loss)
        return
    missing = max(0.0, missing)
    gap = missing / level.bound if level.bound > 0.0 else (math.inf if missing > _RELATIVE else 0.0)
    if level.gap is None or not (level.gap == gap or abs(level.gap - gap) <= _RELATIVE):
        yield Violation("claim", f"gap of {name}", str(level.gap), gap)
