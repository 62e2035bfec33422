"""A level is bounded by how many of its long prefills the instances can take."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from iegopt.batch.bounds import LONG_PREFILLS, Bounds
from iegopt.batch.fitting import Fitting
from iegopt.batch.levels import Search
from iegopt.batch.long_sets import LongSets
from iegopt.batch.matching import matched
from iegopt.batch.model import BatchModel
from iegopt.batch.placement import Placement
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

from .small import build, decodes, instance, prefill_seconds, queued

STAY: dict[str, Any] = {"migration": False}


def bound(model: BatchModel, level: int, *have: float) -> float:
    """Of a level, with those above as they are."""
    levels = np.unique(np.concatenate([model.queue.priority, model.running.priority])).tolist()
    bounds = Bounds(model, Scout(model), levels)
    bounds.by_long_prefills(levels.index(level), np.array([*have, 0.0]), Clock(60.0))
    return bounds.value[level]


def long(name: str, part: float, weight: float, **changes: Any) -> dict[str, Any]:
    """A request whose prefill takes a part of the time until its limit."""
    seconds = prefill_seconds(4000) / part
    return queued(name, 4000, 1, sla={"ttft": seconds}, utility={"weight": weight}, **changes)


def test_two_that_each_need_an_instance_are_not_both_asked_for() -> None:
    queue = [long("a", 0.9, 2.0), long("b", 0.8, 3.0), queued("short", 100, 1, utility={"weight": 1.0})]
    assert bound(build([instance(0)], queue), 0) == pytest.approx(4.0)
    assert bound(build([instance(0), instance(1)], queue), 0) == pytest.approx(6.0)
    # Two that each take less than half fit on one.
    both = [long("a", 0.45, 2.0), long("b", 0.45, 3.0)]
    assert bound(build([instance(0)], both), 0) == pytest.approx(5.0)


def test_what_levels_above_have_takes_its_instance() -> None:
    queue = [long("first", 0.9, 2.0), long("second", 0.9, 3.0, priority=1)]
    model = build([instance(0)], queue)
    assert bound(model, 1, 2.0) == pytest.approx(0.0, abs=1e-6)  # it has all it asks for
    assert bound(model, 1, 0.0) == pytest.approx(3.0)
    # Of another request of its level two thirds are kept: the long one need not be placed for that.
    easy = queued("easy", 100, 1, utility={"weight": 4.0})
    assert bound(build([instance(0)], [*queue, easy]), 1, 4.0) == pytest.approx(3.0)
    assert bound(build([instance(0)], [*queue, easy]), 1, 5.0) == pytest.approx(1.5)


def test_a_bound_holds_for_what_levels_above_have_in_the_end() -> None:
    queue = [long("first", 0.9, 2.0), long("second", 0.9, 3.0, priority=1), long("third", 0.9, 1.0, priority=2)]
    model = build([instance(0)], queue)
    bounds = Bounds(model, Scout(model), [0, 1, 2])
    bounds.by_long_prefills(2, np.array([0.0, 3.0, 0.0]), Clock(60.0))
    assert bounds.value[2] == pytest.approx(0.0, abs=1e-6)
    for seconds in (60.0, 0.0):
        bounds.uphold(Placement.empty(model), np.array([0.0, 3.0, 0.0]), Clock(seconds))
        assert bounds.value[2] == pytest.approx(0.0, abs=1e-6)
    bounds.uphold(Placement.empty(model), np.array([0.0, 0.0, 0.0]), Clock(60.0))
    assert bounds.value[2] == pytest.approx(1.0)


def test_what_no_comparison_counts_takes_no_instance() -> None:
    queue = [queued("easy", 100, 1, utility={"weight": 2.0}), long("none", 0.9, 1e-12), long("b", 0.9, 3.0, priority=1)]
    assert bound(build([instance(0)], queue), 1, 2.0) == pytest.approx(3.0)


def test_no_more_is_looked_at_than_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(Fitting, "least_together", lambda self, i: seen.append(i) or np.ones(self.model.J))
    model = build([instance(0)], [long(f"r{n}", 0.9, 1.0) for n in range(5)])
    bounds = Bounds(model, Scout(model), [0])
    bounds.by_long_prefills(0, np.array([0.0]), Clock(0.0))
    assert (seen, bounds.value[0]) == ([], 5.0)


# In favour of a request of priority 1 only what has 2 goes; one of priority 0 takes time where 1 goes for it.
@pytest.mark.parametrize(
    ("runs", "others", "expected"), [(2, [], 1.0), (1, [], 0.0), (1, [1500], 0.0), (1, [100], 1.0)]
)
def test_who_makes_what_runs_go_is_there_itself(runs: int, others: list[int], expected: int) -> None:
    running = [decodes("r", "i0", 500, 100, priority=runs, sla={"itl": 0.05})]
    heads = [queued(f"h{n}", prompt, 1, sla={"ttft": 0.3, "itl": 0.05}) for n, prompt in enumerate(others)]
    model = build([instance(0)], [*heads, long("long", 0.85, 1.0, priority=1)], running, policy=STAY)
    assert bound(model, 1, *[0.0] * len(others)) == pytest.approx(expected, abs=1e-6)


def test_matching_gives_way_to_who_has_less_choice() -> None:
    model = build([instance(0), instance(1)], [long("easy", 0.9, 2.0), long("choosy", 0.9, 1.0)])
    sets = LongSets(np.arange(2), np.arange(0), np.array([[True, True], [True, False]]), np.ones(2, dtype=bool), {})
    assert matched(model, sets) == {0: 1, 1: 0}


def test_a_plan_is_proven_by_its_long_prefills() -> None:
    search = Search(build([instance(0)], [long("a", 0.9, 2.0), long("b", 0.8, 3.0)]), Clock(60.0))
    search.run()
    assert search.outcome.objective.tolist() == pytest.approx([3.0])
    assert (search.bounds.value, search.bounds.proof) == ({0: pytest.approx(3.0)}, {0: LONG_PREFILLS})
