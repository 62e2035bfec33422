"""``auto`` proves small problems, keeps to its clock's order of steps, and says what it did."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers import auto, root_prices
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock
from iegopt.solvers.counting import COUNTING_PROOF, overfull
from iegopt.solvers.evaluate import finish_times
from iegopt.solvers.exact import bounding
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.incumbent import no_option
from iegopt.solvers.result import Params, Status
from iegopt.solvers.run import Run
from iegopt.solvers.search.quick import quick_plan
from tests.solvers.random_problems import random_problem


@pytest.mark.parametrize("seed", range(60))
def test_auto_agrees_with_enumeration(seed: int) -> None:
    problem = random_problem(seed)
    truth = Brute().solve(problem, Params(), None)
    result = solve(problem, "auto", Params(time_limit=5.0, seed=seed))
    assert result.status is truth.status
    assert result.objective == truth.objective


@pytest.mark.parametrize("seed", [0, 4, 7])
def test_auto_proves_with_cpsat_what_it_does_not_enumerate(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(root_prices, "unpriceable", lambda problem, mask=None: "left out")
    monkeypatch.setattr(auto, "_ENUMERATED", 0)
    monkeypatch.setattr(auto, "_SEARCH_MOST", 0.05)
    problem = random_problem(seed)
    truth = Brute().solve(problem, Params(), None)
    result = solve(problem, "auto", Params(time_limit=30.0))
    assert (result.status, result.objective) == (truth.status, truth.objective)


def test_slack_tree_needs_one_step() -> None:
    result = solve(generate("chain", 10, 64, "slack"), "auto")
    assert (result.status, result.proof) == (Status.OPTIMAL, "tree messages")


def test_pruned_problem_is_proven() -> None:
    result = solve(generate("agent", 8, 64, "tight", 0), "auto", Params(time_limit=20.0))
    assert (result.status, result.proof) == (Status.OPTIMAL, "capacity prices")
    assert "prices" in result.note


def test_a_deadline_that_the_optimum_just_meets_changes_nothing() -> None:
    problem = generate("agent", 8, 64, "tight", 0)
    free = solve(problem, "auto", Params(time_limit=20.0))
    assert free.choice is not None
    limited = dataclasses.replace(problem, deadline=int(finish_times(problem, free.choice).max()))
    result = solve(limited, "auto", Params(time_limit=20.0))
    assert (result.status, result.objective) == (Status.OPTIMAL, free.objective)


@pytest.mark.parametrize("limit", [0.0, 0.0003, 0.002, 0.01, 0.03])
def test_short_limits_give_valid_answers(limit: float) -> None:
    problem = generate("layered", 20, 128, "tight", 0)
    result = solve(problem, "auto", Params(time_limit=limit))
    assert result.status in (Status.UNKNOWN, Status.FEASIBLE)
    assert result.note


def test_a_hint_is_the_least_that_comes_back() -> None:
    problem = generate("layered", 20, 64, "tight", 0)
    good = solve(problem, "local", Params(time_limit=0.2))
    assert good.choice is not None
    result = solve(problem, "auto", Params(time_limit=0.0), good.choice)
    assert result.choice is not None
    assert np.array_equal(result.choice, good.choice)


def identical(stages: int, sites: int) -> Problem:
    """A chain of stages that each fill one of equal devices, on two hosts."""
    level = [s // 8 for s in range(sites)]
    near, far = {"latency": 1e-6, "bandwidth": 1e11}, {"latency": 1e-4, "bandwidth": 1e9}
    options = {"site": list(range(sites)), "variant": ["a"] * sites, "memory": [1] * sites, "time": [1] * sites}
    names = [f"s{s}" for s in range(sites)]
    document = {
        "format": "iegopt-instance/1",
        "devices": {"id": names, "memory": [1] * sites},
        "sites": {"id": names, "devices": [[s] for s in range(sites)], "domain": level, "host": level,
                  "rack": [0] * sites, "datacenter": [0] * sites},
        "links": {**dict.fromkeys(["host", "rack", "datacenter", "wan"], far), "domain": near},
        "stages": [{"id": f"v{v}", "options": {**options, "cost": [1] * sites}} for v in range(stages)],
        "edges": [{"from": v, "to": v + 1, "kind": "data", "bytes": 1e7} for v in range(stages - 1)],
    }  # fmt: skip
    return to_problem(parse_instance(document))


@pytest.mark.parametrize("limit", [0.1, 5.0])
def test_more_stages_than_places_are_counted(limit: float) -> None:
    result = solve(identical(17, 16), "auto", Params(time_limit=limit))
    assert (result.status, result.proof, result.bound) == (Status.INFEASIBLE, COUNTING_PROOF, None)


def test_stages_of_more_than_half_a_device_are_counted() -> None:
    """Three stages of 6 bytes and two devices of 10: 18 of 20 bytes, and no two on one."""
    problem = identical(3, 2)
    problem = dataclasses.replace(
        problem,
        capacity=problem.capacity * 10,
        options=dataclasses.replace(problem.options, share=problem.options.share * 6),
    )
    assert overfull(problem) == (
        "3 stages take more than 1/2 of every device they can be on: 3 places are needed, and there are 2"
    )
    half = dataclasses.replace(problem.options, share=problem.options.share * 5 // 6)
    roomy = dataclasses.replace(problem, options=half)
    assert overfull(roomy) is None
    assert overfull(dataclasses.replace(problem, peak_memory=True)) is None


@pytest.mark.parametrize("seed", range(300))
def test_counting_finds_infeasible_only_what_is(seed: int) -> None:
    problem = random_problem(seed)
    if no_option(problem) is None and overfull(problem) is not None:
        assert Brute().solve(problem, Params(), None).status is Status.INFEASIBLE


def test_counting_is_not_idle() -> None:
    counted = [random_problem(seed, memory="tight") for seed in range(300)]
    assert sum(no_option(problem) is None and overfull(problem) is not None for problem in counted) >= 3


def test_a_stalled_bound_of_a_small_problem_goes_to_cpsat(monkeypatch: pytest.MonkeyPatch) -> None:
    """Prices without wide beams leave a gap of a thousandth for long, which CP-SAT closes in about a second."""
    by_prices = solve(identical(12, 16), "auto", Params(time_limit=20.0))
    monkeypatch.setattr(bounding, "SOLVING_WIDTH", 0)
    result = solve(identical(12, 16), "auto", Params(time_limit=20.0))
    assert result.status is by_prices.status is Status.OPTIMAL
    assert result.objective == by_prices.objective
    assert "CP-SAT" in (result.proof or "")


def test_the_note_of_a_proof_does_not_begin_with_what_was_not_found() -> None:
    """Two stages of 6 of 10 bytes on one device; few combinations, so that enumeration proves it."""
    problem = identical(2, 1)
    share = problem.options.share * 6
    problem = dataclasses.replace(
        problem, capacity=problem.capacity * 10, options=dataclasses.replace(problem.options, share=share)
    )
    result = solve(problem, "auto")
    assert (result.status, result.bound, result.proof) == (Status.INFEASIBLE, None, "enumeration")
    assert not result.note.startswith("no feasible plan")


def test_options_are_not_pruned_once_the_clock_has_ended() -> None:
    problem = generate("fanout", 12, 64, "part_full", 3)
    relaxed = relaxation(problem)
    plan = quick_plan(problem, Clock(10.0))
    assert plan is not None
    over = Run(relaxed, plan, Params(), Clock(0.0), Clock(0.0), "")
    assert over.survivors.tolist() == problem.allowed.tolist()
    assert not relaxed.has_min_marginals
    in_time = Run(relaxed, plan, Params(), Clock(10.0), Clock(10.0), "")
    assert in_time.survivors.sum() < problem.allowed.sum()
    assert over.survivors.tolist() == in_time.survivors.tolist()  # known by now
