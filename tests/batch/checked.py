"""Plans held against the verifier, from placements found at random or by ``replan``."""

from __future__ import annotations

import numpy as np

from iegopt.batch.answer import to_plan
from iegopt.batch.confirm import verified
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import MIGRATE, PREEMPT, Placement
from iegopt.batch.schedule import evaluate
from iegopt.batch_plans import BatchPlan
from iegopt.verify.report import Report

from .random_snapshots import Case

__all__ = ["check", "random_placement", "random_plan"]


def check(case: Case, plan: BatchPlan) -> Report:
    """The verifier's word on a plan for a case."""
    return verified(plan, case.snapshot, case.policy, case.cluster)


def random_placement(model: BatchModel, rng: np.random.Generator, tries: int = 60) -> Placement:
    """Feasible, and otherwise any: changes at random, each kept where no rule is broken then."""
    best = Placement.empty(model)
    for _ in range(tries):
        plan = best.copy()
        for _ in range(int(rng.integers(1, 3))):
            _change(model, plan, rng)
        with np.errstate(invalid="ignore"):
            feasible = evaluate(model, plan).feasible
        if feasible:
            best = plan
    return best


def _change(model: BatchModel, plan: Placement, rng: np.random.Generator) -> None:
    J = model.J
    if not J:
        return
    if model.R and rng.random() < 0.3:
        r = int(rng.integers(model.R))
        plan.action[r] = PREEMPT if rng.random() < 0.5 else MIGRATE
        plan.to[r] = int(rng.integers(J)) if plan.action[r] == MIGRATE else -1
    elif model.N and rng.random() < 0.8:
        i = int(rng.integers(model.N))
        p, q = int(rng.integers(J)), int(rng.integers(J))
        plan.prefill[i], plan.decode[i] = p, p if rng.random() < 0.5 else q
        plan.fetch[i] = int(rng.integers(J)) if rng.random() < 0.5 else -1
        plan.pace[plan.decode[i]] = max(plan.pace[plan.decode[i]], int(rng.integers(len(model.paces))))
    else:
        plan.pace[int(rng.integers(J))] = int(rng.integers(len(model.paces)))


def random_plan(case: Case, seed: int = 0, tries: int = 60) -> BatchPlan:
    """The answer that a random placement gives."""
    placement = random_placement(case.model, np.random.default_rng([case.seed, seed]), tries)
    return to_plan(case.model, placement, evaluate(case.model, placement), solver="chance", seconds=0.0)
