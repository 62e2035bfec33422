"""The verifier of documents: exact values, violations one at a time, and claims that do not hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from iegopt.problem.instance import parse_instance, to_problem
from iegopt.verify.assignment import check_assignment
from iegopt.verify.claim import check_claim
from iegopt.verify.instance import check_placement
from tests.solvers.agreement import placement
from tests.solvers.random_problems import random_instance
from tests.verify.small import MAKESPAN, OBJECTIVE, PLACEMENT, tight


def test_the_tight_plan_is_good() -> None:
    report = check_placement(tight(), PLACEMENT)
    assert report.ok
    assert report.objective == pytest.approx(OBJECTIVE, abs=1e-12)
    assert report.makespan == pytest.approx(MAKESPAN, abs=1e-12)


def lower(by: float, *path: str | int) -> Callable[[dict[str, Any]], None]:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for step in path[:-1]:
            at = at[step]
        at[path[-1]] -= by

    return change


# A path of n stages and transfers is a sum of up to 2n − 1 rounded times: less than n ns may be rounding.
BROKEN: list[tuple[Callable[[dict[str, Any]], None], str, str]] = [
    (lower(1, "devices", "memory", 0), "memory", "g0"),
    (lower(1, "devices", "memory", 1), "memory", "g1"),
    (lower(-1, "stages", 1, "options", "memory", 0), "memory", "g1"),
    (lower(1e-9, "stages", 0, "sla"), "sla", "a"),
    (lower(2e-9, "stages", 1, "finish_by"), "finish_by", "b"),
    (lower(3e-9, "deadline"), "deadline", "c"),
    (lower(1.5e-9, "budget", "limit"), "budget", "a, c"),
    (lambda d: d["affinity"][0].update(level="domain"), "affinity", "a, b"),
    (lambda d: d["affinity"][0].update(apart=True), "affinity", "a, b"),
    (lambda d: d["affinity"][1].update(apart=False), "affinity", "a, b, c"),
]


@pytest.mark.parametrize(("change", "rule", "where"), BROKEN)
def test_one_unit_too_little_is_one_violation(change: Callable[[dict[str, Any]], None], rule: str, where: str) -> None:
    document = tight()
    change(document)
    report = check_placement(document, PLACEMENT)
    assert [(v.rule, v.where) for v in report.violations] == [(rule, where)]


def test_half_a_tick_is_rounding() -> None:
    document = tight()
    lower(0.5e-9, "stages", 0, "sla")(document)
    assert check_placement(document, PLACEMENT).ok


PLACES: list[tuple[dict[str, object], str, str]] = [
    ({key: PLACEMENT[key] for key in ("a", "c")}, "stage", "b"),
    ({**PLACEMENT, "d": PLACEMENT["a"]}, "stage", "d"),
    ({**PLACEMENT, "b": {"site": "g1", "variant": "int8"}}, "option", "b"),
    ({**PLACEMENT, "b": {"site": "g9", "variant": "fp16"}}, "option", "b"),
    ({**PLACEMENT, "b": {"site": "g1"}}, "option", "b"),
    ({**PLACEMENT, "b": "g1"}, "option", "b"),
]


@pytest.mark.parametrize(("places", "rule", "where"), PLACES)
def test_stages_and_options_that_are_not_there(places: dict[str, object], rule: str, where: str) -> None:
    report = check_placement(tight(), places)
    assert [(v.rule, v.where) for v in report.violations] == [(rule, where)]
    assert report.objective is None


def claim(**changes: object) -> dict[str, object]:
    good: dict[str, object] = {
        "status": "optimal",
        "objective": OBJECTIVE,
        "bound": OBJECTIVE,
        "gap": 0.0,
        "makespan": MAKESPAN,
        "placement": PLACEMENT,
    }
    return {**good, **changes}


@pytest.mark.parametrize(
    "plan",
    [
        claim(),
        claim(bound=OBJECTIVE * (1 - 0.9e-6), gap=0.9e-6),
        claim(status="feasible", bound=None, gap=None),
        claim(status="feasible", bound=OBJECTIVE / 2, gap=0.5),
        claim(objective=OBJECTIVE + 4e-9),
        {"status": "infeasible", "placement": None},
        {"status": "unknown"},
    ],
)
def test_claims_that_hold(plan: dict[str, object]) -> None:
    assert check_claim(tight(), plan).violations == ()


@pytest.mark.parametrize(
    ("plan", "where"),
    [
        (claim(objective=OBJECTIVE * (1 + 3e-6)), "objective"),
        (claim(objective=None), "objective"),
        (claim(objective=float("nan")), "objective"),
        (claim(objective=True), "objective"),
        (claim(makespan=MAKESPAN * 2), "makespan"),
        (claim(bound=OBJECTIVE * (1 + 3e-6)), "bound"),
        (claim(bound=None, gap=None), "bound"),
        (claim(bound="low"), "bound"),
        (claim(bound=OBJECTIVE * (1 - 3e-6), gap=3e-6), "status"),
        (claim(status="feasible", bound=OBJECTIVE / 2, gap=0.0), "gap"),
        (claim(status="proven"), "status"),
        (claim(status="infeasible"), "status"),
        (claim(placement=None), "placement"),
        (claim(placement=[1]), "placement"),
    ],
)
def test_claims_that_do_not_hold(plan: dict[str, object], where: str) -> None:
    assert [(v.rule, v.where) for v in check_claim(tight(), plan).violations] == [("claim", where)]


@pytest.mark.parametrize("plan", [None, [], "optimal"])
def test_a_plan_that_is_no_object(plan: object) -> None:
    assert [v.where for v in check_claim(tight(), plan).violations] == ["plan"]


@pytest.mark.parametrize("seed", range(150))
def test_both_verifiers_agree(seed: int) -> None:
    document, rng = random_instance(seed), np.random.default_rng(seed)
    problem = to_problem(parse_instance(document))
    for _ in range(10):
        choice = rng.integers(problem.options.ptr[:-1], problem.options.ptr[1:])
        ticks = check_assignment(problem, choice.tolist())
        seconds = check_placement(document, placement(problem, choice))
        assert [(v.rule, v.where) for v in seconds.violations] == [(v.rule, v.where) for v in ticks.violations]
        assert ticks.objective is not None
        assert ticks.makespan is not None
        assert seconds.objective == pytest.approx(ticks.objective / 1e9, abs=2e-8)
        assert seconds.makespan == pytest.approx(ticks.makespan / 1e9, abs=2e-8)
