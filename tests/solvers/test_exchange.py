"""Exchanges: plans that no move of two stages makes cheaper, that keep every memory and cost no more than before."""

from __future__ import annotations

import itertools
import math

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.families import FAMILIES, Memory, generate
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact import compiled
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.candidates import candidates
from iegopt.solvers.exact.exchange import exchange_stages
from iegopt.solvers.result import Params
from iegopt.solvers.search.greedy import GreedySolver

Ints = npt.NDArray[np.int64]


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    monkeypatch.setattr(compiled, "_ready", compiled._ready)  # which it is again behind the test
    compiled.warmup()


def some_plan(problem: Problem, seed: int) -> Ints | None:
    """A plan that keeps all constraints, stage by stage at random; ``None`` where chance finds none."""
    rng = np.random.default_rng(seed)
    for _ in range(200):
        plan = np.array([rng.choice(np.flatnonzero(problem.allowed[problem.options.of(v)])) for v in range(problem.V)])
        plan = plan + problem.options.ptr[:-1]
        if feasible(problem, plan):
            return plan
    return GreedySolver().solve(problem, Params(time_limit=2.0, seed=seed), None).choice


def test_no_two_stages_move_to_less(kernels: None) -> None:
    better = 0
    for seed, family in itertools.product(range(8), FAMILIES):
        memory: Memory = "tight" if seed % 2 else "part_full"
        problem = generate(family, 5, 12, memory, seed, gangs=seed % 4 < 2)
        start = some_plan(problem, seed)
        if start is None:
            continue
        c = candidates(problem, problem.allowed)
        best = BestPlan(problem, (objective(problem, start), start), 1 << 60)
        moved = exchange_stages(c, best, Clock(60.0), kicks=seed % 3)
        assert best.value is not None
        assert best.plan is not None
        assert feasible(problem, best.plan)
        assert best.value == objective(problem, best.plan)
        assert moved == (best.value < objective(problem, start))
        better += moved
        assert not _improved(problem, best.plan), problem.name
    assert better > 10


def _improved(problem: Problem, plan: Ints) -> bool:
    """Whether some two stages cost less elsewhere, by trying all of their options."""
    value, span = objective(problem, plan), problem.options.of
    for u, v in itertools.combinations(range(problem.V), 2):
        for a, b in itertools.product(*(np.flatnonzero(problem.allowed[span(w)]) + span(w).start for w in (u, v))):
            other = plan.copy()
            other[[u, v]] = a, b
            if objective(problem, other) < value and feasible(problem, other):
                return True
    return False


def test_a_plan_that_is_not_among_the_candidates_stays(kernels: None) -> None:
    problem = generate("chain", 4, 16, "slack", 0)
    plan = problem.options.ptr[:-1] + 3
    mask = problem.allowed.copy()
    mask[plan[0]] = False
    best = BestPlan(problem, (objective(problem, plan), plan), 1 << 60)
    assert not exchange_stages(candidates(problem, mask), best, Clock(60.0))
    assert best.plan is plan


def test_nothing_is_begun_that_the_time_does_not_allow(kernels: None) -> None:
    problem = generate("chain", 4, 16, "slack", 0)
    plan = problem.options.ptr[:-1] + 3
    best = BestPlan(problem, (objective(problem, plan), plan), 1 << 60)
    assert not exchange_stages(candidates(problem, problem.allowed), best, Clock(0.0))
    assert exchange_stages(candidates(problem, problem.allowed), best, Clock(math.inf))


def test_many_options_are_looked_at_no_longer_than_the_time_allows(kernels: None) -> None:
    """Stages that no edge joins have no tables, and still as many pairs of options."""
    rng = np.random.default_rng(0)
    devices, variants = 20, 100
    stages = []
    for v in range(40):
        cost = 1 - np.tile(np.linspace(0, 0.3, variants), devices) + rng.random(devices * variants) * 0.02
        memory = 20 + np.tile(np.arange(variants) * 60 // variants, devices) + rng.integers(0, 4, devices * variants)
        options = {
            "site": np.repeat(np.arange(devices), variants).tolist(),
            "variant": [f"m{i}" for i in range(variants)] * devices,
            "cost": cost.tolist(),
            "time": cost.tolist(),
            "memory": memory.tolist(),
        }
        stages.append({"id": f"s{v}", "options": options})
    names = [f"d{d}" for d in range(devices)]
    levels = {level: list(range(devices)) for level in ("domain", "host", "rack", "datacenter")}
    document = {
        "format": "iegopt-instance/1",
        "name": "no edges",
        "devices": {"id": names, "memory": [100] * devices},
        "sites": {"id": names, "devices": [[d] for d in range(devices)], **levels},
        "links": {level: {"latency": 1e-3, "bandwidth": 1e9} for level in (*levels, "wan")},
        "stages": stages,
        "edges": [],
    }
    problem = to_problem(parse_instance(document, "no edges"))
    start = problem.options.ptr[:-1] + np.arange(40) % devices * variants  # two to a device, the dearest variants
    assert feasible(problem, start)
    best, c = BestPlan(problem, (objective(problem, start), start), 1 << 60), candidates(problem, problem.allowed)
    clock = Clock(0.2)
    assert exchange_stages(c, best, clock, kicks=10)
    assert clock.left > 0
    assert best.plan is not None
    assert feasible(problem, best.plan)


@pytest.mark.parametrize("leaves", [255, 300])
def test_hundreds_of_pairs_that_do_not_go_together_add_up_to_no_gain(kernels: None, leaves: int) -> None:
    """A stage that has to stand apart from all others, where standing beside them is cheaper."""
    topology = {level: [0, 1] for level in ("domain", "host", "rack", "datacenter")}
    free = {"site": [0, 1], "variant": ["x", "x"], "time": [1.0, 1.0], "memory": [0, 0]}
    ends = range(1, leaves + 1)
    document = {
        "format": "iegopt-instance/1",
        "name": "hub",
        "devices": {"id": ["a", "b"], "memory": [1, 1]},
        "sites": {"id": ["a", "b"], "devices": [[0], [1]], **topology},
        "links": {level: {"latency": 1e-4, "bandwidth": 1e9} for level in (*topology, "wan")},
        "stages": [
            {"id": f"s{v}", "options": free | {"cost": [1.0, 0.1] if v == 0 else [1.5 + v / 1000, 1.0]}}
            for v in range(leaves + 1)
        ],
        "edges": [{"from": 0, "to": v, "kind": "data", "bytes": 1000, "weight": 1.0} for v in ends],
        "affinity": [{"stages": [0, v], "level": "site", "apart": True, "required": True, "penalty": 0} for v in ends],
    }
    problem = to_problem(parse_instance(document, "hub"))
    start = problem.options.ptr[:-1] + np.array([0] + [1] * leaves)  # the other plan costs more
    best = BestPlan(problem, (objective(problem, start), start), 1 << 60)
    clock = Clock(2.0)
    assert not exchange_stages(candidates(problem, problem.allowed), best, clock)
    assert clock.left > 1.5
