"""Taking off a plan what breaks a rule.

Every change of a board is checked, so that little is left: shares of tenants that a later change of pace moves, and
prefills that waited for what is gone.
"""

from __future__ import annotations

import numpy as np

from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import Outcome
from iegopt.batch.placement import Placement
from iegopt.batch.schedule import evaluate

__all__ = ["repaired"]


def repaired(model: BatchModel, plan: Placement) -> Outcome:
    """Take off the plan what breaks a rule until nothing does; the plan is changed."""
    while True:
        outcome = evaluate(model, plan)
        if outcome.feasible:
            return outcome
        gone = _offenders(model, plan, outcome)
        if not gone:
            # A stage is put aside in favour of nobody: doing nothing is always feasible.
            nothing = Placement.empty(model)
            plan.action[:], plan.to[:], plan.pace[:] = nothing.action, nothing.to, nothing.pace
        for array in (plan.prefill, plan.decode, plan.fetch):
            array[gone] = -1


def _offenders(model: BatchModel, plan: Placement, outcome: Outcome) -> list[int]:
    """Per violation the placed request that goes: of the lowest priority, the least worth, the last."""
    ids = {name: i for i, name in enumerate(model.queue.ids)}
    at = {name: j for j, name in enumerate(model.instances.ids)}
    runs = {name: r for r, name in enumerate(model.running.ids)}
    tenants = {name: t for t, name in enumerate(model.tenants)}
    placed = plan.prefill >= 0
    gone: set[int] = set()
    for violation in outcome.violations:
        where = violation.where
        if where in ids:
            gone.add(ids[where])
            continue
        if where in at:
            mine = placed & ((plan.prefill == at[where]) | (plan.decode == at[where]))
        elif where in runs:
            places = [model.running.instance[runs[where]], model.running.decode[runs[where]]]
            mine = placed & (np.isin(plan.prefill, places) | np.isin(plan.decode, places))
        else:
            mine = placed & (model.queue.tenant == tenants[where])
        rows = np.flatnonzero(mine)
        if len(rows):
            turn = np.lexsort((-rows, outcome.utility[rows], -model.queue.priority[rows]))
            gone.add(int(rows[turn[0]]))
    return sorted(gone) if gone else np.flatnonzero(placed).tolist()
