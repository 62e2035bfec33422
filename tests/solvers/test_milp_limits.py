"""Limits of the mixed-integer programme whose needs span many orders of magnitude: devices beside single bytes."""

from __future__ import annotations

import dataclasses
import random
from itertools import product
from typing import Literal

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers.brute import Brute
from iegopt.solvers.evaluate import device_load, feasible, finish_times
from iegopt.solvers.milp import backends
from iegopt.solvers.milp.limits import LARGEST, Limit, exactly, relaxed
from iegopt.solvers.milp.programme import cut_off, formulate
from iegopt.solvers.milp.solver import run_cbc, run_highs
from iegopt.solvers.milp.variables import Row, Variables
from iegopt.solvers.result import Params, Status
from tests.solvers.random_problems import random_problem
from tests.solvers.random_structured import structured_instance

Engine = Literal["HiGHS", "CBC"]
ENGINES: tuple[Engine, ...] = ("HiGHS", "CBC")


def proves_what_is_true(problem: Problem, engine: Engine) -> None:
    """An engine's answer is brute force's, with nothing proven beyond it."""
    reason = backends.missing(engine)
    if reason is not None:
        pytest.skip(reason)
    truth = Brute().solve(problem, Params(), None)
    result = (run_highs if engine == "HiGHS" else run_cbc)(problem, Params(), None)
    assert result.status is truth.status
    if result.choice is not None:
        assert result.bound is not None
        assert result.objective is not None
        assert truth.objective is not None
        assert feasible(problem, result.choice)
        assert result.bound <= truth.objective
        assert result.objective <= truth.objective + 1e-6 * abs(truth.objective)


def of_bytes_and_devices(seed: int) -> Problem:
    """Needs and memory of whole devices, halves, thirds, and some bytes more or less."""
    rng = random.Random(f"bytes and devices {seed}")
    document = structured_instance(seed)
    whole, little = rng.choice([3, 5, 7, 10, 80]) * 10**9, rng.choice([1, 1, 2, 7, 1000, 10**5])
    sizes = [0, little, 2 * little, whole, whole - little, whole // 2, whole // 2 + little, whole // 3]
    weights = {key: rng.choice(sizes) for key in ("A", "B")}
    for stage in document["stages"]:
        options = stage["options"]
        options.pop("kv", None)
        options["memory"] = [rng.choice(sizes) for _ in options["memory"]]
        if "weights" in options:
            options["weights"]["memory"] = [weights.get(key, 0) for key in options["weights"]["key"]]
    memory = document["devices"]["memory"]
    memory[:] = [rng.choice([whole, whole, whole + little, 2 * whole - little])] * len(memory)
    return to_problem(parse_instance(document, f"seed {seed}"))


def of_ticks_and_seconds(seed: int) -> Problem:
    """Times of single ticks and of seconds, and limits a tick around those of a plan."""
    rng = random.Random(f"ticks and seconds {seed}")
    problem = random_problem(seed, deadline=False)
    options = problem.options
    time = np.array([rng.choice([0, 1, 2, 3 * 10**9, 10**9, 10**9 - 1, 10**4 + 1]) for _ in options.time])
    problem = dataclasses.replace(problem, options=dataclasses.replace(options, time=time))
    choice = np.array([rng.randrange(options.ptr[v], options.ptr[v + 1]) for v in range(problem.V)])
    off = rng.choice([0, 0, -1, 1])
    if seed % 2:
        return dataclasses.replace(problem, deadline=max(1, int(finish_times(problem, choice).max()) + off))
    spent = int(time[choice].sum())
    return dataclasses.replace(problem, budget=max(0, spent + off), budget_stages=tuple(range(problem.V)))


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [555000268, 77000171, 91000521, 91000236, 91002866])
def test_a_byte_beside_gigabytes_was_proof_of_what_is_false(seed: int, engine: Engine) -> None:
    proves_what_is_true(to_problem(parse_instance(structured_instance(seed), "spread")), engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [*range(12), 56])
def test_bytes_beside_devices_are_told_apart(seed: int, engine: Engine) -> None:
    problem = of_bytes_and_devices(seed)
    if problem.timed:
        pytest.skip("no problem of this engine")
    proves_what_is_true(problem, engine)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", [*range(12), 378])  # the last one is what CBC's preprocessing gets wrong
