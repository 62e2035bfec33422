"""Stages that share memory and no costs: bounds hold, and answers are those of brute force."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from iegopt.bench.public import gap
from iegopt.problem.arrays import Problem
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact.capacity_prices import capacity_prices
from iegopt.solvers.milp import Milp
from iegopt.solvers.result import Params, Status
from iegopt.solvers.separable import inseparable, solve_separable
from tests.conftest import shared_dir
from tests.solvers.random_problems import random_problem


def unconnected(seed: int, **switches: object) -> Problem:
    problem = random_problem(
        seed,
        affinity=False,
        deadline=False,
        extensions=False,
        gangs=False,
        memory="tight",
        combinations=400,
        **switches,
    )
    return dataclasses.replace(problem, edges=dataclasses.replace(problem.edges, weight=np.zeros(problem.E)))


SOLVABLE = [seed for seed in range(60) if np.bincount(
    unconnected(seed).options.stage[unconnected(seed).allowed], minlength=unconnected(seed).V
).all()]  # fmt: skip


@pytest.mark.parametrize("seed", SOLVABLE)
def test_bound_and_marginals_hold_for_every_plan(seed: int) -> None:
    problem = unconnected(seed)
    prices = capacity_prices(problem, None, Clock(1.0))
    spans = [np.flatnonzero(problem.allowed[problem.options.of(v)]) + problem.options.ptr[v] for v in range(problem.V)]
    for plan in itertools.product(*spans):
        choice = np.array(plan)
        if feasible(problem, choice):
            value = objective(problem, choice)
            assert prices.bound <= value
            assert (prices.marginals[choice] <= value).all()


def test_the_bound_is_near_that_of_the_linear_relaxation() -> None:
    """Two stages that do not fit together on the cheap device: 1 + 1 relaxes to the mean price of half a move."""
    problem = unconnected(SOLVABLE[0], stages=2)
    ptr, site = np.array([0, 2, 4]), np.array([0, 1, 0, 1])
    options = dataclasses.replace(
        problem.options, ptr=ptr, site=site, variant=site * 0, cost=np.array([0, 1000, 0, 1000]), time=site * 0,
        share=np.array([6, 6, 6, 6]), weight_key=site * 0 - 1, weight_share=site * 0,
    )  # fmt: skip
    limits = np.full(2, np.iinfo(np.int64).max)
    capacity = np.full(problem.topology.D, 9)
    small = dataclasses.replace(problem, options=options, capacity=capacity, sla=limits, finish_by=limits)
    assert 490 <= capacity_prices(small, 1000, Clock(1.0)).bound <= 500


@pytest.mark.skipif(Milp("milp").supports(unconnected(0)) is not None, reason="HiGHS is not installed")
@pytest.mark.parametrize("seed", SOLVABLE[:25])
def test_answers_are_those_of_brute_force(seed: int) -> None:
    problem = unconnected(seed)
    truth = Brute().solve(problem, Params(), None)
    assert inseparable(problem) is None
    found = solve_separable(problem, Params(check=True), None, Clock(3.0))
    assert (found.status, found.objective) == (truth.status, truth.objective)
    if truth.choice is not None:
        again = solve_separable(problem, Params(), truth.choice, Clock(0.05))
        assert again.objective == truth.objective


def test_what_is_not_generalised_assignment_is_refused() -> None:
    problem = unconnected(SOLVABLE[0])
    assert inseparable(dataclasses.replace(problem, deadline=10**12)) == "limits along paths"
    wide = problem.topology
    pairs = dataclasses.replace(wide, device_ptr=2 * wide.device_ptr, device_index=np.repeat(wide.device_index, 2))
    gangs = dataclasses.replace(problem, topology=pairs)
    assert inseparable(gangs) == "gangs"
    joined = dataclasses.replace(problem, edges=dataclasses.replace(problem.edges, weight=np.ones(problem.E)))
    assert inseparable(joined) == (None if problem.E == 0 else "costs of edges")


def test_gap_values_are_proven() -> None:
    for name in ("a05100", "a20100"):
        file = shared_dir() / "data" / "gap_orlib" / "chu1997" / name
        known = gap.published(file)
        assert known is not None
        found = solve(gap.load(file), "auto", Params(time_limit=20.0))
        assert (found.status, found.objective) == (Status.OPTIMAL, known.ticks)


@pytest.mark.skipif(Milp("milp").supports(unconnected(0)) is not None, reason="HiGHS is not installed")
def test_columns_are_left_out_where_a_device_takes_many_stages_unless_most_options_are_open() -> None:
    for name, wanted in (("d05100", False), ("c10200", False), ("d10200", True)):
        file = shared_dir() / "data" / "gap_orlib" / "chu1997" / name
        found = solve(gap.load(file), "auto", Params(time_limit=2.0))
        assert ("no columns" not in found.note) is wanted
