"""Elimination against enumeration of the problem without shared limits, on random graphs with and without cycles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers import root_prices
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact import elimination
from iegopt.solvers.exact.elimination import eliminate
from tests.solvers.random_problems import random_problem


def _value(problem: Problem, choice: np.ndarray) -> int:  # type: ignore[type-arg]
    edges = problem.edges
    moved = sum(
        int(edge_ticks(problem, e, choice[edges.source[e]], choice[edges.target[e]])[1]) for e in range(problem.E)
    )
    return int(problem.options.cost[choice].sum()) + moved


@pytest.mark.parametrize("seed", range(60))
def test_value_and_choice_equal_enumeration(seed: int) -> None:
    problem = random_problem(seed)
    found = eliminate(problem, problem.allowed, Clock(10))
    domains = [np.flatnonzero(problem.allowed & (problem.options.stage == v)) for v in range(problem.V)]
    if found is None:
        assert any(domain.size == 0 for domain in domains)
        return
    best = min(_value(problem, np.array(choice)) for choice in itertools.islice(itertools.product(*domains), 30_000))
    assert found.value == _value(problem, found.choice) == best


def test_tables_over_the_limit_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate("layered", 8, 32, "slack", 0)
    assert eliminate(problem, problem.allowed, Clock(10)) is not None
    monkeypatch.setattr(elimination, "MAX_CELLS", 50)
    assert eliminate(problem, problem.allowed, Clock(10)) is None


def test_no_time_no_answer() -> None:
    problem = generate("agent", 8, 32, "slack", 0)
    assert eliminate(problem, problem.allowed, Clock(0)) is None


def test_auto_proves_an_agents_graph_by_elimination(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_prices, "unpriceable", lambda problem, mask=None: "left out")
    result = solve(generate("agent", 20, 256, "slack", 1), "auto")
    assert result.status == "optimal"
    assert result.proof is not None
    assert result.proof.startswith("elimination")
