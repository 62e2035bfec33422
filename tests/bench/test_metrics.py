"""Figures of results that were written by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from iegopt.bench.charts import Chart, charts, gaps_over_time, profile
from iegopt.bench.metrics import (
    best_known,
    contradictions,
    gap_to,
    main_limit,
    primal_gap,
    primal_integral,
    time_to,
    value_at,
    value_in_time,
)
from iegopt.bench.report import summary

Row = dict[str, Any]


def row(solver: str, objective: float | None = None, *, instance: str = "a", **more: Any) -> Row:
    trajectory: list[Any] = []
    if objective is not None:
        trajectory = [[2.0, 150 if objective < 150 else 300, None], [4.0, objective, 90]]
    return {
        "instance": instance, "family": "f", "solver": solver, "engine": solver, "hint": None, "limit": 10.0,
        "seed": 0, "repetition": 0,
        "status": "unknown" if objective is None else "feasible", "reason": "", "objective": objective, "bound": None,
        "seconds": 5.0, "killed": False, "memory": None, "published": None, "published_optimal": False,
        "trajectory": trajectory, **more,
    }  # fmt: skip


ROWS = [
    row("x", 100, status="optimal", bound=100, seconds=4.0, memory=7),
    row("y", 120, killed=True, seconds=12.5, memory=5),
    row("z"),
    row("w", status="unsupported", reason="no edges", seconds=None),
    row("x", 210, instance="b", published=200, published_optimal=True),
    row("y", 200.5, instance="b"),
    row("z", instance="b", status="crashed", reason="signal 11"),
    row("w", instance="b", status="unsupported", reason="no edges", seconds=None),
]
DOCUMENT = {"rows": ROWS}


def test_the_best_known_value_is_the_least_of_published_and_verified() -> None:
    assert best_known(ROWS) == {"a": 100, "b": 200}
    assert best_known([row("x")]) == {}


def test_gaps() -> None:
    assert gap_to(100, 120) == pytest.approx(0.2)
    assert gap_to(100, None) is None
    assert gap_to(0, 0) == 0
    assert gap_to(0, 1) == math.inf
    assert primal_gap(100, 150) == pytest.approx(1 / 3)
    assert primal_gap(100, None) == primal_gap(-1, 1) == 1
    assert primal_gap(0, 0) == 0


def test_the_primal_integral_is_the_area_under_the_gap() -> None:
    # 1 for 2 s, (150 − 100)/150 for 2 s, (120 − 100)/120 for 6 s, of 10 s
    assert primal_integral(row("y", 120), 100) == pytest.approx((2 + 2 / 3 + 1) / 10)
    assert primal_integral(row("z"), 100) == 1
    late = row("x", 100, trajectory=[[10.5, 100, None]])
    assert primal_integral(late, 100) == 1


def test_time_to_a_gap() -> None:
    assert time_to(row("x", 101), 100) == 4
    assert time_to(row("x", 102), 100) is None
    assert time_to(row("x", 102), 100, gap=0.6) == 2
    assert time_to(row("x", 101), None) is None
    assert [value_at(row("x", 101), moment) for moment in (1.9, 2.0, 9.0)] == [None, 150, 101]


def test_what_comes_after_the_limit_does_not_count() -> None:
    points = [[3.0, 130, None], [9.0, 130, 91], [11.9, 100, 100]]
    slow = row("x", 100, seconds=12.0, status="optimal", bound=100, trajectory=points)
    (line,) = summary({"rows": [slow]})
    assert (line.plans, line.proved, line.late, line.worst_gap) == (1, 0, 1, pytest.approx(0.3))
    assert (line.near_seconds, line.early_gap, line.proven_gap) == (None, math.inf, pytest.approx(0.3))
    assert value_in_time(row("x", 100, seconds=11.0)) == 100
    assert value_in_time(row("x", 100, seconds=11.2, trajectory=[[11.1, 100, None]])) is None


def test_the_table_per_family() -> None:
    lines = {line.solver: line for line in summary(DOCUMENT)}
    assert list(lines) == ["x", "y", "z", "w"]
    x, y, z, w = lines.values()
    assert (x.runs, x.plans, x.proved, x.late, x.memory, x.seconds) == (2, 2, 1, 0, 7, 4.5)
    assert (x.early_gap, x.median_gap, x.worst_gap) == (math.inf, pytest.approx(0.025), pytest.approx(0.05))
    assert x.proven_gap == math.inf  # one of two runs has no bound
    assert x.near_seconds is None  # one of two runs: the median is never
    assert (y.worst_gap, y.late) == (pytest.approx(0.2), 1)
    assert (z.runs, z.plans, z.seconds, z.median_gap, z.integral) == (2, 0, 5.0, math.inf, 1)
    assert z.remarks == ("1 × unknown: ", "1 × crashed: signal 11")
    assert (w.runs, w.seconds, w.median_gap, w.remarks) == (0, None, None, ("2 × unsupported: no edges",))


def test_claims_that_contradict_each_other_are_told() -> None:
    assert contradictions(ROWS) == []
    assert contradictions([row("x", 100), row("y", bound=101)]) == ["a: bound 101 of y is above the plan 100 of x"]
    assert contradictions([row("x", 100), row("y", status="infeasible")]) == [
        "a: y calls it infeasible, x has a plan of 100"
    ]
    beaten = row("x", 99, published=100, published_optimal=True)
    assert contradictions([beaten]) == ["a: x has 99, below the published optimum 100"]
    assert contradictions([row("x", status="refused", reason="memory")]) == ["a: x was refused: memory"]


def steps(chart: Chart) -> dict[str, list[tuple[float, float]]]:
    return {line.name: list(zip(line.x, line.y, strict=True)) for line in chart.series}


def test_a_performance_profile_counts_what_is_solved_within_a_factor() -> None:
    rows = [
        row("x", instance=name, seconds=seconds, status=status)
        for name, seconds, status in (("a", 1.0, "optimal"), ("b", 8.0, "optimal"), ("c", 1.0, "infeasible"))
    ] + [
        row("y", instance=name, seconds=seconds, status=status)
        for name, seconds, status in (("a", 3.0, "optimal"), ("b", 2.0, "optimal"), ("c", 10.0, "unknown"))
    ]
    chart = profile(rows, "t", lambda r: r["seconds"] if r["status"] != "unknown" else None, ["x", "y"])
    assert steps(chart) == {
        "x": [(1, 0), (1, pytest.approx(1 / 3)), (1, pytest.approx(2 / 3)), (4, 1)],
        "y": [(1, 0), (1, pytest.approx(1 / 3)), (3, pytest.approx(2 / 3))],
    }


def test_the_main_limit_is_that_of_most_solvers() -> None:
    reference = row("x", 99, limit=60.0)
    assert main_limit([*ROWS, reference]) == 10
    assert main_limit([row("x", limit=1.0), row("x", limit=2.0)]) == 2
    assert main_limit([]) == 0
    assert charts({"rows": [*ROWS, reference]})[0].title == "Time to proof, limit 10 s"
    assert best_known([*ROWS, reference])["a"] == 99


def test_gaps_over_time_are_means_over_runs_and_shorter_limits_fill_in() -> None:
    short = row("x", 125, limit=1.0, trajectory=[[0.5, 125, None]])
    chart = gaps_over_time([short, *ROWS[:3]], "f", {"a": 100}, ["x", "y", "z"])
    at = {name: {round(x, 3): y for x, y in own} for name, own in steps(chart).items()}
    assert at["x"][0.001] == 1
    assert min(y for x, y in at["x"].items() if 0.6 < x < 2) == pytest.approx(0.2)
    assert at["x"][10.0] == 0
    assert at["y"][10.0] == pytest.approx(1 / 6)
    assert set(at["z"].values()) == {1}


def test_a_solver_has_one_number_in_all_charts() -> None:
    drawn = charts(DOCUMENT)
    assert [chart.title for chart in drawn] == [
        "Time to proof, limit 10 s", "Time to 1 % of the best known, limit 10 s", "Gap over time, f"
    ]  # fmt: skip
    numbers = {(line.name, line.number) for chart in drawn for line in chart.series}
    assert numbers == {("x", 0), ("y", 1), ("z", 2)}
