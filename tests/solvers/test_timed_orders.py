"""The compiled list schedules that look at what is placed, and the compiled search over the orders of devices."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.bench.public.stg import task_graph
from iegopt.problem.arrays import TICKS_PER_SECOND as SECOND
from iegopt.problem.arrays import Problem
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact import compiled
from iegopt.solvers.result import Params
from iegopt.solvers.timed.pricer import Pricer
from iegopt.solvers.timed.ranks import mean_ranks
from iegopt.solvers.timed.walk import Walk
from iegopt.verify.assignment import check_assignment
from tests.solvers.test_timed_search import published_example, scheduled


def urgency(rule: str, ends: list[tuple[float, int, int]], time: npt.NDArray[np.int64]) -> float:
    """How early a stage comes, the options of which are (score, finish, option), the best first."""
    score, finish, option = ends[0]
    by = {"minmin": -score, "maxmin": score, "sufferage": ends[1][0] - score, "etf": int(time[option]) - finish}
    return by[rule]


def listed(price: Pricer, rule: str) -> int:
    """The makespan of MinMin, MaxMin, Sufferage or ETF, in plain loops, where no two stages are equal before a rule."""
    problem, options = price.problem, price.problem.options
    free, finish, chosen = [0] * problem.topology.D, [0] * problem.V, [-1] * problem.V
    missing = set(range(problem.V))
    while missing:
        ends: dict[int, list[tuple[float, int, int]]] = {}
        for v in missing:
            if any(u in missing for _, u in price.dispatcher.incoming[v]):
                continue
            for o in price.own[v].tolist():
                inputs = price.dispatcher.incoming[v]
                at = max([finish[u] + price.transfers.between(e, chosen[u], o)[0] for e, u in inputs], default=0)
                at = max(at, free[int(options.site[o])])
                time = int(options.time[o])
                score = at + time * (1e-3 if rule == "etf" else 1.0)
                ends.setdefault(v, []).append((score, at + time, o))
        v = max(ends, key=lambda v: urgency(rule, sorted(ends[v]), options.time))
        _, finish[v], chosen[v] = min(ends[v])
        free[int(options.site[chosen[v]])] = finish[v]
        missing.remove(v)
    return max(finish)


@pytest.mark.usefixtures("core")
def test_rules_that_look_at_what_is_placed_are_those_of_their_papers() -> None:
    """The best of all rules, each of four made again in plain loops, on graphs whose times are all different."""
    core = compiled.kernels()
    assert core is not None
    reached = set()
    for seed in range(40):
        price = Pricer(random_graph(seed))
        walk = Walk(price, [1.0] * price.problem.V, random.Random(0))
        core.dispatched(walk._layout, 3, 3, 1.0, -1e6 * np.arange(10.0), walk._values, walk._plans)
        ends = {rule: listed(price, rule) for rule in ("minmin", "maxmin", "sufferage", "etf")}
        best = min(ends.values())
        assert walk._values[1] <= best
        reached |= {rule for rule, end in ends.items() if end == walk._values[1]}
    assert reached == {"minmin", "maxmin", "sufferage", "etf"}


def random_graph(seed: int, tasks: int = 10, processors: int = 3) -> Problem:
    """With transfers between the tasks."""
    rng = np.random.default_rng(seed)
    before = [sorted({int(u) for u in rng.integers(0, v, min(v, 2))}) for v in range(tasks)]
    sizes = [[float(x) for x in rng.integers(1, 99, len(own))] for own in before]
    time = rng.integers(10**8, 10**10, (tasks, processors))
    return task_graph(f"random-{seed}", time, before, processors, sizes, np.full((processors, processors), 0.05))


@pytest.mark.usefixtures("core")
def test_steps_over_orders_keep_count_of_what_a_plan_costs() -> None:
    """Graphs with and without devices that run one stage at a time, and with costs: prices are the verifier's."""
    better = 0
    for seed in range(30):
        problem = random_graph(seed)
        if seed % 3 == 1:
            problem = replace(problem, no_overlap=False)
        if seed % 3 == 2:
            rng = np.random.default_rng(seed)
            options = replace(problem.options, cost=rng.integers(0, 10**10, len(problem.options.cost)))
            edges = replace(problem.edges, weight=rng.uniform(0, 2, problem.E))
            problem = replace(problem, options=options, edges=edges)
        price = Pricer(problem)
        walk = Walk(price, [1.0] * 10, random.Random(seed))
        first = walk.best(Clock(0.0), 0, None)[0]
        for _ in range(20):
            walk.turns[0](0.02, 30)
        found = walk.best(Clock(0.0), 0, None)[0]
        start = found.table.start.tolist() if problem.no_overlap else None
        report = check_assignment(problem, list(found.chosen), start)
        assert report.ok, report.violations
        assert found.value == report.objective == walk._values[1]
        better += found.value < first.value
    assert better >= 10


@pytest.mark.usefixtures("core")
def test_steps_over_orders_alone_find_the_optimum_of_the_published_example() -> None:
    price, _ = scheduled(published_example())
    walk = Walk(price, mean_ranks(price).up, random.Random(3))
    walk.best(Clock(0.0), 0, None)
    for _ in range(300):
        walk.turns[0](0.02, 100)
    assert walk._values[1] == 73 * SECOND


@pytest.mark.usefixtures("core")
def test_the_compiled_walk_ends_when_its_patience_does() -> None:
    price, _ = scheduled(published_example())
    began = Clock(60.0)
    _, count = Walk(price, mean_ranks(price).up, random.Random(3)).best(began, 0, 2000)
    assert count >= 2000
    assert began.left > 30


@pytest.mark.usefixtures("core")
def test_time_that_does_not_suffice_for_a_bound_goes_to_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was left over where the first search had ended above five milliseconds and the relaxation needed more."""
    monkeypatch.setattr("iegopt.solvers.timed.solve.relaxation_seconds", lambda _: 60.0)
    began = Clock(0.05)
    solve(random_graph(0, 20), "auto", Params(time_limit=0.05))
    assert began.left < 0.02
