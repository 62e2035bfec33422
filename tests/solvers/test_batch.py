"""Many requests in one pass answer as one by one, by numpy and by the kernels."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers.exact import compiled
from iegopt.solvers.exact.batch import relaxations
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.relaxation import relaxation
from tests.solvers.random_problems import random_problem
from tests.solvers.test_messages import with_overlap, with_shards

Ints = npt.NDArray[np.int64]


@pytest.fixture(params=["numpy", "numba"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(compiled, "_ready", None)
    if request.param == "numba":
        pytest.importorskip("numba", reason="the extra 'fast' is not installed")
        compiled.warmup()
    return str(request.param)


def costs_for(problem: Problem, requests: int, seed: int, coarse: bool = False) -> Ints:
    rng = np.random.default_rng(seed)
    shape = requests, len(problem.options.cost)
    costs = problem.options.cost + rng.integers(0, 10**9, shape)
    if coarse:
        costs = rng.integers(0, 3, shape) * 10**8
    costs[rng.random(shape) < 0.1] = UNREACHABLE
    return costs


def assert_as_one_by_one(problem: Problem, costs: Ints) -> None:
    batch = relaxations(problem, costs)
    assert batch.bound.shape == (len(costs),)
    assert batch.choice.shape == (len(costs), problem.V)
    for b, cost in enumerate(costs):
        single = relaxation(dataclasses.replace(problem, options=dataclasses.replace(problem.options, cost=cost)))
        if single.bound is None or single.choice is None:
            assert batch.bound[b] == UNREACHABLE
            assert (batch.choice[b] == -1).all()
        else:
            assert batch.bound[b] == single.bound
            assert batch.choice[b].tolist() == single.choice.tolist()


@pytest.mark.parametrize("seed", range(30))
def test_equals_single_relaxations(seed: int, core: str) -> None:
    problem = random_problem(seed, gangs=seed % 3 > 0)
    costs = costs_for(problem, 1 + seed % 20, seed, coarse=seed % 2 > 0)
    assert_as_one_by_one(problem, costs)
    assert_as_one_by_one(with_overlap(problem, seed), costs)
    if problem.topology.pair_latency is None:
        assert_as_one_by_one(with_shards(problem), costs)
        assert_as_one_by_one(with_overlap(with_shards(problem), seed), costs)


@pytest.mark.parametrize("family", ["chain", "agent", "layered"])
def test_equals_single_relaxations_on_clusters(family: str, core: str) -> None:
    problem = generate(family, 8, 160)
    assert_as_one_by_one(problem, costs_for(problem, 70, 1))
    assert_as_one_by_one(problem, costs_for(problem, 3, 2, coarse=True))


def test_any_layout_of_costs_will_do(core: str) -> None:
    problem = generate("chain", 4, 64)
    costs = costs_for(problem, 10, 3)
    plain = relaxations(problem, costs)
    frozen = costs.copy()
    frozen.flags.writeable = False
    for other in (np.asfortranarray(costs), frozen, np.repeat(costs, 2, axis=1)[:, ::2]):
        assert relaxations(problem, other).choice.tolist() == plain.choice.tolist()


def test_none_and_impossible_requests(core: str) -> None:
    problem = generate("chain", 4, 64)
    assert relaxations(problem, costs_for(problem, 0, 0)).bound.tolist() == []
    costs = costs_for(problem, 3, 0)
    costs[1, problem.options.of(2)] = UNREACHABLE
    batch = relaxations(problem, costs)
    assert (batch.bound == UNREACHABLE).tolist() == [False, True, False]
    assert (batch.choice < 0).all(axis=1).tolist() == [False, True, False]
    none = dataclasses.replace(problem, capacity=np.zeros_like(problem.capacity))
    assert (relaxations(none, costs).choice == -1).all()


def test_wrong_costs_are_named() -> None:
    problem = generate("chain", 4, 64)
    with pytest.raises(InternalError, match=r"costs float64 \(2, 256\): expected int64 \(requests, 256\)"):
        relaxations(problem, np.zeros((2, 256)))  # type: ignore[arg-type]
