"""Ruin and recreate: every step is priced exactly and keeps every constraint, by array operations and compiled."""

from __future__ import annotations

import random
from types import SimpleNamespace

import numpy as np
import pytest

from iegopt.errors import InternalError
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import device_load, feasible, objective
from iegopt.solvers.exact import compiled
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.result import Params
from iegopt.solvers.search.compiled_rebuild import CompiledRebuild, compilable
from iegopt.solvers.search.rebuild import _ByState, rebuild, unbuildable
from iegopt.solvers.search.state import State
from tests.solvers.random_problems import random_problem
from tests.solvers.test_messages import with_overlap, with_shards


@pytest.fixture(scope="module")
def loaded() -> SimpleNamespace:
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    before = compiled._ready
    compiled.warmup()
    module = compiled._ready
    compiled._ready = before
    assert module is not None
    return module


@pytest.fixture
def core(loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(compiled, "_ready", loaded)
    return loaded


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_ready", None)


def worst_plan(problem: Problem, seed: int) -> tuple[int, np.ndarray] | None:
    """The worst of some feasible plans at random, else the best there is; ``None`` where there is none."""
    rng = np.random.default_rng(seed)
    found = Brute().solve(problem, Params(), None)
    if found.objective is None or found.choice is None:
        return None
    plans = [found.choice]
    for _ in range(200):
        plan = rng.integers(problem.options.ptr[:-1], problem.options.ptr[1:])
        if problem.allowed[plan].all() and feasible(problem, plan):
            plans.append(plan)
    return max(((objective(problem, plan), plan) for plan in plans), key=lambda each: each[0])


def optimum(problem: Problem) -> int:
    value = Brute().solve(problem, Params(), None).objective
    assert value is not None
    return value


@pytest.mark.parametrize("seed", range(60))
def test_steps_by_arrays_keep_all_constraints(seed: int, plain: None) -> None:
    """Affinities, budgets, shared weights, gangs, any links; ``check`` recomputes every plan."""
    problem = random_problem(seed)
    start = worst_plan(problem, seed)
    if start is None or unbuildable(problem) is not None or problem.V < 2:
        return
    engine = _ByState(relaxation(problem), start, random.Random(seed), True, Clock(10.0))
    engine.go(0.1 * start[0], min(4, problem.V), 60)
    value, plan = engine.best
    assert feasible(problem, plan)
    assert optimum(problem) <= value == objective(problem, plan) <= start[0]


@pytest.mark.parametrize("links", ["tree", "odd"])
@pytest.mark.parametrize("seed", range(20))
def test_compiled_steps_keep_memory(links: str, seed: int, core: SimpleNamespace) -> None:
    """Gangs, shards, overlap, links that are dearer inside than outside."""
    first = random_problem(seed, links=links, gangs=seed % 3 > 0, affinity=False, deadline=False, extensions=False)
    for problem in (first, with_overlap(first, seed), with_shards(first), with_overlap(with_shards(first), seed)):
        start = worst_plan(problem, seed)
        if start is None or problem.V < 2:
            continue
        relaxed = relaxation(problem)
        assert compilable(relaxed)
        engine = CompiledRebuild(relaxed, start, random.Random(seed), check=True)
        for _ in range(5):
            engine.go(0.1 * start[0], min(4, problem.V), 100)
        assert optimum(problem) <= engine.best[0] <= start[0]


@pytest.mark.parametrize("links", ["tree", "odd"])
@pytest.mark.parametrize("seed", range(12))
def test_the_place_found_down_the_tree_is_the_cheapest(
    links: str, seed: int, core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For every stage alone and for two at once, against a look at every option; nothing is overlooked."""
    from iegopt.solvers.search import kernels

    for name in ("_cheapest", "_paid"):
        monkeypatch.setattr(kernels, name, getattr(kernels, name).py_func)
    monkeypatch.setattr(kernels, "uniform", lambda state: 1.0)
    first = random_problem(seed, links=links, gangs=seed % 3 > 0, affinity=False, deadline=False, extensions=False)
    for problem in (first, with_overlap(first, seed), with_overlap(with_shards(first), seed)):
        start = worst_plan(problem, seed)
        if start is None or problem.V < 2:
            continue
        relaxed = relaxation(problem)
        engine = CompiledRebuild(relaxed, start, random.Random(seed), check=True)
        plain = len(engine._layout[14]) == 1 and len(engine._prices[5]) == 0
        state = State(problem, relaxed.messages)
        for v in range(problem.V):
            state.adopt(start[1])
            for w in {v, (v + seed) % problem.V}:
                state.place(w, -1)
            offers = state.offers(v)
            expected = int(np.where(offers.violation <= 0, offers.cost, UNREACHABLE).min())
            choice = state.plan()
            free = problem.capacity - device_load(problem, choice[choice >= 0])
            found, paid = kernels._cheapest(
                v, UNREACHABLE, plain, choice, free, engine._layout, engine._prices, engine._graph,
                engine._least, None, np.empty((3, 1000), dtype=np.int64),
            )  # fmt: skip
            assert paid == expected == offers.cost[found - problem.options.ptr[v]]


@pytest.mark.parametrize("engine", ["arrays", "compiled"])
def test_small_problems_are_solved(engine: str, loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_ready", loaded if engine == "compiled" else None)
    met = 0
    for seed in range(12):
        problem = random_problem(seed, affinity=False, deadline=False, extensions=False, links="tree")
        start = worst_plan(problem, seed)
        if start is None or problem.V < 2:
            continue
        relaxed = relaxation(problem)
        assert compilable(relaxed) == (engine == "compiled")
        best, _ = rebuild(relaxed, start, Clock(0.1), random.Random(seed), check=True)
        met += best[0] == optimum(problem)
    assert met >= 9


def test_what_the_kernel_claims_is_recomputed(core: SimpleNamespace) -> None:
    problem = generate("layered", 4, 8, "tight", 0)
    plan = Brute().solve(problem, Params(), None).choice
    assert plan is not None
    engine = CompiledRebuild(relaxation(problem), (objective(problem, plan) + 1, plan), random.Random(0), check=True)
    with pytest.raises(InternalError, match="by deltas"):
        engine.go(1.0, 2, 1)


def test_limits_along_paths_are_left_to_other_searches() -> None:
    problem = next(p for p in map(random_problem, range(80)) if p.has_path_limits)
    assert unbuildable(problem) == "limits along paths"
    assert unbuildable(generate("chain", 4, 8, "tight", 0)) is None


def test_it_ends_with_the_clock() -> None:
    problem = generate("layered", 20, 64, "tight", 0)
    relaxed = relaxation(problem)
    plan = problem.options.ptr[:-1]
    best, steps = rebuild(relaxed, (1, plan), Clock(0.0), random.Random(0), check=False)
    assert best[0] == 1
    assert steps == 0


@pytest.mark.parametrize("turns", [1, 3])
def test_it_ends_after_so_many_turns_in_vain(turns: int, plain: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """From an optimum nothing is gained, in any round."""
    problem = generate("layered", 4, 8, "tight", 0)
    relaxed = relaxation(problem)
    plan = Brute().solve(problem, Params(), None).choice
    assert plan is not None
    best = objective(problem, plan), plan
    assert relaxed.bound < best[0]
    rounds: list[object] = []
    monkeypatch.setattr(_ByState, "rounds", ((4, 0.1), (2, 0.1)))
    monkeypatch.setattr(_ByState, "round_seconds", 0.002)
    restart = _ByState.restart
    monkeypatch.setattr(_ByState, "restart", lambda self: (rounds.append(self), restart(self)))
    found, _ = rebuild(relaxed, best, Clock(60.0), random.Random(0), check=False, least=1e-12, turns=turns)
    assert found[0] == best[0]
    assert len(rounds) == 1 + 2 * turns
