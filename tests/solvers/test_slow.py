"""On a slower processor steps take longer: what is expected of them, and that they are not begun too late."""

import random
from collections.abc import Callable

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers import api, clock
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock, Slowness, lag, pressure
from iegopt.solvers.exact.pair_search import pairs_seconds
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.result import Params, Result, Status
from iegopt.solvers.search import rebuild
from iegopt.solvers.search.compiled_rebuild import layout_seconds
from iegopt.solvers.search.greedy import first_plans
from iegopt.solvers.search.quick import quick_plan
from iegopt.solvers.seconds import fold_seconds, relaxation_seconds, verification_seconds


@pytest.fixture
def thrice(monkeypatch: pytest.MonkeyPatch) -> None:
    """A processor that takes three times as long."""
    slow = Slowness()
    for _ in range(5):
        slow.learn(3.0, 1.0)
    monkeypatch.setattr(clock, "slowness", slow)


def test_the_lag_is_that_of_the_processor_and_of_who_else_wants_it(thrice: None) -> None:
    assert lag() == pytest.approx(3.0 * pressure())


@pytest.mark.parametrize(
    "seconds",
    [
        relaxation_seconds, fold_seconds, verification_seconds, layout_seconds,
        lambda problem: pairs_seconds(problem, problem.allowed),
    ],
)  # fmt: skip
def test_steps_are_expected_to_take_longer_on_a_slower_processor(
    seconds: Callable[[Problem], float], monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    problem = generate("layered", 10, 64, "tight", 1)
    monkeypatch.setattr(clock, "slowness", Slowness())
    usual = seconds(problem)
    request.getfixturevalue("thrice")
    assert seconds(problem) == pytest.approx(3.0 * usual)


def test_no_plan_is_rebuilt_where_taking_it_over_would_be_late(thrice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate("layered", 10, 64, "tight", 1)
    best = quick_plan(problem, Clock(60.0))
    assert best is not None
    monkeypatch.setattr(rebuild, "_STAGE_NEEDS", 1.0)
    # Ten seconds on the usual processor, thirty here.
    assert rebuild.rebuild(relaxation(problem), best, Clock(20.0), random.Random(0), check=False) == (best, 0)


def test_a_solver_keeps_more_back_on_a_slower_processor(thrice: None, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[float] = []

    class Idle:
        name, exact = "idle", False

        def supports(self, problem: Problem) -> None: ...

        def solve(self, problem: Problem, params: Params, hint: object) -> Result:
            assert params.time_limit is not None
            given.append(params.time_limit)
            return Result(Status.UNKNOWN, None, None, None, None, "idle", 0.0, "")

    monkeypatch.setitem(api.SOLVERS, "idle", Idle())
    solve(generate("chain", 5, 64, "slack", 1), "idle", Params(time_limit=10.0))
    assert given[0] < 10.0 - 3 * api._MARGIN


def test_the_median_of_what_options_differ_by_is_that_of_numpy() -> None:
    rng = np.random.default_rng(1)
    for count in (1, 2, 5, 8, 301):
        values = rng.integers(0, 1000, count)
        assert rebuild._median(values) == np.median(values)


def test_a_short_limit_has_a_plan_before_repair_takes_all_of_it() -> None:
    # The relaxation's choice and both constructions leave no room for all stages here.
    problem = generate("layered", 50, 64, "tight", 649)
    value, plan = next(first_plans(relaxation(problem), Clock(0.19), random.Random(0), check=False))
    expected = quick_plan(problem, Clock(1.0))
    assert expected is not None
    assert value == expected[0]
    assert np.array_equal(plan, expected[1])
