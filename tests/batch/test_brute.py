"""The enumeration: against one that leaves nothing out, and on snapshots whose best plan can be told."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest

from iegopt.batch.brute import TooLargeError, brute_force
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import KEEP, MIGRATE, PREEMPT, Placement
from iegopt.batch.schedule import evaluate

from .random_snapshots import random_case
from .small import build, decodes, instance, queued

SHAPE_MOST = 4
"""Cases with the same numbers of instances, requests and running stages that are looked at."""


def naive(model: BatchModel) -> list[float]:
    """The best objective over every combination whatsoever."""
    J, places = model.J, [(-1, -1, -1)]
    places += [(p, q, h) for p, q in product(range(J), repeat=2) for h in range(-1, J)]
    actions = [(KEEP, -1), (PREEMPT, -1), *((MIGRATE, j) for j in range(J))]
    best: list[float] = evaluate(model, Placement.empty(model)).objective.tolist()
    for where, pace, done in product(
        product(places, repeat=model.N), product(range(len(model.paces)), repeat=J), product(actions, repeat=model.R)
    ):
        plan = Placement.empty(model)
        for i, (p, q, h) in enumerate(where):
            plan.prefill[i], plan.decode[i], plan.fetch[i] = p, q, h
        plan.pace[:] = pace
        for r, (action, to) in enumerate(done):
            plan.action[r], plan.to[r] = action, to
        with np.errstate(invalid="ignore"):  # a move to where a stage cannot run
            outcome = evaluate(model, plan)
        if outcome.feasible:
            best = max(best, [round(x, 9) for x in outcome.objective.tolist()])
    return best


@pytest.mark.slow
def test_nothing_that_is_left_out_would_be_better() -> None:
    checked: Counter[tuple[int, int, int]] = Counter()
    for seed in range(300):
        model = random_case(seed, "tiny").model
        shape = model.J, model.N, model.R
        combinations = (1 + model.J**2 * (model.J + 1)) ** model.N * len(model.paces) ** model.J
        if combinations * (2 + model.J) ** model.R > 500 or model.alone.refused.all() or checked[shape] == SHAPE_MOST:
            continue
        checked[shape] += 1
        assert brute_force(model).objective.tolist() == pytest.approx(naive(model), abs=1e-8), seed
    assert len(checked) >= 8
    assert checked.total() >= 20


def test_the_first_level_goes_before_any_weight_of_the_second() -> None:
    rows = [queued("a", priority=1, utility={"weight": 100.0}), queued("b", priority=0, utility={"weight": 0.1})]
    model = build([instance(0, max_batch=1)], rows, policy={"paces": [0.05]})
    optimum = brute_force(model)
    assert optimum.objective.tolist() == [0.1, 0.0]
    assert optimum.placement.prefill.tolist() == [-1, 0]


def test_a_running_stage_gives_way_to_a_higher_priority() -> None:
    victim = decodes("d", priority=2, remaining=1000)
    model = build([instance(0, max_batch=1)], [queued("a", priority=0)], [victim], policy={"paces": [0.05]})
    optimum = brute_force(model)
    assert optimum.placement.action.tolist() == [PREEMPT]
    assert optimum.objective[0] == 1.0
    assert optimum.objective[1] < 0.0


def test_too_many_placements_are_refused() -> None:
    model = build([instance(n) for n in range(3)], [queued(name) for name in "abcd"])
    with pytest.raises(TooLargeError, match="more than 10 placements"):
        brute_force(model, 10)
    assert np.isfinite(brute_force(build([instance(0)], [queued("a")])).objective).all()


@pytest.mark.parametrize("priority", [0, 2])
def test_what_is_added_keeps_the_batch_that_what_runs_exceeds(priority: int) -> None:
    rows = [decodes(name, priority=2, remaining=1000) for name in ("d", "e")]
    model = build([instance(0, max_batch=1)], [queued("a", priority=priority)], rows, policy={"paces": [0.05]})
    assert evaluate(model, Placement.empty(model)).feasible
    plan = Placement.empty(model)
    plan.prefill[0] = plan.decode[0] = 0
    for r in range(2):
        found = evaluate(model, plan).violations
        assert [(v.rule, v.need, v.have) for v in found if v.rule == "batch"] == [("batch", 3.0 - r, 1.0)]
        plan.action[r] = PREEMPT
    assert [v for v in evaluate(model, plan).violations if v.rule == "batch"] == []
    optimum = brute_force(model).placement
    assert optimum.action.tolist() == ([PREEMPT, PREEMPT] if priority == 0 else [KEEP, KEEP])
    assert optimum.prefill.tolist() == [0 if priority == 0 else -1]


def test_what_is_added_keeps_the_memory_that_what_runs_exceeds() -> None:
    rows = [decodes(name, priority=2, context=4000) for name in ("d", "e")]
    need = int(build([instance(0)], [queued("a")], rows).running.kv_there[0])
    at = instance(0, used=80 * 10**9 - 5 * 4096 * 8192 * 2 - need)
    model = build([at], [queued("a", priority=0)], rows, policy={"paces": [0.05]})
    plan = Placement.empty(model)
    assert evaluate(model, plan).feasible
    plan.prefill[0] = plan.decode[0] = 0
    plan.action[0] = PREEMPT
    assert "memory" in {v.rule for v in evaluate(model, plan).violations}
    assert (brute_force(model).placement.action == PREEMPT).all()
