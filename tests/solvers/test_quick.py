"""The first plan of a short time limit: feasible, exactly priced, and found where best fit finds one."""

import dataclasses
import gc
import sys
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.families import FAMILIES, generate
from iegopt.problem.transfer import edge_ticks, links_among, site_links
from iegopt.solvers.api import solve
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock, Slowness, pressure, punctual
from iegopt.solvers.exact import compiled
from iegopt.solvers.result import Params, Status
from iegopt.solvers.search import quick
from iegopt.solvers.search.quick import quick_plan
from iegopt.verify.assignment import check_assignment
from tests.solvers.random_problems import random_problem


def plenty() -> Clock:
    """Made where it is used: a clock runs from its making."""
    return Clock(60.0)


@pytest.mark.parametrize("seed", range(60))
def test_quick_plan_is_feasible_and_costs_what_it_says(seed: int) -> None:
    problem = random_problem(seed)
    found = quick_plan(problem, plenty())
    if found is None:
        return
    value, plan = found
    report = check_assignment(problem, plan.tolist())
    assert report.ok
    assert report.objective == value
    best = Brute().solve(problem, Params(), None)
    assert best.objective is not None
    assert best.objective <= value


def test_quick_plan_finds_most_plans_of_random_problems() -> None:
    solved = [p for p in map(random_problem, range(60)) if Brute().solve(p, Params(), None).choice is not None]
    assert sum(quick_plan(p, plenty()) is not None for p in solved) > 0.6 * len(solved)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gangs", [False, True])
def test_quick_plan_with_tight_memory_and_more_sites_than_the_sample(family: str, gangs: bool) -> None:
    problem = generate(family, 20, 256, "tight", 3, gangs=gangs)  # type: ignore[arg-type]
    found = quick_plan(problem, plenty())
    assert found is not None
    assert check_assignment(problem, found[1].tolist()).objective == found[0]


