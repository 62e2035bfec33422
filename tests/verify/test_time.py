"""The verifiers of problems and documents in time: exact values, and one tick or byte less is that violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from iegopt.errors import SpecError
from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.verify.assignment import check_assignment
from iegopt.verify.claim import check_claim
from iegopt.verify.instance import check_placement
from iegopt.verify.report import Violation
from tests.verify.timed import CHOICE, MAKESPAN, OBJECTIVE, START, TICKS, placement, tight, tight_problem

TIMES = [at * TICKS for at in START]


def test_the_tight_schedule_is_good() -> None:
    report = check_assignment(tight_problem(), CHOICE, TIMES)
    assert report.ok
    assert (report.objective, report.makespan) == (OBJECTIVE * TICKS, MAKESPAN * TICKS)
    report = check_placement(tight(), placement(START))
    assert report.ok
    assert (report.objective, report.makespan) == (OBJECTIVE, MAKESPAN)


@pytest.mark.parametrize(
    ("stage", "by", "expected"),
    [
        (0, -1, [Violation("start", "a", -1, 0)]),
        (1, -1, [Violation("order", "a -> b", TICKS - 1, TICKS), Violation("no_overlap", "a, b on g0", 1, 0)]),
        (2, -1, [Violation("order", "a -> c", 2 * TICKS - 1, 2 * TICKS)]),
        (3, -1, [Violation("order", "c -> d", 4 * TICKS - 1, 4 * TICKS)]),
        (3, 1, [Violation("finish_by", "d", 5 * TICKS + 1, 5 * TICKS),
                Violation("deadline", "d", 5 * TICKS + 1, 5 * TICKS)]),
    ],
)  # fmt: skip
def test_one_start_off_by_one_tick(stage: int, by: int, expected: list[Violation]) -> None:
    start = list(TIMES)
    start[stage] += by
    found = check_assignment(tight_problem(), CHOICE, start).violations
    assert {(v.rule, v.where) for v in found} == {(v.rule, v.where) for v in expected}
    if len(expected) == 1:
        assert list(found) == expected


def test_one_tick_of_overlap() -> None:
    roomy = replace(tight_problem(), capacity=tight_problem().capacity * 3)
    assert check_assignment(roomy, CHOICE, [0, 3 * TICKS, 2 * TICKS, 4 * TICKS]).ok
    late = check_assignment(roomy, CHOICE, [0, 3 * TICKS + 1, 2 * TICKS, 4 * TICKS])
    assert list(late.violations) == [Violation("no_overlap", "b, d on g0", 1, 0)]


@pytest.mark.parametrize("seed", range(10))
def test_every_pair_that_overlaps_on_a_device_is_told(seed: int) -> None:
    """Thirty stages on random gangs at random moments, some of no time: as many ticks as two have in common."""
    rng = np.random.default_rng(seed)
    gangs = [[0], [1], [2], [0, 1], [1, 2], [0, 1, 2]]
    level, link = [0] * len(gangs), {"latency": 0, "bandwidth": 1}
    site, start = rng.integers(len(gangs), size=30), rng.integers(40, size=30).tolist()
    length = rng.integers(6, size=30).tolist()
    options = {"variant": ["x"], "cost": [0], "memory": [0]}
    document = {
        "format": "iegopt-instance/1",
        "extensions": ["no_overlap"],
        "devices": {"id": ["g0", "g1", "g2"], "memory": [0, 0, 0]},
        "sites": {"id": list("abcdef"), "devices": gangs, "domain": level, "host": level, "rack": level,
                  "datacenter": level},
        "links": dict.fromkeys(("domain", "host", "rack", "datacenter", "wan"), link),
        "stages": [
            {"id": f"t{v}", "options": {**options, "site": [int(site[v])], "time": [length[v] * 1e-9]}}
            for v in range(30)
        ],
        "edges": [],
    }  # fmt: skip
    runs = [set(range(at, at + ticks)) for at, ticks in zip(start, length, strict=True)]
    expected = [
        Violation("no_overlap", f"t{v}, t{u} on g{d}", len(runs[u] & runs[v]), 0)
        for u in range(30)
        for v in range(u)
        for d in sorted(set(gangs[site[u]]) & set(gangs[site[v]]))
        if runs[u] & runs[v]
    ]
    assert expected
    found = check_assignment(to_problem(parse_instance(document)), list(range(30)), start)
    assert list(found.violations) == expected


def with_capacity(d: int) -> Callable[[Problem], Problem]:
    return lambda p: replace(p, capacity=p.capacity - np.eye(2, dtype=np.int64)[d])


@pytest.mark.parametrize("device", [0, 1])
def test_one_byte_less_at_the_worst_moment(device: int) -> None:
    problem = with_capacity(device)(tight_problem())
    worst = [70, 50][device]
    found = check_assignment(problem, CHOICE, TIMES).violations
    assert list(found) == [Violation("memory", f"g{device}", worst, worst - 1)]


def test_kv_handed_on_is_one_copy_only_where_it_is() -> None:
    """While b runs, g0 holds a (40, for b) and b (60), 30 of which are a's: 70. Handed on by no edge: 100."""
    problem = tight_problem()
    apart = replace(problem, edges=replace(problem.edges, hands_on=None))
    assert list(check_assignment(apart, CHOICE, TIMES).violations) == [Violation("memory", "g0", 100, 70)]
    control = replace(problem, edges=replace(problem.edges, hands_on=None, kind=("control",) * 3))
    assert check_assignment(control, CHOICE, TIMES).ok  # a lets go when it ends: no more than d's 70


