"""What a solve reports on its way: plans that hold, bounds that hold, and in the end the answer."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any
from unittest import mock

import numpy.typing as npt
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers.api import SOLVERS, solve
from iegopt.solvers.incumbent import Improvement
from iegopt.solvers.result import Params, Result, Status
from iegopt.solvers.search.local import LocalSolver
from iegopt.verify.assignment import check_assignment
from tests.solvers.random_problems import random_problem
from tests.solvers.random_timed import timed_instance

METHODS = ("auto", "prices", "local", "greedy", "tree")


def random_problems() -> Iterator[Problem]:
    yield from (random_problem(seed) for seed in range(40))
    yield from (to_problem(parse_instance(timed_instance(seed), f"timed {seed}")) for seed in range(10))


def solve_listening(problem: Problem, solver: str, params: Params, optimum: int | None) -> int:
    """Solve with a report that verifies everything it is told; how many plans it was told."""
    plans = 0

    def report(choice: npt.NDArray[Any] | None, bound: int | None, proof: str | None, start: Any = None) -> None:
        nonlocal plans
        if choice is not None:
            plans += 1
            times = None if start is None else start.tolist()
            assert check_assignment(problem, choice.tolist(), times).ok
        if bound is not None:
            assert proof
            assert optimum is None or bound <= optimum
        assert choice is not None or bound is not None

    SOLVERS[solver].solve(problem, Params(params.time_limit, seed=params.seed, report=report), None)
    return plans


@pytest.mark.slow
def test_every_plan_and_bound_on_the_way_holds() -> None:
    plans = dict.fromkeys(METHODS, 0)
    for problem in random_problems():
        optimum = solve(problem, "brute").objective
        for name in METHODS:
            if SOLVERS[name].supports(problem) is None:
                with mock.patch("iegopt.solvers.auto._ENUMERATED", 0):
                    plans[name] += solve_listening(problem, name, Params(2.0 if SOLVERS[name].exact else 0.05), optimum)
    assert plans["tree"] == 0
    assert all(plans[name] > 0 for name in METHODS if name != "tree")


@pytest.mark.parametrize("solver", [*METHODS, "cpsat", "milp"])
def test_improvements_go_one_way_and_end_with_the_answer(solver: str) -> None:
    problem = generate("chain", 8, 16, "tight", 0)
    told: list[Improvement] = []
    result = solve(problem, solver, Params(time_limit=10.0 if solver != "local" else 0.3), on_improvement=told.append)
    last = told[-1]
    assert (last.objective, last.bound, last.gap) == (result.objective, result.bound, result.gap)
    assert (last.choice is None) == (result.choice is None)
    for before, after in pairwise(told):
        assert before.seconds <= after.seconds
        assert before.objective is None or (after.objective is not None and after.objective <= before.objective)
        assert before.bound is None or (after.bound is not None and after.bound >= before.bound)
        assert (before.objective, before.bound) != (after.objective, after.bound) or before.proof != after.proof
    if solver not in ("tree", "greedy"):  # they have one plan, or none
        assert len({each.objective for each in told}) > 1


def test_plans_of_an_engine_on_the_surviving_options_are_plans_of_the_whole() -> None:
    problem = generate("agent", 12, 24, "tight", 1)
    told: list[Improvement] = []
    with (
        mock.patch("iegopt.solvers.root_prices.unpriceable", return_value="not today"),
        mock.patch("iegopt.solvers.auto._SEARCH_MOST", 0.0),
    ):
        result = solve(problem, "auto", Params(time_limit=20.0), on_improvement=told.append)
    assert result.proof == "CP-SAT"
    assert any(each.proof == "CP-SAT" and each.gap for each in told)
    assert told[-1].objective == result.objective


def test_a_hint_is_known_from_the_start() -> None:
    problem = generate("chain", 6, 16, "tight", 0)
    best = solve(problem, "auto")
    told: list[Improvement] = []
    solve(problem, "local", Params(time_limit=0.05), best.choice, on_improvement=told.append)
    assert {each.objective for each in told} == {best.objective}


class Exhausted(LocalSolver):
    """A search that finds plans and then asks for more memory than there is."""

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[Any] | None) -> Result:
        super().solve(problem, params, hint)
        raise MemoryError


def test_a_solver_out_of_memory_keeps_its_last_plan_and_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate("agent", 12, 24, "tight", 1)
    monkeypatch.setitem(SOLVERS, "exhausted", Exhausted())
    told: list[Improvement] = []
    result = solve(problem, "exhausted", Params(time_limit=0.2), on_improvement=told.append)
    assert (result.status, result.note) == (Status.FEASIBLE, "out of memory")
    assert (result.objective, result.bound) == (told[-1].objective, told[-1].bound)
    assert result.bound is not None
    nothing = solve(problem, "exhausted", Params(time_limit=0.0))
    assert (nothing.status, nothing.note) == (Status.UNKNOWN, "out of memory")


class Enough(Exception):
    pass


@pytest.mark.parametrize("solver", ["auto", "cpsat"])
def test_an_exception_of_the_listener_ends_the_solve(solver: str) -> None:
    def stop(improvement: Improvement) -> None:
        if improvement.choice is not None:
            raise Enough

    with pytest.raises(Enough):
        solve(generate("layered", 20, 64, "tight", 0), solver, Params(time_limit=60.0), on_improvement=stop)
    assert solve(generate("chain", 3, 8, "slack", 0), solver, Params(time_limit=20.0)).status is Status.OPTIMAL
