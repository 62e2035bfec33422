"""``auto`` proves small problems, keeps to its clock's order of steps, and says what it did."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iegopt.problem.families import generate
from iegopt.solvers import auto, steps
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.evaluate import finish_times
from iegopt.solvers.result import Params, Status
from tests.solvers.random_problems import random_problem


@pytest.mark.parametrize("seed", range(60))
def test_auto_agrees_with_enumeration(seed: int) -> None:
    problem = random_problem(seed)
    truth = Brute().solve(problem, Params(), None)
    result = solve(problem, "auto", Params(time_limit=5.0, seed=seed))
    assert result.status is truth.status
    assert result.objective == truth.objective


@pytest.mark.parametrize("seed", [0, 4, 7])
def test_auto_proves_with_cpsat_what_it_does_not_enumerate(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(steps, "unpriceable", lambda problem, mask=None: "left out")
    monkeypatch.setattr(auto, "_ENUMERATED", 0)
    monkeypatch.setattr(auto, "_SEARCH_MOST", 0.05)
    problem = random_problem(seed)
    truth = Brute().solve(problem, Params(), None)
    result = solve(problem, "auto", Params(time_limit=30.0))
    assert (result.status, result.objective) == (truth.status, truth.objective)


def test_slack_tree_needs_one_step() -> None:
    result = solve(generate("chain", 10, 64, "slack"), "auto")
    assert (result.status, result.proof) == (Status.OPTIMAL, "tree messages")


def test_pruned_problem_is_proven() -> None:
    result = solve(generate("agent", 8, 64, "tight", 0), "auto", Params(time_limit=20.0))
    assert (result.status, result.proof) == (Status.OPTIMAL, "capacity prices")
    assert "prices" in result.note


def test_a_deadline_that_the_optimum_just_meets_changes_nothing() -> None:
    problem = generate("agent", 8, 64, "tight", 0)
    free = solve(problem, "auto", Params(time_limit=20.0))
    assert free.choice is not None
    limited = dataclasses.replace(problem, deadline=int(finish_times(problem, free.choice).max()))
    result = solve(limited, "auto", Params(time_limit=20.0))
    assert (result.status, result.objective) == (Status.OPTIMAL, free.objective)


@pytest.mark.parametrize("limit", [0.0, 0.0003, 0.002, 0.01, 0.03])
def test_short_limits_give_valid_answers(limit: float) -> None:
    problem = generate("layered", 20, 128, "tight", 0)
    result = solve(problem, "auto", Params(time_limit=limit))
    assert result.status in (Status.UNKNOWN, Status.FEASIBLE)
    assert result.note


def test_a_hint_is_the_least_that_comes_back() -> None:
    problem = generate("layered", 20, 64, "tight", 0)
    good = solve(problem, "local", Params(time_limit=0.2))
    assert good.choice is not None
    result = solve(problem, "auto", Params(time_limit=0.0), good.choice)
    assert result.choice is not None
    assert np.array_equal(result.choice, good.choice)
