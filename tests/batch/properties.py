"""What must hold in every plan of ``replan``, whatever the snapshot; ``benchmarks/batch_oracle.py`` asks it too.

Capacities, limits, quotas, fairness, the rules of preemption and that nothing is dropped are the verifier's, which
every plan goes through; here it is asked again. The rest compares plans with each other and with the enumeration.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

import numpy as np

from iegopt.batch.api import replan
from iegopt.batch.brute import brute_force
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import KEEP, MIGRATE, PREEMPT, Placement
from iegopt.batch.schedule import evaluate
from iegopt.batch_plans import BatchPlan

from .checked import check
from .random_snapshots import Case

__all__ = ["DEADLINE_MS", "against_brute", "blocked", "broken", "placement_of", "plan_of"]

DEADLINE_MS = 120_000.0
"""Never reached: what is found must not depend on how busy the machine is."""

EPSILON = 1e-7


def plan_of(case: Case) -> BatchPlan:
    return replan(case.snapshot, case.cluster, case.policy, deadline_ms=DEADLINE_MS)


def broken(case: Case, plan: BatchPlan, *, again: bool = True) -> list[str]:
    """Rules that a plan breaks, one line each; none are expected. ``again``: whether it is planned once more."""
    found = [str(violation) for violation in check(case, plan).violations]
    queue = [q.id for q in case.snapshot.queue]
    lost = {i.id for i in case.snapshot.instances if i.state == "lost"}
    queue += [r.id for r in case.snapshot.running if r.instance in lost]
    if sorted(decision.id for decision in plan.queue) != sorted(queue):
        found.append("a request is dropped or stands twice")
    if again and replace(plan_of(case), seconds=plan.seconds) != plan:
        found.append("the same snapshot gives another plan")
    return found


def placement_of(model: BatchModel, plan: BatchPlan) -> Placement:
    """The decisions of a plan, as a solver states them."""
    found, index = Placement.empty(model), {name: j for j, name in enumerate(model.instances.ids)}
    rung = {pace: n for n, pace in enumerate(model.paces.tolist())}
    for decision in plan.queue:
        if decision.status == "placed":
            i = model.queue.ids.index(decision.id)
            found.prefill[i], found.decode[i] = index[str(decision.prefill)], index[str(decision.decode)]
            if decision.reused_from in index and decision.reused_from != decision.prefill:
                found.fetch[i] = index[str(decision.reused_from)]
    for act in plan.running:
        if act.id in model.running.ids:
            r = model.running.ids.index(act.id)
            found.action[r] = {"keep": KEEP, "preempt": PREEMPT, "migrate": MIGRATE}[act.action]
            found.to[r] = -1 if act.to is None else index[act.to]
    for use in plan.instances:
        found.pace[index[use.id]] = -1 if use.pace is None else rung[use.pace]
    return found


def blocked(case: Case, plan: BatchPlan) -> Iterator[str]:
    """Held requests that would fit if those of lower priorities, which are placed, were not there."""
    model, held = case.model, [d for d in plan.queue if d.status == "held" and d.reason and d.reason.rule != "search"]
    start = placement_of(model, plan)
    for decision in held:
        lower = (start.prefill >= 0) & (model.queue.priority > decision.priority)
        if not lower.any():
            continue
        i, bare = model.queue.ids.index(decision.id), start.copy()
        bare.prefill[lower], bare.decode[lower], bare.fetch[lower] = -1, -1, -1
        if any(v.rule not in ("preemption", "fairness") for v in evaluate(model, bare).violations):
            continue
        for p, q in product(range(model.J), repeat=2):
            trial = bare.copy()
            trial.prefill[i], trial.decode[i] = p, q
            rungs = [int(bare.pace[q])] if bare.pace[q] >= 0 else list(range(len(model.paces)))
            for rung in rungs:
                trial.pace[q] = rung
                with np.errstate(invalid="ignore"):
                    outcome = evaluate(model, trial)
                if outcome.feasible:
                    yield f"{decision.id} of priority {decision.priority} would fit on {p}, {q} without lower ones"
                    return


def against_brute(case: Case, most: int, plan: BatchPlan | None = None) -> tuple[str, list[str]]:
    """``equal``, ``worse``, and what must never be: a better plan than the best, or a bound below it.

    ``plan`` is what ``plan_of`` says to the case, where it is known.

    Raises
    ------
    TooLargeError
        The case is too large to enumerate with ``most`` placements.
    """
    best = brute_force(case.model, most).objective.tolist()
    plan = plan_of(case) if plan is None else plan
    found: list[str] = []
    verdict = "equal"
    # A level's bound speaks of plans that have all of the levels above: down to the first that falls short it holds.
    for level, value in zip(plan.levels, best, strict=True):
        if level.bound is not None and level.bound < value - EPSILON:
            found.append(f"the bound {level.bound:.6f} of level {level.priority} is below {value:.6f}, which there is")
        if level.objective > value + EPSILON:
            found.append(f"level {level.priority} has {level.objective:.6f}, and the best is {value:.6f}")
        if abs(level.objective - value) > EPSILON:
            verdict = "worse"
            break
    return verdict, found
