"""``solve`` verifies every answer, refuses what does not fit, and keeps a better hint."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.errors import InputError, InternalError, UnsupportedProblem
from iegopt.explain.conflict import find_conflict
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers import api
from iegopt.solvers.brute import Brute
from iegopt.solvers.result import MOST_SECONDS, Params, Result, Status
from tests.solvers.random_problems import random_instance, random_problem

Ints = npt.NDArray[np.int64]


class Liar:
    """Returns the result it was made with."""

    name = "liar"
    exact = False

    def __init__(self, result: Result) -> None:
        self.result = result

    def supports(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, params: Params, hint: Ints | None) -> Result:
        return self.result


@pytest.fixture
def problem() -> Problem:
    return random_problem(3, memory="slack", sla=False, deadline=False, affinity=False, extensions=False)


@pytest.fixture
def truth(problem: Problem) -> Result:
    return api.solve(problem, "brute")


def told(monkeypatch: pytest.MonkeyPatch, problem: Problem, result: Result, hint: Ints | None = None) -> Result:
    monkeypatch.setitem(api.SOLVERS, "liar", Liar(result))
    return api.solve(problem, "liar", hint=hint)


def test_a_wrong_objective_is_a_bug(monkeypatch: pytest.MonkeyPatch, problem: Problem, truth: Result) -> None:
    assert truth.objective is not None
    with pytest.raises(InternalError, match="verified"):
        told(monkeypatch, problem, replace(truth, objective=truth.objective + 1))


def test_a_broken_constraint_is_a_bug(monkeypatch: pytest.MonkeyPatch, problem: Problem, truth: Result) -> None:
    with pytest.raises(InternalError, match="breaks memory"):
        told(monkeypatch, replace(problem, capacity=problem.capacity * 0), truth)


def test_optimal_without_a_bound_is_a_bug(monkeypatch: pytest.MonkeyPatch, problem: Problem, truth: Result) -> None:
    with pytest.raises(InternalError, match="optimal"):
        told(monkeypatch, problem, replace(truth, bound=None))


def unknown(truth: Result) -> Result:
    return replace(truth, status=Status.UNKNOWN, choice=None, objective=None, bound=None, proof=None)


def test_a_feasible_hint_is_not_lost(monkeypatch: pytest.MonkeyPatch, problem: Problem, truth: Result) -> None:
    result = told(monkeypatch, problem, unknown(truth), truth.choice)
    assert (result.status, result.objective) == (Status.FEASIBLE, truth.objective)
    assert "hint" in result.note


def test_a_hint_proves_that_infeasible_is_a_bug(
    monkeypatch: pytest.MonkeyPatch, problem: Problem, truth: Result
) -> None:
    with pytest.raises(InternalError, match="infeasible, but the hint"):
        told(monkeypatch, problem, replace(unknown(truth), status=Status.INFEASIBLE, proof="claimed"), truth.choice)


def test_a_hint_below_the_bound_shows_a_bug(monkeypatch: pytest.MonkeyPatch, problem: Problem, truth: Result) -> None:
    assert truth.objective is not None
    with pytest.raises(InternalError, match="bound"):
        told(monkeypatch, problem, replace(unknown(truth), bound=truth.objective + 1), truth.choice)


def test_a_hint_that_does_not_fit(problem: Problem) -> None:
    with pytest.raises(InputError, match="the hint does not fit"):
        api.solve(problem, "brute", hint=np.array([0]))


def test_an_unknown_solver_is_named_with_the_nearest(problem: Problem) -> None:
    with pytest.raises(InputError, match=r"no solver 'brut'\. Maybe brute\?"):
        api.solve(problem, "brut")


def test_an_unsupported_problem_says_why() -> None:
    with pytest.raises(UnsupportedProblem, match=r"brute cannot solve this problem: .* combinations"):
        api.solve(generate("chain", 9, 9), "brute")


def test_the_table_is_named_by_its_solvers() -> None:
    assert all(name == solver.name for name, solver in api.SOLVERS.items())
    assert isinstance(api.SOLVERS["brute"], Brute)


def test_importing_the_table_loads_no_engine() -> None:
    code = "import sys, iegopt.solvers.api; print([m for m in ('ortools', 'pulp', 'highspy') if m in sys.modules])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=".")
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize(
    "wrong",
    [
        {"time_limit": -1.0}, {"time_limit": float("nan")}, {"time_limit": "5"}, {"threads": 0}, {"threads": 1.5},
        {"threads": True}, {"seed": -5}, {"seed": 2**40}, {"seed": 0.5},
    ],
)  # fmt: skip
def test_params_that_mean_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=next(iter(wrong))):
        Params(**wrong)


@pytest.mark.parametrize("limit", [1e11, 1e300, float("inf")])
@pytest.mark.parametrize("solver", ["auto", "prices", "cpsat", "milp", "milp-cbc", "brute", "tree"])
def test_a_limit_beyond_all_waits_is_ten_years(problem: Problem, truth: Result, solver: str, limit: float) -> None:
    params = Params(time_limit=limit)
    assert params.time_limit == MOST_SECONDS
    if api.SOLVERS[solver].supports(problem) is None:
        assert api.solve(problem, solver, params).objective == truth.objective


def test_a_hint_may_be_a_list(problem: Problem, truth: Result) -> None:
    assert truth.choice is not None
    assert api.solve(problem, "brute", hint=truth.choice.tolist()).objective == truth.objective


@pytest.mark.parametrize("wrong", ["abc", [[0, 1], [2]], [0.5, 1.5], 3, {"a": 1}, [[0, 1]]])
def test_a_hint_of_another_type_is_refused(problem: Problem, wrong: Any) -> None:
    with pytest.raises(InputError, match="hint"):
        api.solve(problem, "auto", hint=wrong)


def test_what_is_no_problem_is_refused() -> None:
    with pytest.raises(InputError, match="problem: a dict, expected"):
        api.solve({}, "auto")  # type: ignore[arg-type]


def test_params_are_no_mapping(problem: Problem) -> None:
    with pytest.raises(InputError, match=r"params: a dict, expected iegopt\.Params"):
        api.solve(problem, params={"time_limit": 1})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["log", "report", "multipliers"])
@pytest.mark.parametrize("given", [5, "path.log", [print]])
def test_what_cannot_be_called_is_refused_at_once(problem: Problem, name: str, given: Any) -> None:
    with pytest.raises(InputError, match=rf"^{name}: an? (int|str|list), expected"):
        Params(**{name: given})
    with pytest.raises(InputError, match=r"^on_improvement: an? (int|str|list), expected a function"):
        api.solve(problem, on_improvement=given)


def test_an_infeasible_hint_is_left_out_and_the_note_says_so(problem: Problem, truth: Result) -> None:
    assert truth.choice is not None
    tight = replace(problem, capacity=problem.capacity * 0)
    result = api.solve(tight, "auto", hint=truth.choice)
    assert "the hint was left out" in result.note


@pytest.mark.parametrize("where", [0, 1, 2])
@pytest.mark.parametrize("extensions", [[], ["no_overlap"], ["peak_memory"], ["makespan_weight"]])
def test_a_stage_without_options_has_no_plan_wherever_it_stands(where: int, extensions: list[str]) -> None:
    document = random_instance(3, stages=2, memory="slack", extensions=False)
    empty = {"id": "q", "options": {key: [] for key in document["stages"][0]["options"]}}
    document["stages"].insert(where, empty)
    document |= {"edges": [{"from": 0, "to": 2, "bytes": 1e6}], "affinity": [], "extensions": extensions}
    if "makespan_weight" in extensions:
        document["makespan_weight"] = 1.0
    empty_problem = to_problem(parse_instance(document))
    for name, solver in api.SOLVERS.items():
        if solver.supports(empty_problem) is None:
            for limit in (None, 0.0, 0.5):
                status = api.solve(empty_problem, name, Params(time_limit=limit)).status
                assert status is Status.INFEASIBLE or (limit == 0.0 and status is Status.UNKNOWN)
    assert [conflict.rule for conflict in find_conflict(empty_problem)] == ["options"]


@pytest.mark.parametrize("name", api.SOLVERS)
def test_every_solver_names_what_proved_that_there_is_no_plan(name: str) -> None:
    document = random_instance(3, stages=2, memory="slack", extensions=False)
    problem = to_problem(parse_instance(document))
    needed = int(problem.options.share.max())
    problem = replace(problem, capacity=np.full_like(problem.capacity, needed), affinities=())  # each alone fits
    share = np.full_like(problem.options.share, needed)
    ptr = problem.options.ptr
    site = np.full_like(problem.options.site, int(problem.options.site[0]))
    crowded = replace(problem, options=replace(problem.options, share=share, site=site))
    assert np.diff(ptr).min() > 0
    if api.SOLVERS[name].supports(crowded) is None:
        exact = api.SOLVERS[name].exact
        result = api.solve(crowded, name, Params(time_limit=20.0 if exact else 0.2))  # the others search to the end
        assert (result.status, bool(result.proof)) == (
            (Status.INFEASIBLE, True) if exact else (Status.UNKNOWN, result.proof is not None)
        )


def test_infeasible_without_a_proof_is_no_result(truth: Result) -> None:
    with pytest.raises(ValueError, match="without a proof"):
        replace(unknown(truth), status=Status.INFEASIBLE)
