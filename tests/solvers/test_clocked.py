"""Steps that no clock ends begin where their time is left alone: many couplings, tables of moves, the relaxation."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

from iegopt.problem.arrays import Affinity, Problem
from iegopt.problem.families import generate
from iegopt.problem.restrict import restrict
from iegopt.solvers.api import SOLVERS, solve
from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.evaluate import affinity_holds, objective
from iegopt.solvers.exact.beam import beam
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.bounding import PricedSearch
from iegopt.solvers.exact.candidates import candidates, table_cells
from iegopt.solvers.exact.coupled_links import follows_tree, tree_shaped
from iegopt.solvers.exact.couplings import coupling_count, couplings, pairs_of_rules
from iegopt.solvers.exact.pair_search import pairs_seconds
from iegopt.solvers.exact.prices import priced_seconds
from iegopt.solvers.exact.pricing import Pricing, no_split
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.exact.windows import through_windows
from iegopt.solvers.grain import grain_of, grain_seconds
from iegopt.solvers.result import Params, Status
from iegopt.solvers.search.broken_rules import broken_pairs, penalty
from iegopt.solvers.search.quick import quick_plan
from iegopt.solvers.search.tabu import tabu_seconds
from iegopt.solvers.seconds import relaxation_seconds
from iegopt.verify.assignment import check_assignment
from tests.solvers.random_problems import random_problem


def _apart(stages: int, sites: int, options: int) -> Problem:
    """A tree of stages with a few options each, that would rather not share a host."""
    problem = _few_options(generate("agent", stages, sites, "slack", 0), options)
    rule = Affinity(tuple(range(stages)), level=1, apart=True, required=False, penalty=5 * 10**9)
    return replace(problem, affinities=(rule,))


def _few_options(problem: Problem, options: int) -> Problem:
    mask = np.zeros(len(problem.options.site), dtype=np.bool_)
    for v in range(problem.V):
        allowed = np.flatnonzero(problem.allowed[problem.options.of(v)]) + problem.options.of(v).start
        mask[np.random.default_rng(v).permutation(allowed)[:options]] = True
    return restrict(problem, mask)[0]


@pytest.mark.parametrize("seed", range(40))
def test_couplings_and_their_tables_are_counted_without_them(seed: int) -> None:
    problem = random_problem(seed)
    coupled = couplings(problem)
    assert coupling_count(problem) == len(coupled)
    pairs = {frozenset((each.source, each.target)) for each in coupled if each.edge is None}
    assert {frozenset(pair) for pair in zip(*map(np.ndarray.tolist, pairs_of_rules(problem)), strict=True)} == pairs
    count = np.bincount(problem.options.stage[problem.allowed], minlength=problem.V)
    by_tree = tree_shaped(problem.topology)
    assert table_cells(problem) == sum(
        int(count[each.source] * count[each.target])
        for each in coupled
        if not (by_tree and follows_tree(problem, each))
    )


def test_pairs_that_several_affinities_charge_are_coupled_once() -> None:
    problem = generate("chain", 6, 8, "slack", 0)
    rules = (
        Affinity((0, 1, 2, 3), 1, apart=True, required=False, penalty=12),
        Affinity((3, 2, 5), 0, apart=False, required=True, penalty=0),
        Affinity((0, 2, 4), 0, apart=True, required=False, penalty=2),  # less than a tick a pair: it charges none
        Affinity((1, 3), -1, apart=True, required=False, penalty=7),
    )
    problem = replace(problem, affinities=rules)
    assert coupling_count(problem) == len(couplings(problem)) == problem.E + 4
    assert [len(each.rules) for each in couplings(problem)] == [1, 1, 2, 0, 0, 1, 1, 2, 1]


@pytest.mark.parametrize("seed", range(20))
def test_affinities_hold_where_no_pair_breaks_them(seed: int) -> None:
    rng = random.Random(seed)
    problem = generate("chain", 6, 8, "slack", seed)
    topology, options = problem.topology, problem.options
    rule = Affinity(
        tuple(rng.sample(range(6), rng.randint(2, 5))), rng.randint(-1, 2), rng.random() < 0.5, rng.random() < 0.5, 9
    )
    problem = replace(problem, affinities=(rule,))
    plan = np.array([rng.randrange(options.ptr[v], options.ptr[v + 1]) for v in range(6)])

    def together(a: int, b: int) -> bool:
        group = topology.group
        return a == b or (rule.level >= 0 and bool(group[rule.level, a] == group[rule.level, b] >= 0))

    sites = [int(options.site[plan[v]]) for v in rule.stages]
    broken = sum(together(a, b) == rule.apart for a, b in combinations(sites, 2))
    assert affinity_holds(problem, rule, plan) == (broken == 0)
    assert penalty(topology, rule, sites) == (9 if broken else 0)
    assert penalty(topology, rule, []) == 0
    told = check_assignment(problem, plan.tolist())
    assert any(each.rule == "affinity" for each in told.violations) == (rule.required and broken > 0)
    everywhere = np.arange(topology.S)
    expected = [sum(together(a, b) == rule.apart for a, b in combinations([*sites, s], 2)) for s in range(topology.S)]
    assert broken_pairs(topology, rule, sites, everywhere).tolist() == expected
    assert not broken_pairs(topology, rule, [], everywhere).any()


@pytest.mark.parametrize("solver", ["auto", "prices"])
def test_prices_over_all_pairs_of_an_affinity_begin_where_their_time_is_left(solver: str) -> None:
    problem = _apart(stages=120, sites=64, options=4)
    assert len(couplings(problem)) == 120 * 119 // 2
    assert priced_seconds(problem, problem.allowed) > 0.7 * lag()
    result = solve(problem, solver, Params(time_limit=0.25))
    assert result.choice is not None
    assert result.bound is not None
    assert "prices over" not in result.note
    assert "prices leave" not in result.note
    if solver == "prices":
        assert result.bound == relaxation(problem).bound
        assert result.note == "no time left for prices"


def test_tabu_search_begins_where_there_is_time_for_its_tables() -> None:
    problem = _few_options(generate("layered", 300, 32, "tight", 0), 3)
    needs = tabu_seconds(problem, problem.allowed)
    assert needs > 0.04 * lag()
    result = solve(problem, "local", Params(time_limit=0.03))
    assert "steps of tabu search" not in result.note
    assert result.bound is None or "no time left to lay the options out for tabu search" in result.note
    assert "of tabu search" in solve(problem, "local", Params(time_limit=1.0)).note


@pytest.mark.parametrize("solver", ["greedy", "local", "prices", "tree"])
def test_a_quick_plan_is_the_answer_where_the_relaxation_does_not_end_in_time(
    solver: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = generate("chain", 200, 64, "slack", 0)
    quick = quick_plan(problem, Clock(1.0))
    assert quick is not None
    module = type(SOLVERS[solver]).__module__
    limit = 3 * relaxation_seconds(problem)

    def ended(problem: Problem, clock: Clock) -> None:
        assert clock.left <= limit

    with monkeypatch.context() as patched:
        patched.setattr(f"{module}.relaxation", ended)
        result = solve(problem, solver, Params(time_limit=limit))
    assert result.status is Status.FEASIBLE
    assert result.objective == quick[0]
    assert result.bound is None
    assert "too short for the relaxation" in result.note
    assert solve(problem, solver, Params(time_limit=5.0)).status is Status.OPTIMAL


def test_the_relaxation_ends_with_the_clock_while_it_chooses(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate("chain", 30, 16, "slack", 0)
    looks = iter(range(10**6))
    monkeypatch.setattr(Clock, "left", property(lambda self: self.limit - next(looks)))
    assert relaxation(problem, Clock(10.0**6)) is not None
    taken = next(looks)
    looks = iter(range(10**6))
    assert relaxation(problem, Clock(taken - 2.0)) is None


def test_what_takes_time_before_a_search_counts() -> None:
    problem = _few_options(generate("layered", 60, 32, "tight", 0), 4)
    rounded = replace(problem, options=replace(problem.options, cost=problem.options.cost // 1000 * 1000))
    assert grain_seconds(problem) == 0
    seconds = grain_seconds(rounded)
    assert seconds > 5e-5 * rounded.E
    pairs, prices = pairs_seconds(rounded, rounded.allowed), priced_seconds(rounded, rounded.allowed)
    assert pairs > lag() * (seconds + 4e-5 * rounded.E)
    grain_of(rounded)
    assert grain_seconds(rounded) == 0
    assert priced_seconds(rounded, rounded.allowed) < prices


def test_a_beam_without_time_gives_up_and_bounds_all_the_same() -> None:
    problem = generate("layered", 6, 16, "tight", 1)
    truth = solve(problem, "prices", Params(time_limit=60.0))
    assert truth.status is Status.OPTIMAL
    assert truth.objective is not None
    c = candidates(problem, problem.allowed)
    keep = np.ones(len(c.option), dtype=np.bool_)
    pricing = Pricing(c, keep[:, None], np.zeros((len(c.capacity), 1)), no_split(c, 1))
    priced = pricing.run(lambda: 10**15, 1, 1.0, lambda _: None, lambda _: False)
    late, timely = (beam(c, priced, 0, keep, 10**15, 64, clock=clock) for clock in (Clock(0.0), Clock(60.0)))
    assert not len(late.plans)
    assert late.bound <= truth.objective
    assert len(timely.plans)


def test_windows_are_opened_where_the_longest_would_end_in_time() -> None:
    problem = generate("chain", 20, 16, "tight", 1)
    plan = solve(problem, "greedy", Params(time_limit=60.0)).choice
    assert plan is not None
    best = BestPlan(problem, (objective(problem, plan), plan), 10**15)
    asked: list[float] = []

    def late(ahead: float) -> bool:
        asked.append(ahead)
        return len(asked) > 3

    through_windows(candidates(problem, problem.allowed), best, late, 0.5)
    assert len(asked) == 4
    assert min(asked) >= 0.5


def test_a_root_is_laid_out_where_its_time_is_left() -> None:
    problem = generate("layered", 12, 64, "tight", 4)
    search = PricedSearch(problem, problem.allowed, None, Clock(60.0))
    search.bound_root(2)
    assert not search.done
    bound, search.clock = search.bound, Clock(1e-5)
    search.explore(Clock(60.0))
    assert (search.nodes, search.bound) == (1, bound)
    search.clock = Clock(60.0)
    search.explore(Clock(60.0))
    assert search.done
