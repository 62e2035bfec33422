"""Columns of generalised assignment: knapsacks are exact, bounds hold, plans keep memory."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

from iegopt.errors import BackendError
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact import knapsacks as module
from iegopt.solvers.exact.columns import _Columns, run_columns
from iegopt.solvers.exact.knapsacks import Knapsack, knapsacks
from iegopt.solvers.incumbent import Incumbent
from iegopt.solvers.milp import Milp
from iegopt.solvers.result import Params, Status
from tests.solvers.test_separable import SOLVABLE, unconnected

needs_highs = pytest.mark.skipif(Milp("milp").supports(unconnected(0)) is not None, reason="HiGHS is not installed")


@pytest.mark.parametrize("seed", range(30))
def test_a_knapsack_packs_the_best_of_all_sets(seed: int) -> None:
    random = np.random.default_rng(seed)
    stage = np.sort(random.integers(0, 5, 8))
    knapsack = Knapsack(np.arange(8) + 100, stage, random.integers(0, 6, 8), int(random.integers(0, 12)), True)
    value = random.integers(-5, 20, 8)
    best = 0
    for size in range(6):
        for some in itertools.combinations(range(8), size):
            at = list(some)
            if len(set(stage[at].tolist())) == size and knapsack.need[at].sum() <= knapsack.cells:
                best = max(best, int(value[at].sum()))
    worth, packed = knapsack.pack(value)
    at = packed - 100
    assert worth == best == value[at].sum()
    assert knapsack.need[at].sum() <= knapsack.cells
    assert len(np.unique(stage[at])) == len(at)


@pytest.mark.parametrize("seed", SOLVABLE[:10])
@pytest.mark.parametrize("cells", [5, 2_000])
def test_what_fits_the_cells_fits_the_device(seed: int, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CELLS", cells)
    problem = unconnected(seed)
    random = np.random.default_rng(seed)
    for d, knapsack in enumerate(knapsacks(problem)):
        _, packed = knapsack.pack(random.integers(1, 100, len(knapsack.option)))
        assert problem.options.share[packed].sum() <= problem.capacity[d]


@needs_highs
@pytest.mark.parametrize("seed", SOLVABLE)
@pytest.mark.parametrize("cells", [5, 2_000])
def test_bounds_and_plans_hold(seed: int, cells: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_CELLS", cells)
    problem = unconnected(seed)
    truth = Brute().solve(problem, Params(), None)
    found = run_columns(problem, Params(time_limit=3.0), None)
    if truth.objective is None:
        assert found.choice is None
        return
    assert found.bound is None or found.bound <= truth.objective
    assert found.objective is None or found.objective >= truth.objective
    again = run_columns(problem, Params(time_limit=3.0), truth.choice)
    assert again.objective == truth.objective
    assert again.bound is None or again.bound <= truth.objective


@needs_highs
def test_columns_prove_what_capacity_prices_cannot() -> None:
    """Two stages of 6 on devices of 9, where the dear one costs 1000: the knapsack knows that only one fits."""
    problem = unconnected(SOLVABLE[0], stages=2)
    ptr, site = np.array([0, 2, 4]), np.array([0, 1, 0, 1])
    options = dataclasses.replace(
        problem.options, ptr=ptr, site=site, variant=site * 0, cost=np.array([0, 1000, 0, 1000]), time=site * 0,
        share=np.array([6, 6, 6, 6]), weight_key=site * 0 - 1, weight_share=site * 0,
    )  # fmt: skip
    limits = np.full(2, np.iinfo(np.int64).max)
    capacity = np.full(problem.topology.D, 9)
    small = dataclasses.replace(problem, options=options, capacity=capacity, sla=limits, finish_by=limits)
    found = run_columns(small, Params(time_limit=5.0), None)
    assert (found.status, found.objective, found.bound) == (Status.OPTIMAL, 1000, 1000)
    dear = dataclasses.replace(options, cost=options.cost * 10**15)
    with pytest.raises(BackendError, match="too large for columns"):
        run_columns(dataclasses.replace(small, options=dear), Params(time_limit=5.0), None)


@needs_highs
@pytest.mark.parametrize("seed", SOLVABLE[:10])
def test_columns_count_again_after_a_dive(seed: int) -> None:
    problem = unconnected(seed)
    search = _Columns(problem, Incumbent(problem, "columns", None), Clock(5.0), 0)
    search.generate()
    before, _, _ = search._master()
    search._dive(noisy=False)
    after, _, parts = search._master()
    assert after <= before * (1 + 1e-9) + 1e-6
    assert len(parts) == len(search.chosen)
