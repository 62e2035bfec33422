"""No bound is below what brute force finds, and every plan is one that brute force could have found."""

from __future__ import annotations

import numpy as np
import pytest

from iegopt.batch.bound import Bound
from iegopt.batch.bound_rows import classes_of, queued_items
from iegopt.batch.bounds import Bounds
from iegopt.batch.brute import brute_force
from iegopt.batch.cutting import bounded
from iegopt.batch.dual import Dual
from iegopt.batch.levels import Search
from iegopt.solvers.clock import Clock

from .random_snapshots import random_case
from .small import STEP_BASE, build, decodes, instance, prefill_seconds, queued

EPSILON = 1e-6
MOST = 2_000
"""Placements that brute force looks at."""


# Small enough for brute force. 113: a running prefill on instances that do not decode; 20: a slow throughput request.
@pytest.mark.parametrize("seed", [0, *range(2, 9), 20, 113])
def test_bounds_hold(seed: int) -> None:
    model = random_case(seed, "tiny").model
    best = brute_force(model, MOST).objective.tolist()
    search = Search(model, Clock(60.0))
    long = Bounds(model, search.scout, search.levels)
    for at, level in enumerate(search.levels):
        long.by_long_prefills(at, np.array(best), Clock(60.0))
        assert best[at] <= long.value[level] + EPSILON * max(1.0, abs(best[at]))
    search.run()
    for level, mine, theirs in zip(search.levels, search.outcome.objective.tolist(), best, strict=True):
        assert theirs <= search.bounds.value[level] + EPSILON * max(1.0, abs(theirs))
        assert mine <= theirs + EPSILON
        if mine < theirs - EPSILON:
            break  # the levels below are then free to differ


def _relaxed(count: int) -> Bound:
    """The bound of requests of 1,000 tokens, a second each until the first, on one instance."""
    queue = [queued(f"r{n}", output=2, sla={"ttft": 1.0}, utility={"weight": 1.0}) for n in range(count)]
    model = build([instance(0)], queue)
    classes, grid = classes_of(model), np.array([1.0])
    return bounded(Dual(model, classes, queued_items(model, classes), grid, 0, {}), 0.0, Clock(60.0))


def test_bound_is_the_relaxations_where_time_is_scarce() -> None:
    # Prefills share the second with decodes: at the slowest pace, 0.2 s, an opened instance gives at least B0/0.2.
    most = 1.0 / prefill_seconds(1000)
    assert most * (1.0 - 2 * STEP_BASE / 0.2) <= _relaxed(20).value <= most


@pytest.mark.parametrize(("priority", "bound"), [(0, 0.0), (1, 1.0)])
def test_what_runs_above_stays_and_takes_its_time(priority: int, bound: float) -> None:
    # The prefill leaves a tenth of the second; what runs takes a quarter, and moving it costs its own level something.
    tight = queued("tight", 4000, 1, priority=1, sla={"ttft": prefill_seconds(4000) / 0.9}, utility={"weight": 1.0})
    runs = decodes("r", priority=priority, sla={"itl": 0.05})
    search = Search(build([instance(0), instance(1, utilization=0.5)], [tight], [runs]), Clock(60.0))
    search.run()
    assert STEP_BASE / 0.05 > 0.25
    assert search.bounds.value[1] == pytest.approx(bound)


def test_cuts_see_where_nothing_is_scarce() -> None:
    found = _relaxed(3)
    assert found.value == pytest.approx(3.0)
    assert found.steps < 5


# What runs decodes on all of an instance's time: the relaxation must leave it as much, to the last rounding.
@pytest.mark.parametrize("seed", [356, 777])
def test_no_bound_is_below_the_plan_where_instances_are_full(seed: int) -> None:
    search = Search(random_case(seed).model, Clock(60.0))
    search.run()
    for level, mine in zip(search.levels, search.outcome.objective.tolist(), strict=True):
        assert mine <= search.bounds.value[level] + EPSILON