def test_the_sum_would_be_too_much() -> None:
    problem = replace(tight_problem(), peak_memory=False)
    assert list(check_assignment(problem, CHOICE, TIMES).violations) == [Violation("memory", "g0", 170, 70)]


def test_a_makespan_costs_its_weight_rounded_up() -> None:
    problem = replace(tight_problem(), makespan_weight=0.333333)
    report = check_assignment(problem, CHOICE, TIMES)
    assert report.objective == 4 * TICKS + 1_666_665_000
    slower = replace(problem.options, time=problem.options.time + 1)
    problem = replace(problem, options=slower, deadline=NO_LIMIT, finish_by=np.full(4, NO_LIMIT))
    report = check_assignment(problem, CHOICE, [0, TICKS + 1, 2 * TICKS + 1, 4 * TICKS + 2])
    assert report.ok
    assert report.objective == 4 * TICKS + 1_666_665_001


def test_starts_are_wanted_where_stages_must_not_overlap_and_there_alone() -> None:
    problem = tight_problem()
    assert [v.rule for v in check_assignment(problem, CHOICE).violations] == ["start"]
    assert [v.rule for v in check_assignment(problem, CHOICE, TIMES[1:]).violations] == ["start"]
    free = replace(problem, no_overlap=False)
    assert check_assignment(free, CHOICE).ok
    assert [v.rule for v in check_assignment(free, CHOICE, TIMES).violations] == ["start"]


@pytest.mark.parametrize(
    ("start", "rules"),
    [
        ([-1e-9, 1, 2, 4], {"start"}),
        ([0, 1, 2 - 2e-9, 4], {"order"}),
        ([0, 1 - 1e-9, 2, 4], {"order", "no_overlap"}),
        ([0, 1, 2, 4 + 3e-9], {"finish_by", "deadline"}),
        ([0, 3, 2, 4.5], {"finish_by", "deadline"}),
        ([0, None, 2, 4], {"start"}),
    ],
)
def test_documents_are_checked_to_the_nanosecond(start: list[Any], rules: set[str]) -> None:
    assert {v.rule for v in check_placement(tight(), placement(start)).violations} >= rules
    assert not {v.rule for v in check_placement(tight(), placement(start)).violations} - rules - {"memory"}


def test_one_byte_less_in_a_document() -> None:
    document = tight()
    document["devices"]["memory"] = [70 - 1e-3, 50]
    assert [v.where for v in check_placement(document, placement(START)).violations] == ["g0"]


def test_a_claimed_objective_counts_the_makespan() -> None:
    plan = {"status": "feasible", "objective": OBJECTIVE, "bound": None, "gap": None, "makespan": MAKESPAN,
            "placement": placement(START)}  # fmt: skip
    assert check_claim(tight(), plan).ok
    assert [v.where for v in check_claim(tight(), {**plan, "objective": 4.0}).violations] == ["objective"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: d["edges"][1].update({"to": 1, "hands_on": True}), "expected one into a stage"),
        (lambda d: d["edges"][0].update({"kind": "control"}), "expected a data edge"),
        (lambda d: d["stages"][0]["options"].update({"kv": [41, 0]}), "expected at most the option's memory"),
        (lambda d: d.update({"makespan_weight": -1}), "makespan_weight"),
        (lambda d: d.pop("makespan_weight"), "makespan_weight"),
        (lambda d: d["extensions"].remove("peak_memory"), "kv"),
        (lambda d: d["extensions"].remove("makespan_weight"), "makespan_weight"),
    ],
)
def test_documents_that_are_refused(change: Callable[[dict[str, Any]], object], message: str) -> None:
    document = tight()
    change(document)
    with pytest.raises(SpecError, match=message):
        parse_instance(document)
