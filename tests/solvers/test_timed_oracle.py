"""Solvers against brute force where time counts: makespan, no overlaps, peak memory, in every mixture."""

from __future__ import annotations

from functools import cache
from typing import Any
from unittest import mock

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.instance import from_problem, parse_instance, to_problem
from iegopt.solvers.api import SOLVERS, solve
from iegopt.solvers.evaluate import objective, why_infeasible
from iegopt.solvers.result import Params, Result, Status
from iegopt.solvers.timetable import timetable
from iegopt.verify.assignment import check_assignment
from iegopt.verify.instance import check_placement
from tests.solvers.agreement import placement
from tests.solvers.random_timed import FEATURES, timed_instance

SEEDS, CHUNK = 360, 60
ENUMERATES = "auto-enumerates"
"""``auto`` as it is: without its enumeration it is not compared with itself."""
COMPARED = ("cpsat", "auto", ENUMERATES, "local", "greedy")


@cache
def oracle(seed: int) -> tuple[dict[str, Any], Problem, Result]:
    document = timed_instance(seed)
    problem = to_problem(parse_instance(document, f"seed {seed}"))
    return document, problem, solve(problem, "brute")


@cache
def answer(seed: int, name: str) -> Result:
    problem = oracle(seed)[1]
    limit = {"cpsat": None, "auto": 30.0, ENUMERATES: 30.0}.get(name, 0.02)
    most = 1.0 if name == ENUMERATES else -1.0
    with (
        mock.patch.multiple("iegopt.solvers.timed.solve", _SEARCH_MOST=0.005, _ENUMERATION_MOST=most),
        mock.patch("iegopt.solvers.search.greedy._START_MOST", 0.005),
    ):
        return solve(problem, "auto" if name == ENUMERATES else name, Params(time_limit=limit))


def placed(problem: Problem, choice: Any, start: Any) -> dict[str, Any]:
    """A plan in the words of the instance format, with starts where there are any."""
    made: dict[str, Any] = placement(problem, choice)
    if start is not None:
        for name, at in zip(problem.stages, np.asarray(start).tolist(), strict=True):
            made[name]["start"] = at / 1e9
    return made


def wrong(seed: int, name: str) -> str | None:
    document, problem, truth = oracle(seed)
    result = answer(seed, name)
    if result.choice is not None:
        assert (result.start is not None) == problem.no_overlap
        report = check_placement(document, placed(problem, result.choice, result.start))
        if not report.ok:
            return f"breaks {report.violations[0]}"
    if truth.objective is None:
        return None if result.choice is None else "a plan where there is none"
    if result.status is Status.INFEASIBLE:
        return f"infeasible, but there is a plan of {truth.objective}"
    if result.objective is not None and result.objective < truth.objective:
        return f"objective {result.objective} below the optimum {truth.objective}"
    if result.bound is not None and result.bound > truth.objective:
        return f"bound {result.bound} above the optimum {truth.objective}"
    if SOLVERS["auto" if name == ENUMERATES else name].exact and result.status is not Status.OPTIMAL:
        return f"{result.status}, the oracle says {truth.status}"
    if result.status is Status.OPTIMAL and result.objective is not None:
        above = result.objective - truth.objective
        return f"{above} ticks above the optimum" if above > 1e-6 * abs(truth.objective) else None
    return None


@pytest.mark.parametrize("name", COMPARED)
@pytest.mark.parametrize("first", range(0, SEEDS, CHUNK))
def test_no_answer_contradicts_brute_force(name: str, first: int) -> None:
    found = {seed: wrong(seed, name) for seed in range(first, first + CHUNK)}
    assert not {seed: why for seed, why in found.items() if why}


def test_exact_solvers_know_infeasible_from_unknown() -> None:
    for seed in range(SEEDS):
        if oracle(seed)[2].status is Status.INFEASIBLE:
            for name in ("cpsat", "auto", ENUMERATES):
                assert answer(seed, name).status is Status.INFEASIBLE


def test_solvers_that_cannot_state_time_say_so() -> None:
    problem = oracle(0)[1]
    assert "makespan" in (SOLVERS["tree"].supports(problem) or "")
    assert "makespan" in (SOLVERS["milp"].supports(problem) or "")


def test_the_random_problems_cover_what_they_should() -> None:
    answers = [oracle(seed) for seed in range(SEEDS)]
    assert 0.1 * SEEDS < sum(truth.objective is None for _, _, truth in answers) < 0.5 * SEEDS
    for feature in FEATURES:
        assert sum(feature in document["extensions"] for document, _, _ in answers) > 0.4 * SEEDS
    assert sum(any("hands_on" in edge for edge in document["edges"]) for document, _, _ in answers) > 0.3 * SEEDS


@pytest.mark.parametrize("feature", [*FEATURES, "hands_on"])
def test_every_feature_changes_some_answers(feature: str) -> None:
    """Without the feature the optimum of a fair share of the problems is another one."""
    changed = 0
    for seed in range(SEEDS):
        document, _, truth = oracle(seed)
        less = timed_instance(seed)
        if feature == "hands_on":
            for edge in less["edges"]:
                edge.pop("hands_on", None)
        elif feature in less["extensions"]:
            less["extensions"].remove(feature)
            less.pop("makespan_weight" if feature == "makespan_weight" else "", None)
            if feature == "peak_memory":
                for part in [*less["edges"], *(stage["options"] for stage in less["stages"])]:
                    part.pop("hands_on", None)
                    part.pop("kv", None)
        if less != document:
            other = solve(to_problem(parse_instance(less)), "brute")
            changed += other.objective != truth.objective
    assert changed >= 8


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_evaluation_and_both_verifiers_agree_on_any_plan(first: int) -> None:
    """Random options and shaken start times: the same verdict, the same rules broken, the same value."""
    for seed in range(first, first + 100):
        document = timed_instance(seed)
        problem = to_problem(parse_instance(document))
        again = to_problem(parse_instance(from_problem(problem).document))
        rng = np.random.default_rng(seed)
        for _ in range(4):
            choice = rng.integers(problem.options.ptr[:-1], problem.options.ptr[1:])
            start = timetable(problem, choice).start if problem.no_overlap else None
            if start is not None and rng.random() < 0.5:
                start = start + rng.choice([0, 0, 0, 10**8, -(10**8)], problem.V)
            given = None if start is None else start.tolist()
            report = check_assignment(problem, choice.tolist(), given)
            assert (why_infeasible(problem, choice, start) is None) == report.ok
            assert objective(problem, choice, start) == report.objective
            assert check_assignment(again, choice.tolist(), given) == report
            seconds = check_placement(document, placed(problem, choice, start))
            assert sorted(v.rule for v in seconds.violations) == sorted(v.rule for v in report.violations)
            assert seconds.objective is not None
            assert seconds.objective * 1e9 == pytest.approx(report.objective, abs=20)


@pytest.mark.parametrize("name", sorted(set(SOLVERS) - {*COMPARED, "brute"}))
def test_a_solver_that_is_not_compared_here_refuses_what_depends_on_time(name: str) -> None:
    for seed in range(CHUNK):
        assert SOLVERS[name].supports(oracle(seed)[1]), f"seed {seed}"
