"""The verifier of problems: exact values, and one tick or byte too little is exactly one violation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers import evaluate
from iegopt.solvers.exact import compiled
from iegopt.verify import assignment
from iegopt.verify.assignment import check_assignment
from tests.solvers.random_problems import random_problem
from tests.verify.small import CHOICE, MAKESPAN, OBJECTIVE, TICKS, tight_problem


@pytest.fixture(autouse=True, params=["python", "compiled"])
def loops(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every test by the loops in Python alone, and with the compiled ones before them."""
    monkeypatch.setattr(assignment, "_sound", None)
    if request.param == "compiled":
        pytest.importorskip("numba", reason="the extra 'fast' is not installed")
        monkeypatch.setattr(compiled, "_ready", None)
        compiled.warmup()


def test_the_tight_plan_is_good() -> None:
    report = check_assignment(tight_problem(), CHOICE)
    assert report.ok
    assert report.objective == round(OBJECTIVE * TICKS)
    assert report.makespan == round(MAKESPAN * TICKS)


def less(name: str, at: int) -> Callable[[Problem], Problem]:
    def change(problem: Problem) -> Problem:
        array = getattr(problem, name).copy()
        array[at] -= 1
        changes: dict[str, Any] = {name: array}
        return replace(problem, **changes)

    return change


def option(name: str, at: int) -> Callable[[Problem], Problem]:
    def change(problem: Problem) -> Problem:
        array = getattr(problem.options, name).copy()
        array[at] += 1
        changes: dict[str, Any] = {name: array}
        return replace(problem, options=replace(problem.options, **changes))

    return change


BROKEN: list[tuple[Callable[[Problem], Problem], str, str, float | str, float | str]] = [
    (less("capacity", 0), "memory", "g0", 126, 125),
    (less("capacity", 1), "memory", "g1", 106, 105),
    (option("share", 2), "memory", "g1", 107, 106),
    (less("sla", 0), "sla", "a", TICKS, TICKS - 1),
    (less("finish_by", 1), "finish_by", "b", 2_500_000_000, 2_499_999_999),
    (lambda p: replace(p, deadline=p.deadline - 1), "deadline", "c", 4 * TICKS, 4 * TICKS - 1),
    (lambda p: replace(p, budget=p.budget - 1), "budget", "a, c", 2 * TICKS, 2 * TICKS - 1),
    (
        lambda p: replace(p, affinities=(replace(p.affinities[0], level=0), *p.affinities[1:])),
        "affinity",
        "a, b",
        "g0, g1",
        "together",
    ),
    (
        lambda p: replace(p, affinities=(replace(p.affinities[0], apart=True), *p.affinities[1:])),
        "affinity",
        "a, b",
        "g0, g1",
        "apart",
    ),
]


@pytest.mark.parametrize(("change", "rule", "where", "used", "allowed"), BROKEN)
def test_one_unit_too_little_is_one_violation(
    change: Callable[[Problem], Problem], rule: str, where: str, used: float | str, allowed: float | str
) -> None:
    report = check_assignment(change(tight_problem()), CHOICE)
    assert [(v.rule, v.where, v.used, v.allowed) for v in report.violations] == [(rule, where, used, allowed)]


def test_shared_weights_of_two_devices_count_on_both() -> None:
    problem = option("weight_share", 4)(tight_problem())
    assert [v.where for v in check_assignment(problem, CHOICE).violations] == ["g0", "g1"]


@pytest.mark.parametrize(("choice", "where"), [([0, 0, 4], "b"), ([0, 2, 6], "c"), ([-1, 2, 4], "a")])
def test_an_option_of_another_stage(choice: list[int], where: str) -> None:
    report = check_assignment(tight_problem(), choice)
    assert [(v.rule, v.where) for v in report.violations] == [("option", where)]
    assert report.objective is None


def test_a_stage_that_is_missing() -> None:
    assert [v.rule for v in check_assignment(tight_problem(), CHOICE[:2]).violations] == ["stage"]


@pytest.mark.parametrize("seed", range(150))
def test_it_agrees_with_evaluate(seed: int) -> None:
    problem, rng = random_problem(seed), np.random.default_rng(seed)
    for _ in range(10):
        choice = rng.integers(problem.options.ptr[:-1], problem.options.ptr[1:])
        report = check_assignment(problem, choice.tolist())
        assert report.objective == evaluate.objective(problem, choice)
        assert report.makespan == evaluate.finish_times(problem, choice).max()
        assert report.ok == evaluate.feasible(problem, choice)


@pytest.mark.parametrize("links", ["tree", "odd", "pairs"])
def test_compiled_loops_say_of_any_choice_what_those_in_python_say(
    links: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    rng = np.random.default_rng(1)
    sound = assignment._sound
    if sound is None:
        pytest.skip("the loops in Python alone")
    verdicts = []
    for seed in range(60):
        problem = random_problem(seed, links=links, gangs=seed % 2 > 0)
        problem = replace(problem, makespan_weight=(0.0, 0.3, 1e-6)[seed % 3])
        if any(hidden is not None for hidden in problem.edges.hidden):
            continue
        ptr = problem.options.ptr
        for _ in range(20):
            choice = rng.integers(ptr[:-1], ptr[1:])
            if rng.random() < 0.1:
                choice[0] = ptr[1]
            monkeypatch.setattr(assignment, "_sound", None)
            report = check_assignment(problem, choice.tolist())
            ok, objective, makespan = sound(*assignment._arrays(problem), choice)
            verdicts.append(ok)
            assert ok == report.ok
            if ok:
                assert (objective, makespan) == (report.objective, report.makespan)
    assert 0.1 < np.mean(verdicts) < 0.9


def test_compiled_loops_charge_a_makespan_beyond_what_64_bits_hold_times_its_weight() -> None:
    problem = generate("chain", 5, 64, "slack", 1)
    options = replace(problem.options, time=np.full(len(problem.options.time), 10**15))
    problem = replace(problem, options=options, makespan_weight=1.5, sla=np.full(5, 2**63 - 1))
    choice = problem.options.ptr[:-1]
    report = check_assignment(problem, choice.tolist())
    assert report.ok
    assert report.objective == evaluate.objective(problem, choice)
