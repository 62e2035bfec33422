"""A conflict is infeasible by itself, and feasible without any one of its constraints."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iegopt.explain.conflict import Conflict, find_conflict
from iegopt.explain.core import infeasible_core
from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.families import generate
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers.brute import Brute
from iegopt.solvers.result import Params, Status
from iegopt.solvers.rules import Rule, relaxed, rules_of
from tests.solvers.random_problems import random_problem


def infeasible(problem: Problem) -> bool:
    return Brute().solve(problem, Params(), None).status is Status.INFEASIBLE


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_the_set_conflicts_and_none_of_it_is_idle(first: int) -> None:
    found = 0
    for seed in range(first, first + 50):
        problem = random_problem(seed)
        core = infeasible_core(problem)
        if core is None:
            assert not infeasible(problem), f"seed {seed}"
            continue
        found += 1
        assert core.minimal
        assert infeasible(relaxed(problem, core.rules)), f"seed {seed}"
        for rule in core.rules:
            rest = [other for other in core.rules if other != rule]
            assert not infeasible(relaxed(problem, rest)), f"seed {seed}: {rule} is idle"
    assert found


def test_a_problem_relaxed_to_all_its_rules_has_the_same_plans() -> None:
    for seed in range(40):
        problem = random_problem(seed)
        assert infeasible(problem) == infeasible(relaxed(problem, rules_of(problem))), f"seed {seed}"


def document(memory: float, **stage: object) -> Problem:
    """Two devices on one host, one stage that needs 40 GB and takes 100 or 200 ms."""
    options = {
        "site": [0, 1], "variant": ["fp16", "fp16"], "cost": [1.0, 1.0], "time": [0.1, 0.2], "memory": [40e9, 40e9],
    }  # fmt: skip
    link = {"latency": 1e-6, "bandwidth": 1e9}
    return to_problem(
        parse_instance(
            {
                "format": "iegopt-instance/1",
                "name": "two",
                "devices": {"id": ["g0", "g1"], "memory": [memory, 80e9]},
                "sites": {
                    "id": ["g0", "g1"], "devices": [[0], [1]],
                    "domain": [0, 1], "host": [0, 0], "rack": [0, 0], "datacenter": [0, 0],
                },
                "links": dict.fromkeys(("domain", "host", "rack", "datacenter", "wan"), link),
                "stages": [{"id": "decode", "options": options, **stage}],
                "edges": [],
            },
            "two",
        )
    )  # fmt: skip


def test_an_sla_that_only_a_full_device_keeps() -> None:
    sla, memory = find_conflict(document(5e9, sla=0.15))
    assert sla == Conflict(
        "sla", "decode", 0.1, None, 0.15, "s",
        "the SLA of decode is 150 ms and its fastest option takes 100 ms: 1 of its 2 options keep it", True,
    )  # fmt: skip
    assert memory == Conflict(
        "memory", "g0", 40e9, 40e9, 5e9, "B",
        "memory of g0: 5 GB free; decode cannot go elsewhere and needs 40 GB at least", True,
    )  # fmt: skip


def test_an_sla_that_nothing_keeps_needs_no_memory_to_explain_it() -> None:
    (sla,) = find_conflict(document(5e9, sla=0.05))
    assert (sla.rule, sla.requested, sla.capacity) == ("sla", 0.1, 0.05)
    assert sla.sentence.endswith("none of its options keeps it")


def test_a_feasible_problem_has_no_conflict() -> None:
    assert find_conflict(document(5e9)) == ()


def test_full_devices_are_told_in_one_sentence() -> None:
    problem = generate("chain", 8, 32, "slack", 0)
    none, full = np.full_like(problem.sla, NO_LIMIT), np.ones_like(problem.capacity)
    (memory,) = find_conflict(dataclasses.replace(problem, sla=none, capacity=full))
    assert memory.rule == "memory"
    assert memory.sentence.startswith("memory of 32 devices n0g0, n0g1 … n3g7: ")
    assert "of it on one device" in memory.sentence


def test_without_time_the_set_does_not_claim_to_be_minimal() -> None:
    problem = generate("chain", 8, 32, "tight", 0)
    blocked = dataclasses.replace(problem, capacity=problem.capacity // 20)
    core = infeasible_core(blocked, time_limit=0.0)
    assert core is not None
    assert all(rule in rules_of(blocked) for rule in core.rules)
    assert infeasible_core(problem, time_limit=0.0) is None


def test_a_stage_without_options_is_a_conflict_of_its_own() -> None:
    problem = document(80e9)
    options = problem.options
    none = {
        field.name: getattr(options, field.name)[:0]
        for field in dataclasses.fields(options)
        if field.name not in ("ptr", "kv_share")
    }
    bare = dataclasses.replace(problem, options=dataclasses.replace(options, ptr=np.array([0, 0]), **none))
    core = infeasible_core(bare)
    assert core is not None
    assert core.rules == (Rule("options", 0),)
    assert [c.sentence for c in find_conflict(bare)] == ["no device and variant can run decode at all"]
