"""The relaxation is exact on forests, a lower bound elsewhere, and ``tree`` claims no more than it proves."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.families import generate
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact.relaxation import prune, relaxation, spanning_forest
from iegopt.solvers.exact.tree import TreeSolver
from iegopt.solvers.result import Params, Status
from tests.solvers.random_problems import random_problem


def plans(problem: Problem) -> list[np.ndarray]:
    ptr = problem.options.ptr
    options = [[o for o in range(ptr[v], ptr[v + 1]) if problem.allowed[o]] for v in range(problem.V)]
    return [np.array(plan) for plan in itertools.product(*options)]


@pytest.mark.parametrize("shape", ["chain", "tree", "forest", "dag"])
@pytest.mark.parametrize("seed", range(6))
def test_bound_and_min_marginals(shape: str, seed: int) -> None:
    problem = random_problem(
        seed, shape=shape, stages=4, affinity=False, sla=False, deadline=False, combinations=150, memory="slack"
    )
    relaxed = relaxation(problem)
    marginals = np.full(len(problem.allowed), NO_LIMIT)
    for plan in plans(problem):
        marginals[plan] = np.minimum(marginals[plan], objective(problem, plan))
    best = int(marginals.min())
    used = marginals < NO_LIMIT
    if relaxed.forest.dropped:
        assert relaxed.bound is not None
        assert relaxed.bound <= best
        assert (relaxed.min_marginals <= marginals)[used].all()
    else:
        assert relaxed.choice is not None
        assert relaxed.bound == best == objective(problem, relaxed.choice)
        assert relaxed.min_marginals[used].tolist() == marginals[used].tolist()
        assert prune(problem, best).tolist() == (marginals <= best).tolist()


@pytest.mark.parametrize("seed", range(60))
def test_tree_against_enumeration(seed: int) -> None:
    problem = random_problem(seed, shape=["chain", "tree", "forest"][seed % 3])
    result = solve(problem, "tree")
    truth = Brute().solve(problem, Params(), None)
    if result.status is Status.OPTIMAL:
        assert (result.objective, result.bound) == (truth.objective, truth.objective)
        assert result.proof == "tree messages"
    elif result.status is Status.INFEASIBLE:
        assert truth.status is Status.INFEASIBLE
        assert result.proof == "no option"
    else:
        assert result.status is Status.UNKNOWN
        assert "binds" in result.note
        assert truth.objective is None or (result.bound is not None and result.bound <= truth.objective)


@pytest.mark.parametrize("seed", range(12))
def test_pruning_keeps_every_better_plan(seed: int) -> None:
    problem = random_problem(seed, shape="dag", stages=4, combinations=200, memory="slack", affinity=False)
    truth = Brute().solve(problem, Params(), None)
    if truth.objective is None:
        pytest.skip("infeasible")
    mask = prune(problem, truth.objective)
    for plan in plans(problem):
        if feasible(problem, plan) and objective(problem, plan) <= truth.objective:
            assert mask[plan].all()


def test_tree_says_which_edge_closes_a_cycle() -> None:
    problem = generate("fanout", 6, 8)
    reason = TreeSolver().supports(problem)
    assert reason is not None
    assert "closes a cycle" in reason


def test_forest_keeps_the_heaviest_edges() -> None:
    problem = generate("agent", 12, 8)
    forest = spanning_forest(problem)
    weight = problem.edges.bytes * problem.edges.weight
    assert len(forest.dropped) == problem.E - (problem.V - 1)
    assert weight[list(forest.dropped)].max() <= np.sort(weight)[::-1][: problem.V - 1].max()
    position = {v: i for i, v in enumerate(forest.order)}
    assert all(p < 0 or position[p] < position[v] for v, p in enumerate(forest.parent))


def test_memory_that_binds_is_named() -> None:
    problem = generate("chain", 8, 32, "tight", 1)
    result = solve(problem, "tree")
    assert result.status is Status.UNKNOWN
    assert result.note.startswith("memory of ")
