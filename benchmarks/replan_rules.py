"""What routing rules make of a snapshot and what ``replan`` makes of it, by one evaluator."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.queues import Case
from iegopt.batch.api import replan
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import Placement
from iegopt.batch.rules.admitted import admit
from iegopt.batch.rules.scores import RULES
from iegopt.batch.rules.unchecked import charged, send_out
from iegopt.batch.schedule import evaluate
from iegopt.batch_plans import BatchPlan

__all__ = ["EPSILON", "compared", "placement_of", "worth_of"]

EPSILON = 1e-6
"""Relative difference of two objectives that counts."""
EVERY = 10**9
"""More instances than there are: a rule may try them all."""
WAYS = ("as it is", "admits", "admits, knows speeds")
"""A rule as its original has it; with admission; with admission and the true speeds of the instances."""


def compared(case: Case, deadline_ms: float) -> dict[str, Any]:
    """Objectives by level, the first priority first, of every rule in every way and of ``replan``.

    Rules that send out without looking may harm what runs. Where that breaks a limit, the stage's weight is taken
    off at its own level.
    """
    model = case.model()
    plan = replan(case.snapshot, case.cluster, case.policy, deadline_ms=deadline_ms)
    ours = worth_of(plan)
    theirs: dict[str, list[float]] = {}
    for rule in RULES:
        outcome = evaluate(model, send_out(model, rule))
        theirs[f"{rule}, {WAYS[0]}"] = charged(model, outcome).tolist()
        for way, speeds in zip(WAYS[1:], (False, True), strict=True):
            found = evaluate(model, admit(model, rule, speeds=speeds, tries=EVERY))
            theirs[f"{rule}, {way}"] = found.objective.tolist() if found.feasible else [-np.inf]
    best = max(theirs, key=lambda name: tuple(np.round(theirs[name], 6)))
    most = max(theirs.values(), key=sum)
    return {
        "snapshot": case.name, "requests": model.N, "instances": model.J, "seconds": round(plan.seconds, 3),
        "ours": _rounded(ours), "best_rule": best, "best": _rounded(theirs[best]),
        "at_least_the_best": not lexicographically_less(ours, theirs[best]),
        "total_over_best": round(sum(ours) / max(1e-9, sum(theirs[best])), 4),
        "total_over_most": round(sum(ours) / max(1e-9, sum(most)), 4),
        "gaps": [level.gap for level in plan.levels],
        "rules": {name: _rounded(worth) for name, worth in theirs.items()},
    }  # fmt: skip


def lexicographically_less(mine: list[float], theirs: list[float]) -> bool:
    """Whether mine is worse at the first level at which they differ."""
    for a, b in zip(mine, theirs, strict=True):
        if abs(a - b) > EPSILON * max(1.0, abs(b)):
            return a < b
    return False


def worth_of(plan: BatchPlan) -> list[float]:
    return [level.objective for level in plan.levels]


def placement_of(model: BatchModel, plan: BatchPlan) -> Placement:
    """Where a plan has the queue: prefills and decodes alone."""
    at = {name: j for j, name in enumerate(model.instances.ids)}
    row = {name: i for i, name in enumerate(model.queue.ids)}
    found = Placement.empty(model)
    for decision in plan.queue:
        if decision.prefill is not None and decision.decode is not None:
            found.prefill[row[decision.id]] = at[decision.prefill]
            found.decode[row[decision.id]] = at[decision.decode]
    return found


def _rounded(worth: list[float]) -> list[float]:
    return [round(value, 4) for value in worth]
