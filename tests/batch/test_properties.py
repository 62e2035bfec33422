"""What holds in every plan of ``replan``, over random snapshots; ``benchmarks/batch_oracle.py`` does a thousand."""

from __future__ import annotations

from functools import cache

import pytest

from iegopt.batch.brute import TooLargeError
from iegopt.batch_plans import BatchPlan

from .properties import against_brute, blocked, broken, plan_of
from .random_snapshots import Case, Size, random_case

MOST = 600
"""Placements that the enumeration looks at before it gives a case up."""


@cache
def planned(seed: int, size: Size) -> tuple[Case, BatchPlan]:
    case = random_case(seed, size)
    return case, plan_of(case)


@pytest.mark.slow
@pytest.mark.parametrize(("size", "first", "seeds"), [("tiny", 0, 60), ("small", 0, 36), ("large", 0, 1)])
def test_every_plan_keeps_every_rule(size: Size, first: int, seeds: int) -> None:
    """Quotas, capacities, limits, preemption; nothing dropped; strict priority; the same plan again."""
    placed = 0
    for seed in range(first, first + seeds):
        case, plan = planned(seed, size)
        assert broken(case, plan, again=seed % 6 == 0) == [], seed
        if size == "small":
            assert list(blocked(case, plan)) == [], seed
        placed += sum(decision.status == "placed" for decision in plan.queue)
    assert placed > seeds / 2


@pytest.mark.slow
def test_no_plan_is_better_than_the_best_and_most_are_as_good() -> None:
    verdicts = {"equal": 0, "worse": 0}
    for seed in range(40):
        case, plan = planned(seed, "tiny")
        try:
            verdict, wrong = against_brute(case, MOST, plan)
        except TooLargeError:
            continue
        assert wrong == [], seed
        verdicts[verdict] += 1
    assert verdicts["equal"] + verdicts["worse"] > 25
    assert verdicts["equal"] >= 0.9 * sum(verdicts.values()), verdicts
