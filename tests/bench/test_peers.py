"""Every peer against brute force, on small problems that it says it can state; those not installed are skipped."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Iterator

import numpy as np
import pytest

from iegopt.bench.engine import not_additive
from iegopt.bench.engines import PEERS, missing
from iegopt.bench.peers.saga import HEURISTICS, Saga, related_machines
from iegopt.bench.process import EngineProcess
from iegopt.bench.public.saga_random import random_task_graph
from iegopt.bench.public.stg import task_graph
from iegopt.bench.related import on_related_machines
from iegopt.bench.rows import row_of
from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.arrays import TICKS_PER_SECOND as SECOND
from iegopt.problem.families import FAMILIES, generate
from iegopt.solvers.api import solve
from iegopt.solvers.result import Params, Result, Status
from iegopt.spec.suite import SagaGraph
from iegopt.verify.assignment import check_assignment
from tests.solvers.random_problems import random_problem

EXACT = ["cpsat-element", "highs-weak", "highs-strong", "toulbar2"]
LIMIT = Params(time_limit=30.0)


@pytest.fixture(scope="module")
def processes() -> Iterator[dict[str, EngineProcess]]:
    """A warm process for each peer, kept for the tests of this file."""
    made: dict[str, EngineProcess] = {}
    yield made
    for process in made.values():
        process.stop()


def needed(name: str) -> None:
    reason = missing(name)
    if reason is not None:
        pytest.skip(reason)


def statable(count: int) -> list[Problem]:
    """Random problems that a peer can state: small, any links, gangs, affinities."""
    found = []
    seed = 0
    while len(found) < count:
        problem = random_problem(seed, extensions=False, deadline=False)
        seed += 1
        if not_additive(problem) is None:
            found.append(problem)
    return found


def outcome(processes: dict[str, EngineProcess], name: str, problem: Problem, hint: object = None) -> Result:
    process = processes.setdefault(name, EngineProcess(name))
    got = process.run(pickle.dumps(problem), LIMIT, hint, 5.0)  # type: ignore[arg-type]
    assert got.failure is None, got.reason
    assert got.result is not None
    row = row_of({}, problem, got)
    assert row["status"] == got.result.status, row["reason"]
    return got.result


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_an_exact_peer_agrees_with_brute_force(name: str, processes: dict[str, EngineProcess]) -> None:
    needed(name)
    statuses = set()
    for problem in statable(5 if PEERS[name].fresh else 12):
        known = solve(problem, "brute")
        found = outcome(processes, name, problem)
        assert (found.status, found.objective) == (known.status, known.objective), problem.name
        statuses.add(found.status)
    assert Status.OPTIMAL in statuses


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_the_optimum_as_a_hint_comes_back(name: str, processes: dict[str, EngineProcess]) -> None:
    needed(name)
    problem = generate("agent", 4, 8, "tight", 1)
    known = solve(problem, "brute")
    found = outcome(processes, name, problem, known.choice)
    assert (found.status, found.objective) == (Status.OPTIMAL, known.objective)


@pytest.mark.parametrize("name", [name for name in EXACT if name != "toulbar2"])
def test_a_stage_without_options_needs_no_engine(name: str) -> None:
    problem = generate("chain", 3, 4, "slack", 0)
    none = dataclasses.replace(problem, sla=np.zeros(3, dtype=np.int64))
    assert PEERS[name].solve(none, LIMIT, None, lambda *_: None).status is Status.INFEASIBLE


def test_what_a_peer_cannot_state_it_says() -> None:
    problem = generate("chain", 3, 4, "slack", 0)
    timed = dataclasses.replace(problem, deadline=10**12)
    spent = dataclasses.replace(problem, budget=10**12, budget_stages=(0,))
    graph = task_graph("g", (1, 1), ((), (0,)), 2)
    dear = dataclasses.replace(graph, options=dataclasses.replace(graph.options, cost=np.arange(4)))
    uneven = dataclasses.replace(graph, options=dataclasses.replace(graph.options, time=np.arange(1, 5) * SECOND))
    large = generate("chain", 3, 4000, "slack", 0)
    for name in EXACT:
        assert PEERS[name].supports(problem) is None
        assert PEERS[name].supports(timed) == "limits on finish times"
        assert PEERS[name].supports(spent) == "a budget of time"
        assert PEERS[name].supports(graph) == "a makespan, an order on devices or memory over time"
    assert problem.budget == NO_LIMIT
    assert str(PEERS["highs-strong"].supports(large)).endswith("pairs of options, more than 2,000,000")
    for name in HEURISTICS:
        assert PEERS[name].supports(problem) == "it minimises a makespan, this problem a sum of costs"
        assert PEERS[name].supports(dear) == "it minimises a makespan, this problem a sum of costs"
        assert PEERS[name].supports(uneven) == "other than tasks on related machines"
        assert PEERS[name].supports(graph) is None


FOUR_TASKS = task_graph("g", tuple(t * SECOND for t in (3, 2, 4, 1)), ((), (), (0, 1), (1,)), 2)


@pytest.mark.parametrize("name", HEURISTICS)
def test_a_list_scheduler_s_schedule_is_feasible(name: str) -> None:
    needed(name)
    found = PEERS[name].solve(FOUR_TASKS, LIMIT, None, lambda *_: None)
    assert (found.status, found.bound) == (Status.FEASIBLE, None), found.note
    assert found.choice is not None
    assert found.start is not None
    report = check_assignment(FOUR_TASKS, found.choice.tolist(), found.start.tolist())
    assert report.ok, report.violations
    assert found.objective == report.objective
    assert 7 * SECOND <= found.objective <= 10 * SECOND


@pytest.mark.slow
def test_a_list_scheduler_answers_from_its_process(processes: dict[str, EngineProcess]) -> None:
    needed("heft")
    found = outcome(processes, "heft", FOUR_TASKS)
    assert found.status is Status.FEASIBLE
    assert found.start is not None
    assert len(found.start) == 4


@pytest.mark.slow
@pytest.mark.parametrize("name", HEURISTICS)
@pytest.mark.parametrize("graph", ["in-trees", "out-trees", "chains"])
def test_their_makespan_is_ours(name: str, graph: SagaGraph) -> None:
    """What they say a schedule of theirs takes, it takes here: no more, and less only where it left a wait."""
    needed(name)
    for weights in ("clipped", "constant"):
        problem = random_task_graph(graph, weights, 4, 7)
        peer = Saga(HEURISTICS[name])
        try:
            said = peer.schedule(*peer.stated(problem))
            plan = peer.in_ticks(problem, said)
        except KeyError:
            plan = None
        if plan is None:
            assert name == "hbmct"  # it leaves out tasks of some graphs, and stumbles over others
            continue
        report = check_assignment(problem, plan[0].tolist(), plan[1].tolist())
        assert report.ok, report.violations
        assert report.makespan is not None
        assert report.makespan <= round(said.makespan * SECOND) + problem.V
        if name in ("heft", "mct", "minmin"):
            assert report.makespan == pytest.approx(said.makespan * SECOND, abs=problem.V)


def test_random_task_graphs_are_the_same_every_time() -> None:
    needed("heft")
    first, again = (random_task_graph("in-trees", "clipped", 3, 5) for _ in range(2))
    assert pickle.dumps(first) == pickle.dumps(again)
    assert pickle.dumps(random_task_graph("in-trees", "clipped", 3, 6)) != pickle.dumps(first)
    machines = related_machines(first)
    assert machines is not None
    assert machines.speed[0] == 1
    assert (np.diag(machines.rate) == 0).all()


def test_a_slow_node_does_not_hide_that_machines_are_related() -> None:
    """A node 23 times as slow as the first, where a rounded tick is 23."""
    needed("heft")
    machines = related_machines(random_task_graph("out-trees", "clipped", 8, 1))
    assert machines is not None
    assert machines.speed.min() < 0.05


def test_constant_weights_are_those_that_the_release_draws() -> None:
    needed("heft")
    problem = random_task_graph("chains", "constant", 3, 1)
    assert set(problem.options.time.tolist()) == {SECOND}  # work 2 at speed 2
    assert set(problem.edges.bytes.tolist()) == {2.0}


def test_generated_problems_on_related_machines_can_be_stated() -> None:
    for family in FAMILIES:
        problem = on_related_machines(generate(family, 12, 40, "tight", 1))
        machines = related_machines(problem)
        assert machines is not None
        time = problem.options.time.reshape(12, 40)
        assert machines.work[:, None] / machines.speed == pytest.approx(time / SECOND, rel=1e-6)
        assert machines.rate[0, 1] == problem.topology.seconds_per_byte[0][0]
        assert machines.rate[0, 39] == problem.topology.seconds_per_byte[3][0]
        slow = dataclasses.replace(problem.topology, latency=generate(family, 12, 40).topology.latency)
        assert related_machines(dataclasses.replace(problem, topology=slow)) is None
