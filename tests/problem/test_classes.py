"""Merging interchangeable devices keeps optimum and infeasibility, and never loses a hint."""

from __future__ import annotations

import dataclasses
import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.classes import fold
from iegopt.problem.families import generate
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.result import Params, Status
from tests.solvers.random_problems import LEVELS, random_instance


def copied(seed: int) -> Problem:
    """A random problem whose devices are there several times, in groups of their own up to a level; some are spoilt."""
    rng = random.Random(seed)
    V = rng.choice([2, 2, 3])
    document = random_instance(seed, stages=V, links=rng.choice(["tree", "odd"]), combinations=9 * V)
    copies, level = rng.randint(3, 6), rng.choice([0, 2, 2, 3, 3, 4])
    D, S = len(document["devices"]["id"]), len(document["sites"]["id"])
    devices, sites = document["devices"], document["sites"]
    document["devices"] = {
        "id": [f"c{c}{name}" for c in range(copies) for name in devices["id"]],
        "memory": [m if rng.random() < 0.97 else m // 2 for _ in range(copies) for m in devices["memory"]],
    }
    document["sites"] = {
        "id": [f"c{c}{name}" for c in range(copies) for name in sites["id"]],
        "devices": [[c * D + d for d in members] for c in range(copies) for members in sites["devices"]],
    }
    for i, name in enumerate(LEVELS):
        own = [100 * c + g if g >= 0 else -1 for c in range(copies) for g in sites[name]]
        document["sites"][name] = own if i < level else [0] * (copies * S)
        if i >= level:
            document["links"].get(name, {}).pop("groups", None)
    for stage in document["stages"]:
        _copy_options(rng, stage["options"], copies, S)
    for edge in document["edges"]:
        if "overlap" in edge:
            edge["overlap"]["hidden"] = edge["overlap"]["hidden"] * copies
    problem = to_problem(parse_instance(document, f"seed {seed}"))
    timed = seed % 4
    return dataclasses.replace(problem, makespan_weight=0.5 * (timed == 1), peak_memory=timed == 2)


def _copy_options(rng: random.Random, options: dict[str, Any], copies: int, sites: int) -> None:
    options["site"] = [c * sites + s for c in range(copies) for s in options["site"]]
    for name in ("variant", "cost", "time", "memory"):
        options[name] = options[name] * copies
    if "weights" in options:
        options["weights"] = {name: column * copies for name, column in options["weights"].items()}
    for o in range(len(options["cost"])):
        if rng.random() < 0.02:
            options["cost"][o] = round(options["cost"][o] + 0.125, 9)


@pytest.fixture(autouse=True)
def _whatever_it_saves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("iegopt.problem.classes._WORTH", 0.999)
    monkeypatch.setattr("iegopt.problem.classes._DISTINCT", 1.0)


@pytest.mark.parametrize("first", range(0, 600, 50))
def test_what_is_left_has_an_optimal_plan(first: int) -> None:
    tested = 0
    for seed in range(first, first + 50):
        problem = copied(seed)
        folded = fold(problem)
        if folded is None:
            continue
        tested += 1
        whole, small = (Brute().solve(each, Params(), None) for each in (problem, folded.problem))
        assert (small.status, small.objective) == (whole.status, whole.objective), seed
        if small.choice is not None:
            assert feasible(problem, folded.kept[small.choice]), seed
            assert objective(problem, folded.kept[small.choice]) == whole.objective, seed
    assert tested > 10


@pytest.mark.parametrize("first", range(0, 200, 50))
def test_a_hint_stays(first: int) -> None:
    tested = 0
    rng = random.Random(first)
    for seed in range(first, first + 50):
        problem = copied(seed)
        ptr = problem.options.ptr.tolist()
        hint = np.array([rng.randrange(a, b) for a, b in pairwise(ptr)])
        folded = fold(problem, hint)
        if folded is None:
            continue
        tested += 1
        inside = np.searchsorted(folded.kept, hint)
        assert np.array_equal(folded.kept[inside], hint), seed
        assert objective(folded.problem, inside) == objective(problem, hint), seed
        assert feasible(folded.problem, inside) == feasible(problem, hint), seed
    assert tested > 8


def alike(stages: int, sites: int, memory: str) -> Problem:
    """A family without its noise: devices of one type are equal."""
    problem = generate("agent", stages, sites, memory, 0)  # type: ignore[arg-type]
    topology, options = problem.topology, problem.options
    kind = np.arange(topology.D) // 8 % 4 % 3  # in every rack two hosts of one type, and one each of two others
    time = (np.arange(1, stages + 1)[:, None] * (10**8 * (1 + kind))[None, :]).ravel()
    options = dataclasses.replace(options, cost=time, time=time)
    capacity, none = np.array([80, 48, 24])[kind] * 10**9, np.full(stages, NO_LIMIT)
    return dataclasses.replace(problem, options=options, capacity=capacity, sla=none)


def test_equal_hosts_racks_and_datacenters_are_counted() -> None:
    problem = alike(2, 4096, "slack")
    folded = fold(problem)
    assert folded is not None
    assert folded.of == 4096
    # Of 16 datacenters, 8 racks in each and the 4 devices of a domain two each; hosts of one type are two at most.
    assert folded.sites == 2 * 2 * 4 * 2 * 2
    assert fold(folded.problem) is None
    result = solve(problem, "auto", Params(time_limit=20.0))
    truth = solve(problem, "prices", Params(time_limit=20.0))
    assert result.status is Status.OPTIMAL
    assert result.objective == truth.objective
    assert "classes" not in result.note  # the relaxation alone proves it


def test_equal_devices_are_counted_where_the_relaxation_is_no_proof() -> None:
    problem = alike(4, 256, "tight")
    result = solve(problem, "auto", Params(time_limit=20.0))
    truth = solve(problem, "prices", Params(time_limit=20.0))
    assert result.status is Status.OPTIMAL
    assert result.objective == truth.objective
    assert "classes of equal devices" in result.note


def test_what_is_named_by_costs_or_memory_stands_alone() -> None:
    problem = alike(2, 64, "slack")
    cost = problem.options.cost.copy()
    cost[5] -= 1
    named = fold(dataclasses.replace(problem, options=dataclasses.replace(problem.options, cost=cost)))
    assert named is not None
    assert 5 in named.kept
    capacity = problem.capacity.copy()
    capacity[62] += 1
    roomy = fold(dataclasses.replace(problem, capacity=capacity))
    assert roomy is not None
    assert 62 in roomy.kept


def test_noise_leaves_nothing_equal() -> None:
    assert fold(generate("chain", 5, 64, "slack", 0)) is None
