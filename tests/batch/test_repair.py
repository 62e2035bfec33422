"""What breaks a rule is taken off a plan, whole and nothing else."""

from __future__ import annotations

from iegopt.batch.placement import KEEP, PREEMPT, Placement
from iegopt.batch.repair import repaired

from .small import build, decodes, instance, queued


def test_one_of_two_that_are_too_many_goes_and_the_other_stays() -> None:
    model = build([instance(0, max_batch=1)], [queued("heavy", utility={"weight": 2.0}), queued("light")])
    plan = Placement.empty(model)
    plan.prefill[:], plan.decode[:], plan.pace[0] = 0, 0, len(model.paces) - 1
    outcome = repaired(model, plan)
    assert outcome.feasible
    assert plan.prefill.tolist() == [0, -1]
    assert plan.decode.tolist() == [0, -1]


def test_what_is_put_aside_in_favour_of_nobody_stays() -> None:
    model = build([instance(0)], [queued("q")], [decodes("r", priority=2)])
    plan = Placement.empty(model)
    plan.action[0] = PREEMPT
    assert repaired(model, plan).feasible
    assert plan.action.tolist() == [KEEP]
