"""Brute force, the oracle, against an oracle of its own: a loop over evaluate on the smallest problems."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from iegopt.problem.families import Memory, generate
from iegopt.solvers import brute, evaluate
from iegopt.solvers.brute import Brute
from iegopt.solvers.result import Params, Status
from tests.solvers.random_problems import random_problem


@pytest.mark.parametrize("seed", range(100))
def test_it_equals_a_plain_loop(seed: int) -> None:
    problem = random_problem(seed, combinations=120)
    options = [range(problem.options.ptr[v], problem.options.ptr[v + 1]) for v in range(problem.V)]
    choices = [np.array(choice) for choice in itertools.product(*options)]
    values = [evaluate.objective(problem, c) for c in choices if evaluate.feasible(problem, c)]
    result = Brute().solve(problem, Params(), None)
    assert result.objective == min(values, default=None)
    assert result.bound == result.objective
    assert result.status is (Status.OPTIMAL if values else Status.INFEASIBLE)


def test_blocks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = Brute().solve(random_problem(7), Params(), None)
    monkeypatch.setattr(brute, "_BLOCK", 17)
    assert Brute().solve(random_problem(7), Params(), None).objective == whole.objective


def test_every_family_has_a_plan() -> None:
    for memory in get_args(Memory):
        for seed in range(5):
            problem = generate("agent", 6, 4, memory, seed)
            assert Brute().solve(problem, Params(), None).status is Status.OPTIMAL


def test_a_time_limit_leaves_no_bound() -> None:
    result = Brute().solve(random_problem(0), Params(time_limit=0.0), None)
    assert (result.status, result.bound, result.choice) == (Status.UNKNOWN, None, None)


def test_too_many_combinations_are_refused() -> None:
    reason = Brute().supports(generate("chain", 8, 10))
    assert reason is not None
    assert "1.00e+8 combinations" in reason


def test_a_stage_without_options_is_infeasible() -> None:
    problem = random_problem(0)
    shut = replace(problem, sla=np.full(problem.V, -1))
    assert Brute().solve(shut, Params(), None).status is Status.INFEASIBLE