def test_ticks_beside_seconds_are_told_apart(seed: int, engine: Engine) -> None:
    proves_what_is_true(of_ticks_and_seconds(seed), engine)


def bare() -> Variables:
    """No rows, and no columns but those of a small problem."""
    variables = formulate(random_problem(1)).variables
    variables.rows.clear()
    return variables


def kept(row: Row, values: dict[int, int]) -> bool:
    """Whether a row holds at whole values, to the tolerance of an engine."""
    assert row.sense == "<="
    return sum(a * values.get(column, 0) for column, a in row.terms.items()) <= row.rhs + 1e-6


def drawn(seed: int) -> tuple[Variables, Limit, list[int]]:
    """A limit on a few columns, near one of their sums."""
    rng, variables = random.Random(seed), bare()
    columns = [variables.column() for _ in range(6)]
    needs = [rng.choice([1, 1, 1, -1]) * (10 ** rng.randint(0, 13) + rng.choice([-1, 0, 0, 1])) for _ in columns]
    most = sum(rng.sample(needs, 3)) + rng.choice([-1, 0, 0, 1])
    return variables, Limit(dict(zip(columns, needs, strict=True)), most), columns


@pytest.mark.parametrize("seed", range(100))
def test_digits_say_what_the_limit_says(seed: int) -> None:
    variables, limit, columns = drawn(seed)
    exactly(variables, limit)
    carries = range(columns[-1] + 1, len(variables.upper))
    assert all(variables.integer[c] for c in carries)
    assert max(abs(a) for row in variables.rows for a in row.terms.values()) <= LARGEST
    for chosen in product([0, 1], repeat=len(columns)):
        values = dict(zip(columns, chosen, strict=True))
        for row, carry in zip(variables.rows, carries, strict=False):  # the least carry that keeps each digit
            values[carry] = next(
                (n for n in range(round(variables.upper[carry] or 0) + 1) if kept(row, {**values, carry: n})), 0
            )
        holds = sum(limit.terms[c] * values[c] for c in columns) <= limit.most
        assert all(kept(row, values) for row in variables.rows) == holds, chosen


@pytest.mark.parametrize("seed", range(100))
def test_a_relaxed_limit_cuts_nothing_off_and_is_broken_by_1_or_not_at_all(seed: int) -> None:
    variables, limit, columns = drawn(seed)
    relaxed(variables, limit)
    (row,) = variables.rows
    assert all(isinstance(a, int) and abs(a) <= LARGEST for a in row.terms.values())
    assert isinstance(row.rhs, int)
    for chosen in product([0, 1], repeat=len(columns)):
        values = dict(zip(columns, chosen, strict=True))
        if sum(limit.terms[c] * values[c] for c in columns) <= limit.most:
            assert kept(row, values)


def test_small_limits_are_stated_as_they_are() -> None:
    variables = bare()
    a, b = variables.column(), variables.column()
    relaxed(variables, Limit({a: 10_000, b: 3}, 10_002))
    assert variables.rows == [Row({a: 10_000, b: 3}, "<=", 10_002)]


def test_what_a_plan_breaks_is_stated_once_and_then_forbidden() -> None:
    problem = random_problem(3, memory="tight", deadline=False)
    programme = formulate(problem)
    variables = programme.variables
    choices = (np.array(chosen) for chosen in product(*(own.tolist() for own in variables.options)))
    choice = next(chosen for chosen in choices if (device_load(problem, chosen) > problem.capacity).any())
    rows = len(variables.rows)
    cut_off(programme, choice)
    stated = len(variables.rows)
    assert programme.exact
    assert stated > rows
    cut_off(programme, choice)
    assert len(variables.rows) == stated + 1
    assert variables.rows[-1].rhs == len(variables.rows[-1].terms) - 1


def test_answers_of_infeasible_problems_stay_proofs() -> None:
    problem = of_ticks_and_seconds(1)
    late = dataclasses.replace(problem, finish_by=np.full(problem.V, -1))
    assert run_highs(late, Params(), None).status is Status.INFEASIBLE
