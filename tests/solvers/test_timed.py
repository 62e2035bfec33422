"""Time by hand: list schedules, peaks of memory, bounds, and standard task graphs with published makespans."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.instance import from_problem, parse_instance, to_problem
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute, enumeration_seconds
from iegopt.solvers.cpsat import CpSat
from iegopt.solvers.evaluate import device_load, finish_times, objective, why_infeasible
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.result import Params, Result, Status
from iegopt.solvers.timed.bound import MakespanBound, surviving
from iegopt.solvers.timetable import timetable
from iegopt.verify.assignment import check_assignment
from iegopt.verify.instance import check_placement
from tests.conftest import shared_dir
from tests.solvers.random_timed import timed_instance
from tests.verify.timed import CHOICE, OBJECTIVE, START, TICKS, tight_problem


def tasks(durations: list[int], edges: list[tuple[int, int]], processors: int) -> Problem:
    """Tasks on identical processors, without communication; seconds."""
    level = [0] * processors
    ids = [f"p{d}" for d in range(processors)]
    options = {"site": list(range(processors)), "variant": ["x"] * processors, "cost": level, "memory": level}
    link = {"latency": 0, "bandwidth": 1}
    document: dict[str, Any] = {
        "format": "iegopt-instance/1",
        "devices": {"id": ids, "memory": level},
        "sites": {"id": ids, "devices": [[d] for d in range(processors)], "domain": level, "host": level,
                  "rack": level, "datacenter": level},
        "links": dict.fromkeys(("domain", "host", "rack", "datacenter", "wan"), link),
        "stages": [{"id": f"t{i}", "options": {**options, "time": [d] * processors}} for i, d in enumerate(durations)],
        "edges": [{"from": u, "to": v, "kind": "control"} for u, v in edges],
        "makespan_weight": 1,
        "extensions": ["makespan_weight", "no_overlap"],
    }  # fmt: skip
    return to_problem(parse_instance(document))


def test_the_list_schedule_of_the_tight_problem_is_the_tight_schedule() -> None:
    problem = tight_problem()
    choice = np.array(CHOICE)
    table = timetable(problem, choice)
    assert table.start.tolist() == [at * TICKS for at in START]
    assert device_load(problem, choice).tolist() == [70, 50]
    assert objective(problem, choice) == OBJECTIVE * TICKS
    assert why_infeasible(problem, choice) is None


@pytest.mark.parametrize(
    ("stage", "by", "broken"),
    [(0, -1, "start of a"), (1, -1, "order of a and b"), (3, -1, "order of c and d"), (3, 1, "finish time of d")],
)
def test_one_tick_off_is_named(stage: int, by: int, broken: str) -> None:
    start = np.array(START) * TICKS
    start[stage] += by
    assert why_infeasible(tight_problem(), np.array(CHOICE), start) == broken


def test_one_tick_of_overlap_is_named() -> None:
    problem = replace(tight_problem(), capacity=tight_problem().capacity * 3)
    start = np.array([0, 3 * TICKS + 1, 2 * TICKS, 4 * TICKS])
    assert why_infeasible(problem, np.array(CHOICE), start) == "overlap of b and d"


def test_a_longer_path_goes_first() -> None:
    """Two chains on one processor each and one on both: the long task behind the short one decides the order."""
    problem = tasks([2, 1, 5], [(1, 2)], 2)
    choice = np.array([0, 2, 5])  # t0 and t1 on p0, t2 on p1
    assert timetable(problem, choice).start.tolist() == [1 * TICKS, 0, 1 * TICKS]
    assert finish_times(problem, choice).max() == 6 * TICKS


def test_without_overlap_bounds_count_the_work_between_head_and_tail() -> None:
    """1 s, then four tasks of 3 s on two processors, then 1 s: 1 + 12/2 + 1."""
    problem = tasks([1, 3, 3, 3, 3, 1], [(0, i) for i in range(1, 5)] + [(i, 5) for i in range(1, 5)], 2)
    assert MakespanBound(problem).least == 8 * TICKS
    assert MakespanBound(replace(problem, no_overlap=False)).least == 5 * TICKS
    assert MakespanBound(tasks([3, 3, 3], [], 2)).least == 6 * TICKS  # 4.5 s of work, in tasks of 3 s


@pytest.mark.parametrize("solver", ["auto", "cpsat", "local", "greedy", "brute"])
def test_the_weight_of_the_makespan_decides(solver: str) -> None:
    """One task that is cheap and slow on p0, dear and fast on p1, for either weight."""
    problem = tasks([4], [], 2)
    options = replace(problem.options, time=np.array([4, 1]) * TICKS, cost=np.array([0, 2]) * TICKS)
    problem = replace(problem, options=options)
    for weight, site, value in ((1.0, 1, 3.0), (0.5, 0, 2.0)):
        limit = 0.1 if solver == "local" else 5.0
        result = solve(replace(problem, makespan_weight=weight), solver, Params(time_limit=limit))
        assert (result.choice is not None and result.choice.tolist(), result.objective) == ([site], value * TICKS)


def test_cpsat_proves_where_makespan_and_cost_share_no_divisor() -> None:
    problem = replace(tasks([1, 2, 3, 4], [(0, 3)], 2), makespan_weight=0.123457)
    assert solve(problem, "cpsat").objective == problem.makespan_cost(5 * TICKS) == 617_285_000


def test_options_on_a_path_that_is_too_long_do_not_survive() -> None:
    problem = tasks([1, 1], [(0, 1)], 2)
    options = replace(problem.options, time=np.array([1, 9, 1, 2]) * TICKS)
    problem = replace(problem, options=options)
    kept = surviving(relaxation(problem), MakespanBound(problem), 3 * TICKS)
    assert kept.tolist() == [True, False, True, True]


@pytest.mark.parametrize("seed", range(12))
def test_a_hint_is_never_lost(seed: int) -> None:
    problem = to_problem(parse_instance(timed_instance(seed, ("makespan_weight", "no_overlap"))))
    best = solve(problem, "brute")
    if best.choice is None:
        return
    for solver in ("greedy", "cpsat"):
        result = solve(problem, solver, Params(time_limit=2.0), best.choice)
        assert result.objective is not None
        assert result.objective <= objective(problem, best.choice)  # by its list schedule


@pytest.mark.parametrize("extra", [{}, {"no_overlap": True}])
def test_a_stage_that_takes_no_time_has_to_fit_its_device_all_the_same(extra: dict[str, bool]) -> None:
    """Of 6 bytes with 4 free, for solvers and verifiers alike."""
    problem = replace(tasks([0], [], 1), peak_memory=True, no_overlap=False, makespan_weight=0.0)
    problem = replace(problem, **extra, capacity=problem.capacity + 4)
    problem = replace(problem, options=replace(problem.options, share=problem.options.share + 6))
    for solver in ("auto", "cpsat", "local", "greedy", "brute"):
        assert solve(problem, solver, Params(time_limit=0.5)).status is Status.INFEASIBLE
    start = [0] if extra else None
    assert [v.rule for v in check_assignment(problem, [0], start).violations] == ["memory"]
    seconds = check_placement(from_problem(problem).document, {"t0": {"site": "p0", "variant": "x", "start": 0.0}})
    assert [v.rule for v in seconds.violations] == ["memory"]


def test_a_deadline_below_the_longest_path_is_infeasible_at_once() -> None:
    """Six tasks of 2 s between one before and one after all of them: 6 s, and 5 s to do it."""
    edges = [(0, v) for v in range(1, 7)] + [(v, 7) for v in range(1, 7)]
    problem = replace(tasks([2] * 8, edges, 4), deadline=5 * TICKS, peak_memory=True)
    for solver in ("auto", "local", "greedy"):
        result = solve(problem, solver, Params(time_limit=0.2))
        assert (result.status, result.proof) == (Status.INFEASIBLE, "longest path of least times")
        assert result.note == "t7 ends after 6 s at the soonest, and has 5 s"


@pytest.mark.parametrize("features", [("peak_memory",), ("no_overlap",), ("makespan_weight", "peak_memory")])
def test_small_problems_are_enumerated_within_a_short_limit(features: tuple[str, ...]) -> None:
    """Where a whole second is far, and no engine is worth its start."""
    for seed in range(30):
        problem = to_problem(parse_instance(timed_instance(seed, features)))
        truth, result = solve(problem, "brute"), solve(problem, "auto", Params(time_limit=0.35))
        if enumeration_seconds(problem, problem.allowed) < 0.05:
            assert (result.status, result.objective) == (truth.status, truth.objective)


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_more_combinations_than_a_float_holds_are_not_enumerated(weight: float) -> None:
    problem = replace(generate("chain", 200, 64, "slack", 1), makespan_weight=weight)  # 64²⁰⁰ > 10³⁰⁸
    assert (Brute().supports(problem) or "").startswith("1.72e+361 combinations")
    assert enumeration_seconds(problem, problem.allowed) > 10**9
    assert solve(problem, "auto", Params(time_limit=0.3)).choice is not None


def test_auto_and_cpsat_refuse_what_they_cannot_prove() -> None:
    problem = replace(tasks([1] * 12, [], 2), peak_memory=True)
    assert "schedules" in (Brute().supports(problem) or "")
    assert CpSat().supports(problem) is None


def test_a_result_has_start_times_with_a_plan_only() -> None:
    with pytest.raises(ValueError, match="start times without a plan"):
        Result(Status.UNKNOWN, None, None, None, None, "x", 0.0, "", start=np.zeros(1, dtype=np.int64))


@pytest.mark.parametrize(("graph", "processors"), [("0000", 2), ("0009", 4), ("0063", 4), ("0045", 2)])
def test_published_makespans_of_standard_task_graphs_are_met(graph: str, processors: int) -> None:
    """Optima of the STG set; where the table has a bound and a value (0009 on 4), the value is the optimum."""
    folder = shared_dir() / "data" / "stg"
    lines = (folder / f"rand{graph}.stg").read_text().splitlines()
    rows = [[int(word) for word in line.split()] for line in lines if line.split() and line.split()[0].isdigit()][1:]
    table = csv.reader((folder / f"Case50_{processors}_OPT.csv").read_text().splitlines())
    published = {name: int(values[-1]) for name, _, *values in table}[f"50/rand{graph}.stg"]
    problem = tasks([row[1] for row in rows], [(u, row[0]) for row in rows for u in row[3 : 3 + row[2]]], processors)
    result = solve(problem, "auto", Params(time_limit=20.0))
    assert result.objective == published * TICKS
    assert result.status is Status.OPTIMAL
