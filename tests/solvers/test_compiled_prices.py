"""Priced bounds by kernels are those by numpy, to the bit: bounds, prices, min-marginals, and what beams are given."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest

from iegopt.problem.families import Family, generate
from iegopt.solvers.exact import candidates as layout
from iegopt.solvers.exact import compiled
from iegopt.solvers.exact.branching import propagate
from iegopt.solvers.exact.candidates import Candidates, candidates
from iegopt.solvers.exact.couplings import couplings
from iegopt.solvers.exact.links import TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pricing import Priced, Pricing, no_split
from iegopt.solvers.exact.time_rows import TimeRows
from iegopt.solvers.exact.weights import weights_of_nodes
from tests.solvers.random_problems import random_problem


@pytest.fixture(scope="module")
def loaded() -> SimpleNamespace:
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    before = compiled._ready
    compiled.warmup()
    module = compiled._ready
    compiled._ready = before
    assert module is not None
    return module


def some_nodes(c: Candidates, count: int, rng: np.random.Generator) -> np.ndarray:
    """(n, B) random masks, the first of them whole; every stage keeps an option."""
    keep = rng.random((len(c.option), count)) < rng.random(count) * 0.8
    for part in c.of:
        keep[part.start + rng.integers(0, part.stop - part.start, count), np.arange(count)] = True
    keep[:, 0] = True
    return keep


def price(c: Candidates, keep: np.ndarray, upper: int, seed: int) -> tuple[Priced, list[list[int]]]:
    """After some steps from random prices and splits, with the plans that were offered."""
    rng = np.random.default_rng(seed)
    offered: list[list[int]] = []
    B = keep.shape[1]
    prices = rng.integers(0, max(2, upper // 50), (len(c.capacity), B)).astype(np.float64) * (seed % 2)
    prices[-1] = 0
    split = [part + rng.integers(-(10**6), 10**6, part.shape) for part in no_split(c, B)]
    pricing = Pricing(c, keep, prices, split, None, seed % 3 > 0)
    return pricing.run(lambda: upper, 9, 1.0, lambda plan: offered.append(plan.tolist()), lambda _: False), offered


def assert_same(c: Candidates, count: int, seed: int, ready: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert c.passes is not None
    rng = np.random.default_rng(seed)
    keep = some_nodes(c, count, rng)
    upper = int(c.cost.max()) * c.V // (1 + seed % 3) + 1
    found = []
    for core in (None, ready):
        monkeypatch.setattr(compiled, "_ready", core)
        rows = TimeRows(c.problem, couplings(c.problem))  # what is late becomes a row: either core starts without any
        found.append(price(dataclasses.replace(c, rows=rows), keep, upper, seed))
    (slow, slowly), (fast, fastly) = found
    assert slowly == fastly
    for name in ("bound", "price", "toll", "marginals", "mass"):
        assert np.array_equal(getattr(slow, name), getattr(fast, name)), name
    assert all(np.array_equal(a, b) for a, b in zip(slow.split, fast.split, strict=True))
    plans = np.stack([rng.integers(0, part.stop - part.start, 4) for part in c.of], axis=1)
    for v in range(c.V):
        for b in range(count):
            assert np.array_equal(*(each.passed.growth(v, b, plans) for each in (slow, fast))), (v, b)


@pytest.mark.parametrize("first", range(0, 120, 20))
def test_random_problems_are_bounded_the_same(
    first: int, loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    kinds = []
    for seed in range(first, first + 20):
        problem = random_problem(seed, stages=6, shape="dag", gangs=seed % 3 > 0, combinations=10_000)
        stages = problem.options.stage[problem.allowed]
        if len(np.unique(stages)) < problem.V:
            continue
        c = candidates(problem, problem.allowed)
        if c.passes is None:
            continue
        kinds.append((bool(c.reduction.pairs), c.rows.timed))
        assert_same(c, 1 + seed % 4, seed, loaded, monkeypatch)
    assert len(kinds) > 5
    assert len(set(kinds)) > 1


@pytest.mark.parametrize("family", ["chain", "joins", "layered", "agent"])
@pytest.mark.parametrize("seed", range(3))
def test_clusters_are_bounded_the_same(
    family: Family, seed: int, loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Edges that close cycles are split where the graph is dense; some have a deadline that few plans keep."""
    problem = generate(family, 14, 96, "tight", seed, gangs=seed > 0)
    rng = np.random.default_rng(seed)
    if seed == 2:
        problem = dataclasses.replace(problem, deadline=int(np.median(problem.options.time)) * problem.V // 2)
    monkeypatch.setattr(layout, "_TABLE_CELLS", 10**9)
    mask = problem.allowed & (rng.random(len(problem.allowed)) < 0.3)
    c = candidates(problem, mask)
    assert bool(c.reduction.dropped) == (family == "layered")
    assert_same(c, 1 + 2 * seed, seed, loaded, monkeypatch)


@pytest.mark.parametrize("lowest", [0, -(10**6)])
@pytest.mark.parametrize("nodes", [1, 5])
def test_tables_send_the_same(
    nodes: int, lowest: int, loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(nodes)
    table = rng.integers(lowest, 10**9, (40, 7))
    table[rng.random(table.shape) < 0.2] = UNREACHABLE
    table[0], table[:, 0] = UNREACHABLE, UNREACHABLE
    for forward in (True, False):
        theta = rng.integers(-(10**8), 10**9, (40 if forward else 7, nodes))
        theta[rng.random(theta.shape) < 0.3] = UNREACHABLE
        found = []
        for core in (None, loaded):
            monkeypatch.setattr(compiled, "_ready", core)
            found.append(TableLink(table).send(theta, forward))
        assert np.array_equal(*found)


@pytest.mark.parametrize("seed", range(30))
def test_weights_of_nodes_are_the_same(seed: int, loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(seed, gangs=seed % 2 > 0, extensions=seed % 3 > 0, memory="slack")
    if len(np.unique(problem.options.stage[problem.allowed])) < problem.V:
        pytest.skip("a stage without options")
    c = candidates(problem, problem.allowed)
    keep = some_nodes(c, 6, np.random.default_rng(seed))
    for strengthened in (False, True):
        found = []
        for core in (None, loaded):
            monkeypatch.setattr(compiled, "_ready", core)
            found.append(weights_of_nodes(c, keep, strengthened))
        assert np.array_equal(*found)


def test_constants_of_kernels_are_those_of_the_package(loaded: SimpleNamespace) -> None:
    from iegopt.solvers.exact import ascent, node_kernels, price_kernels, weights

    for name in ("_PATIENCE", "_SHRINK", "_DEFLECTION", "_FALL", "_CUT", "_GAIN", "_FARTHEST"):
        assert getattr(price_kernels, name) == getattr(ascent, name)
    assert (price_kernels._MOST_PARTS, price_kernels._NEAR) == (weights.MOST_PARTS, weights._NEAR)
    assert node_kernels.UNREACHABLE == price_kernels._UNREACHABLE == UNREACHABLE


@pytest.mark.parametrize("first", range(0, 90, 30))
def test_fixed_stages_leave_the_same(first: int, loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = []
    for seed in range(first, first + 30):
        problem = random_problem(
            seed, gangs=seed % 2 > 0, extensions=seed % 3 > 0, affinity=True, memory="tight" if seed % 5 else "slack"
        )
        if len(np.unique(problem.options.stage[problem.allowed])) < problem.V:
            continue
        c = candidates(problem, problem.allowed)
        for keep in some_nodes(c, 5, np.random.default_rng(seed)).T:
            found, before = [], keep.copy()
            for core in (None, loaded):
                monkeypatch.setattr(compiled, "_ready", core)
                found.append(propagate(c, keep))
            assert np.array_equal(keep, before)
            assert (found[0] is None) == (found[1] is None)
            assert found[0] is None or np.array_equal(*found)
            outcomes.append(None if found[0] is None else int(before.sum() - found[0].sum()))
    assert None in outcomes
    assert 0 in outcomes
    assert any(outcomes)
