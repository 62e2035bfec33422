"""The mixed-integer programme: bounds that hold, cuts for what only floats allow, missing engines."""

from __future__ import annotations

import dataclasses
from importlib.machinery import ModuleSpec
from typing import Any, Literal

import numpy as np
import pytest

from iegopt.errors import BackendError
from iegopt.problem.arrays import Edges
from iegopt.problem.families import generate
from iegopt.solvers.brute import Brute
from iegopt.solvers.cpsat.solver import run as run_cpsat
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.milp import Milp, backends
from iegopt.solvers.milp import solver as milp
from iegopt.solvers.milp.backends import Answer, Engine
from iegopt.solvers.milp.objective import Objective
from iegopt.solvers.milp.variables import Variables
from iegopt.solvers.result import Params, Result, Status
from tests.solvers.random_problems import random_problem


@pytest.mark.parametrize("seed", range(3))
def test_highs_proves_what_cp_sat_proves(seed: int) -> None:
    problem = generate("agent", 8, 32, "tight", seed)
    one, other = milp.run_highs(problem, Params(), None), run_cpsat(problem, Params(), None)
    assert one.status is other.status is Status.OPTIMAL
    assert one.objective == other.objective
    assert one.bound is not None
    assert other.objective is not None
    assert other.objective * (1 - 1e-6) <= one.bound <= other.objective


def test_highs_reports_plans_and_bounds_on_the_way() -> None:
    problem = generate("agent", 8, 256, "tight", 0)
    plans, bounds = [], []

    def report(choice: object, bound: int | None, proof: str | None) -> None:
        if choice is not None:
            plans.append(objective(problem, np.asarray(choice)))
        else:
            bounds.append((bound, proof))

    result = milp.run_highs(problem, Params(), None, report)
    assert plans == sorted(plans, reverse=True)
    assert plans[-1] == result.objective
    assert bounds[0][1] == "cheapest options"
    assert bounds[-1] == (result.bound, "HiGHS")


def test_a_plan_that_only_tolerances_allow_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate("chain", 8, 32, "tight", 0)
    options, real = problem.options, backends.solve
    wrong: list[list[float]] = []
    site = options.site[np.flatnonzero(problem.allowed)[0]]

    def careless(engine: Engine, variables: Variables, *rest: Any) -> Answer:
        answer = real(engine, variables, *rest)
        if not wrong and answer.values is not None:
            everything_here = [0.0] * len(answer.values)
            for v in range(problem.V):
                own = options.of(v)
                at = [o for o in range(own.start, own.stop) if options.site[o] == site and problem.allowed[o]]
                everything_here[variables.x[at[0] if at else own.start]] = 1.0
            wrong.append(everything_here)
            return Answer(everything_here, None, False, True)
        return answer

    monkeypatch.setattr(milp, "solve", careless)
    result = milp.run_highs(problem, Params(), None)
    assert wrong
    assert result.choice is not None
    assert feasible(problem, result.choice)
    assert result.objective == run_cpsat(problem, Params(), None).objective


def test_a_dual_bound_comes_back_below_itself() -> None:
    priced = Objective({}, constant=10**9, unit=1000.0, least=10**9, grain=1)
    assert 10**9 + 5 * 10**8 - 60 <= priced.bound_ticks(5e5) <= 10**9 + 5 * 10**8
    assert priced.bound_ticks(-1.0) == 10**9
    assert priced.bound_ticks(float("-inf")) == 10**9


def test_a_bound_is_below_what_an_engine_does_not_ask_for() -> None:
    wide = Objective({0: 10**15}, constant=0, unit=1e9, least=0, grain=1)
    assert wide.bound_ticks(1.0) <= 10**9 - 10**4  # CBC: 1e-5 units


def test_an_objective_is_cut_where_no_better_plan_comes() -> None:
    priced = Objective({0: 10**15, 1: 2_000, 2: -500}, constant=5_000, unit=1e9, least=4_500, grain=100)
    assert priced.up_to(8_000) == Objective({0: 3_600, 1: 2_000, 2: -500}, 5_000, 100.0, 4_500, 100)


def test_costs_too_far_apart_were_not_proven() -> None:
    problem = random_problem(
        9, links="tree", stages=3, memory="slack", deadline=False, affinity=False, extensions=False
    )
    cost = problem.options.cost.copy()
    cost[int(cost.argmax())] = 10**17
    wide = dataclasses.replace(problem, options=dataclasses.replace(problem.options, cost=cost))
    result = milp.run_highs(wide, Params(), None)
    assert result.objective == Brute().solve(wide, Params(), None).objective
    assert result.status is Status.OPTIMAL


def test_an_engine_that_ends_without_a_proof_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    real = backends.solve

    def unsure(engine: Engine, variables: Variables, priced: Objective, *rest: Any) -> Answer:
        limit, threads, seed, _ = rest
        return dataclasses.replace(real(engine, variables, priced, limit, threads, seed, lambda *_: None), bound=None)

    monkeypatch.setattr(milp, "solve", unsure)
    result = milp.run_highs(generate("chain", 4, 8, "slack", 0), Params(), None)
    assert result.status is Status.FEASIBLE
    assert result.note == "HiGHS ended with a plan, and proves it as far as its tolerance goes"


@pytest.mark.parametrize("name", ["milp", "milp-cbc"])
def test_a_hint_is_never_lost(name: Literal["milp", "milp-cbc"]) -> None:
    reason = backends.missing("HiGHS" if name == "milp" else "CBC")
    if reason is not None:
        pytest.skip(reason)
    for seed in range(10):
        problem = random_problem(seed)
        truth = Brute().solve(problem, Params(), None)
        if truth.choice is None:
            continue
        run = milp.run_highs if name == "milp" else milp.run_cbc
        result: Result = run(problem, Params(), truth.choice)
        assert result.objective == truth.objective, f"seed {seed}"


def test_a_missing_pulp_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backends, "find_spec", lambda name: None)
    problem = generate("chain", 4, 8, "slack", 0)
    assert Milp("milp").supports(problem) == "PuLP is not installed: pip install pulp"
    with pytest.raises(BackendError, match="pip install pulp"):
        milp.run_highs(problem, Params(), None)


def test_pulp_4_without_cbc_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    bare = ModuleSpec("pulp", None, is_package=True)  # its folder holds no solvers
    monkeypatch.setattr(backends, "find_spec", lambda name: None if name == "cbcbox" else bare)
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert backends.missing("CBC") == "CBC is not installed: pip install 'pulp[cbc]'"
    assert backends.missing("HiGHS") is None


def test_what_pulp_would_build_for_minutes_is_refused() -> None:
    problem = generate("chain", 4, 8, "slack", 0)
    assert Milp("milp").supports(problem) is None
    count = 10**5
    first, second, size = np.zeros(count, dtype=np.int64), np.ones(count, dtype=np.int64), np.ones(count)
    edges = Edges(first, second, size, size, size, (None,) * count, ("data",) * count)
    many = dataclasses.replace(problem, edges=edges)
    reason = Milp("milp").supports(many)
    assert reason is not None
    assert "coefficients" in reason
