"""Requests that fit nowhere beside what stays: no bound asks for them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from iegopt.batch.board import Board
from iegopt.batch.fitting import Fitting
from iegopt.batch.levels import Search
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

from .properties import plan_of
from .random_snapshots import random_case
from .small import build, instance, prefill_seconds, queued


def fits(requests: list[dict[str, object]], instances: list[dict[str, object]]) -> list[bool]:
    model = build(instances, requests)
    return Fitting(model, Scout(model)).some(np.arange(model.N), np.ones(model.R, dtype=bool), Clock(60.0)).tolist()


@pytest.mark.parametrize(("part", "expected"), [(1.001, True), (0.999, False)])
def test_a_prefill_fits_where_its_limit_leaves_its_seconds(part: float, expected: bool) -> None:
    alone = queued("a", 2000, sla={"ttft": part * prefill_seconds(2000)})
    assert fits([alone], [instance(0)]) == [expected]
    assert fits([alone], [instance(0, utilization=0.01)]) == [False]


def test_what_another_must_leave_first_takes_its_time_too() -> None:
    """Of 2,048 tokens 1,536 are shared: left by the other they spare as much as it takes."""
    blocks = [1, 2, 3]
    tight = {"ttft": 0.9 * prefill_seconds(2048)}
    one = queued("a", 2048, prefix=[*blocks, 4], sla=tight)
    other = queued("b", 1600, prefix=blocks)
    assert fits([one, other], [instance(0)])[0] is False
    assert fits([one, other], [instance(0, prefix=blocks)])[0] is True


def test_what_is_fetched_comes_before_the_prefill() -> None:
    blocks = [1, 2, 3]
    holder = instance(1, prefix=blocks, role="decode")
    for seconds, expected in ((0.9, True), (0.2, False)):
        one = queued("a", 2048, prefix=[*blocks, 4], sla={"ttft": seconds * prefill_seconds(2048)})
        assert fits([one], [instance(0), holder]) == [expected]


def test_all_that_any_plan_places_fits() -> None:
    for seed in range(8):
        case = random_case(seed, "tiny")
        plan = plan_of(case)
        placed = [n for n, decision in enumerate(plan.queue) if decision.prefill is not None]
        nothing = np.zeros(case.model.R, dtype=bool)
        found = Fitting(case.model, Scout(case.model)).some(np.arange(case.model.N), nothing, Clock(60.0))
        assert found[placed].all(), seed


def test_all_may_fit_where_no_time_is_left_to_know() -> None:
    model = build([instance(0, utilization=0.01)], [queued("a", 2000, sla={"ttft": prefill_seconds(2000)})])
    fitting, rows, stays = Fitting(model, Scout(model)), np.arange(1), np.ones(model.R, dtype=bool)
    assert not fitting.some(rows, stays, Clock(60.0)).any()
    assert fitting.some(rows, stays, Clock(0.0)).all()


def test_a_bound_asks_for_nothing_that_fits_nowhere() -> None:
    long = {"ttft": 1.05 * prefill_seconds(2000)}
    model = build(
        [instance(n, utilization=0.1) for n in range(2)], [queued("long", 2000, sla=long), queued("short", 200)]
    )
    search = Search(model, Clock(10.0, time.perf_counter()))
    assert not Board(model).place(0, 0, 0, len(model.paces) - 1)
    search.run()
    assert search.bounds.value == pytest.approx(dict.fromkeys(search.bounds.value, 1.0))
    assert search.outcome.objective.tolist() == pytest.approx([1.0])
