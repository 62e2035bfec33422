"""Branch and bound over schedules against brute force, and that it ends where few stages are left."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from iegopt.problem.arrays import TICKS_PER_SECOND as SECOND
from iegopt.problem.arrays import Problem
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Params, Status
from iegopt.solvers.timed.pricer import Pricer
from iegopt.solvers.timed.walk import Walk
from tests.solvers.test_timed_orders import random_graph
from tests.solvers.test_timed_search import published_example


def varied_graph(seed: int, tasks: int, processors: int) -> Problem:
    """With and without costs, tasks of no time, and devices that run one at a time, under odd weights."""
    rng = np.random.default_rng(seed)
    problem = random_graph(seed, tasks, processors)
    options, edges = problem.options, problem.edges
    if seed % 2:
        options = replace(options, time=options.time * np.repeat(rng.random(tasks) > 0.3, processors))
    if seed % 3 == 1:
        options = replace(options, cost=rng.integers(-(10**9), 10**10, len(options.cost)))
        edges = replace(edges, weight=rng.uniform(0, 2, problem.E))
    weight = [1.0, 0.333333, 2.5][seed % 4 % 3]
    return replace(problem, options=options, edges=edges, makespan_weight=weight, no_overlap=seed % 5 > 0)


@pytest.mark.usefixtures("core")
@pytest.mark.parametrize("seed", range(60))
def test_few_partial_schedules_at_a_time_prove_what_brute_force_finds(seed: int) -> None:
    problem = varied_graph(seed, 4 + seed % 2, 2 + seed % 2)
    walk = Walk(Pricer(problem), [1.0] * problem.V, random.Random(seed))
    first = walk.best(Clock(0.0), 0, None)[0]
    calls = 0
    while not walk.exhausted:
        walk.turns[2](0.0, 3)
        calls += 1
    found = walk.best(Clock(0.0), 0, None)[0]
    assert found.value == solve(problem, "brute").objective
    assert found.value <= first.value
    assert calls < 2000


@pytest.mark.usefixtures("core")
def test_the_published_example_is_proven_in_a_fraction_of_a_second() -> None:
    """An engine alone would not be asked for a limit of 0.3 s."""
    result = solve(published_example(), "auto", Params(time_limit=0.3))
    assert (result.status, result.proof) == (Status.OPTIMAL, "branch and bound over schedules")
    assert result.objective == result.bound == 73 * SECOND


@pytest.mark.usefixtures("core")
def test_many_stages_and_many_options_are_left_to_others() -> None:
    for tasks, sites, few in ((12, 21, True), (13, 3, False), (12, 22, False)):
        problem = random_graph(0, tasks, sites)
        assert (len(Walk(Pricer(problem), [1.0] * tasks, random.Random(0)).turns) == 3) == few


@pytest.mark.usefixtures("core")
def test_makespans_that_could_not_be_counted_are_left_to_others() -> None:
    problem = replace(random_graph(0, 10, 3), makespan_weight=1.000001)
    slow = replace(problem, options=replace(problem.options, time=problem.options.time * 10**3))
    turns = [len(Walk(Pricer(each), [1.0] * 10, random.Random(0)).turns) for each in (problem, slow)]
    assert turns == [3, 2]