def test_a_stage_that_fits_nowhere_in_the_sample_looks_further() -> None:
    problem = generate("chain", 2, 256, "slack", 1)
    only, sites = 200, problem.topology.S
    # The only site with room for the second stage is the dearest of all.
    share, cost = problem.options.share.copy(), problem.options.cost.copy()
    share[sites:] = np.where(np.arange(sites) == only, 1, NO_LIMIT // 4)
    cost[only] = cost[sites + only] = 4 * cost.max()
    options = dataclasses.replace(problem.options, share=share, cost=cost)
    found = quick_plan(dataclasses.replace(problem, options=options, sla=np.full(2, NO_LIMIT)), plenty())
    assert found is not None
    assert int(found[1][1]) == sites + only


def test_where_the_cheapest_places_leave_no_room_stages_are_packed() -> None:
    for seed, stages in ((649, 50), (2448, 50)):
        problem = generate("layered", stages, 64, "tight", seed)
        found = quick_plan(problem, plenty())
        assert found is not None
        assert check_assignment(problem, found[1].tolist()).objective == found[0]


@pytest.fixture
def core() -> SimpleNamespace:
    """The compiled kernels, not yet in use."""
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    before = compiled._ready
    compiled.warmup()
    loaded, compiled._ready = compiled._ready, before
    assert loaded is not None
    return loaded


def assert_same_by_kernels(problem: Problem, core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_ready", None)
    plain = quick_plan(problem, plenty())
    monkeypatch.setattr(compiled, "_ready", core)
    quick = quick_plan(problem, plenty())
    assert (plain is None) == (quick is None)
    if plain is not None and quick is not None:
        assert quick[0] == plain[0]
        assert np.array_equal(quick[1], plain[1])
        assert check_assignment(problem, quick[1].tolist()).objective == quick[0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("gangs", [False, True])
def test_kernels_make_the_same_quick_plan(
    family: str, gangs: bool, core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for memory, seed in (("tight", 3), ("part_full", 4)):
        assert_same_by_kernels(generate(family, 20, 256, memory, seed, gangs=gangs), core, monkeypatch)  # type: ignore[arg-type]


def test_kernels_make_the_same_quick_plan_of_random_problems(
    core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(60):
        assert_same_by_kernels(random_problem(seed), core, monkeypatch)


def test_kernels_round_as_numpy_does_where_places_cost_the_same(
    core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    for family, stages, seed in (("layered", 7, 448), ("joins", 15, 497), ("layered", 15, 511)):
        problem = generate(family, stages, 20, "slack", seed, gangs=True)  # type: ignore[arg-type]
        options = dataclasses.replace(problem.options, cost=problem.options.cost // 10**8 * 10**8)
        assert_same_by_kernels(dataclasses.replace(problem, options=options), core, monkeypatch)


def test_kernels_keep_affinities_and_measured_links_too(core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(20):
        for links in ("odd", "pairs"):
            assert_same_by_kernels(random_problem(seed, links=links, gangs=seed % 2 > 0), core, monkeypatch)
    assert_same_by_kernels(generate("layered", 50, 64, "tight", 649), core, monkeypatch)  # packed
    for seed in (0, 1, 3, 4):
        problem = generate("chain", 20, 128, "part_full", seed)
        assert any(rule.required for rule in problem.affinities)
        assert_same_by_kernels(problem, core, monkeypatch)


def test_the_kernel_takes_time_by_the_edges_of_a_stage_not_by_all_edges(
    core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled, "_ready", core)
    problem = generate("chain", 20_000, 4, "slack", 1)
    begun = time.thread_time()
    quick_plan(problem, plenty())
    # Every stage looking at all edges takes half a second.
    assert time.thread_time() - begun < 0.1


def test_slow_calls_count_once_there_are_several_and_are_forgotten() -> None:
    slow = Slowness()
    slow.learn(3e-3, 1e-3)
    assert slow.ratio == 1.0  # one may have been interrupted
    for _ in range(2):
        slow.learn(3e-3, 1e-3)
    assert slow.ratio == pytest.approx(3.0)
    for _ in range(40):
        slow.forget()
    assert slow.ratio == 1.0
    for _ in range(5):
        slow.learn(1e-4, 1e-3)
    assert slow.ratio == 1.0  # a quicker processor changes nothing


def test_no_quick_plan_is_begun_where_it_takes_longer_than_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slowness()
    monkeypatch.setattr(compiled, "_ready", None)
    monkeypatch.setattr(quick, "_own_slowness", slow)
    monkeypatch.setattr(quick, "slowness", Slowness())
    monkeypatch.setattr(quick, "_NEEDS", (1.0, 0.0, 0.0))  # so that any machine is quicker
    for _ in range(5):
        slow.learn(1.0, 1e-6)
    problem = generate("chain", 20, 64, "slack", 1)
    tried = next(tries for tries in range(100) if quick_plan(problem, Clock(3.0)) is not None)
    assert tried > 0  # and is tried again as that is forgotten


def test_no_quick_plan_after_the_deadline() -> None:
    assert quick_plan(generate("chain", 20, 64, "slack", 1), Clock(-1.0)) is None


@pytest.mark.parametrize("gangs", [False, True])
def test_links_of_sites_price_an_edge_as_the_model_does(gangs: bool) -> None:
    problem = generate("chain", 2, 70, "slack", 1, gangs=gangs)
    sites = np.arange(problem.topology.S)
    latency, rate = site_links(problem.topology, sites[:, None], sites[None, :])
    exact = edge_ticks(problem, 0, sites[:, None], sites[None, :] + problem.topology.S)[1]
    among = links_among(problem.topology, sites)
    assert np.array_equal(among[:, 0], latency)
    assert np.array_equal(among[:, 1], rate)
    assert np.allclose((latency + problem.edges.bytes[0] * rate) * 1e9, exact, atol=1.0)


@pytest.mark.parametrize("links", ["tree", "odd", "pairs"])
def test_links_among_sites_are_those_of_every_pair(links: str) -> None:
    for seed in range(10):
        topology = random_problem(seed, links=links, gangs=seed % 2 > 0).topology
        sites = np.arange(topology.S)[::-1]
        expected = np.stack(site_links(topology, sites[:, None], sites[None, :]), axis=1)
        assert np.array_equal(links_among(topology, sites), expected)


def test_auto_says_that_a_short_limit_left_no_bound() -> None:
    problem = generate("layered", 12, 700, "tight", 1)
    result = solve(problem, "auto", Params(time_limit=0.0015))
    if result.choice is None:
        assert result.status is Status.UNKNOWN
    elif result.bound is None:
        assert "no bound" in result.note


def test_settings_of_the_process_are_given_back() -> None:
    interval, usual = sys.getswitchinterval(), gc.get_threshold()
    with punctual(0.01):
        assert sys.getswitchinterval() < interval
        assert gc.get_threshold()[2] > usual[2]
        with punctual(0.001):
            assert sys.getswitchinterval() < interval
        assert gc.get_threshold()[2] > usual[2]
    assert gc.get_threshold() == usual
    assert sys.getswitchinterval() == pytest.approx(interval)


def test_no_garbage_is_collected_before_the_deadline() -> None:
    runs: list[str] = []
    watch = lambda phase, _: runs.append(phase)  # noqa: E731 - the same object is taken off again
    gc.collect()
    gc.callbacks.append(watch)
    try:
        with punctual(0.01):
            kept = [[i] for i in range(5_000)]
            inside = len(runs)
        after = len(runs)
    finally:
        gc.callbacks.remove(watch)
    assert len(kept) == 5_000
    assert (inside, after) == (0, 0)


def test_settings_are_given_back_by_the_last_of_several_threads() -> None:
    interval, usual = sys.getswitchinterval(), gc.get_threshold()
    inside, leave = threading.Barrier(3), threading.Event()

    def work(limit: float) -> None:
        with punctual(limit):
            inside.wait()
            leave.wait()

    threads = [threading.Thread(target=work, args=(limit,)) for limit in (0.01, 0.1)]
    for thread in threads:
        thread.start()
    inside.wait()
    assert gc.get_threshold()[2] > usual[2]
    leave.set()
    for thread in threads:
        thread.join()
    assert gc.get_threshold() == usual
    assert sys.getswitchinterval() == pytest.approx(interval)


def test_long_limits_change_nothing() -> None:
    interval, usual = sys.getswitchinterval(), gc.get_threshold()
    with punctual(10.0), punctual(None):
        assert gc.get_threshold() == usual
        assert sys.getswitchinterval() == interval


def test_pressure_is_what_waiting_makes_of_a_step() -> None:
    for _ in range(20):
        with punctual(0.1):
            sum(range(20_000))
    quiet = pressure()
    assert quiet >= 1
    with punctual(0.1):
        time.sleep(0.02)
    assert pressure() < 4  # one interruption is none
    for _ in range(8):
        with punctual(0.1):
            time.sleep(0.002)
    assert pressure() > 4
    for _ in range(30):
        with punctual(0.1):
            sum(range(20_000))
    assert pressure() < 4
