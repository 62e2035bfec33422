"""The plan before as a placement of the present model: what waits stays where it was put, at the same paces, and what
runs is moved and put aside as it was to be."""

from __future__ import annotations

from math import isclose

import numpy as np

from iegopt.batch.model import BatchModel
from iegopt.batch.placement import KEEP, MIGRATE, PREEMPT, Placement
from iegopt.batch_plans import BatchPlan

__all__ = ["resumed"]


def resumed(model: BatchModel, previous: BatchPlan) -> Placement:
    """What is left of ``previous``: requests that still wait, and stages that still run where they did. It may break
    rules of the present model."""
    plan, at = Placement.empty(model), {name: j for j, name in enumerate(model.instances.ids)}
    waiting = {name: i for i, name in enumerate(model.queue.ids)}
    for decision in previous.queue:
        i, p, q = waiting.get(decision.id), at.get(decision.prefill or ""), at.get(decision.decode or "")
        if i is not None and p is not None and q is not None:
            plan.prefill[i], plan.decode[i] = p, q
            plan.fetch[i] = at.get(decision.reused_from or "", -1) if decision.fetched else -1
    paces = model.paces.tolist()
    for use in previous.instances:
        j = at.get(use.id)
        rung = next((t for t, pace in enumerate(paces) if use.pace is not None and isclose(use.pace, pace)), -1)
        if j is not None and rung >= 0 and (plan.pace[j] >= 0 or (plan.decode == j).any()):
            plan.pace[j] = rung
    _run(model, previous, plan, at)
    return plan


def _run(model: BatchModel, previous: BatchPlan, plan: Placement, at: dict[str, int]) -> None:
    running, gap = model.running, model.policy.preemption_config.min_priority_gap
    runs = {name: r for r, name in enumerate(running.ids)}
    for decision in previous.running:
        r = runs.get(decision.id)
        if r is None or at.get(decision.instance) != running.instance[r]:
            continue
        if decision.action == "migrate" and decision.to in at:
            plan.action[r], plan.to[r] = MIGRATE, at[decision.to]
        elif decision.action == "preempt":
            places = [running.instance[r], running.decode[r]]
            there = np.isin(plan.prefill, places) | np.isin(plan.decode, places)
            some = bool((there & (model.queue.priority <= running.priority[r] - gap)).any())
            plan.action[r] = PREEMPT if some else KEEP
