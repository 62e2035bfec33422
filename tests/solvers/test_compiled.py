"""Compiled kernels answer as numpy does, to the bit, with the same choice among equals, and never compile unasked."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import iegopt
from iegopt.errors import InputError
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact import compiled
from iegopt.solvers.exact.candidates import candidates
from iegopt.solvers.exact.compiled import Warmup, kernels, warmup
from iegopt.solvers.exact.links import LevelLink, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.relaxation import Relaxation, relaxation
from iegopt.solvers.search.greedy import backtrack_fitting
from iegopt.verify import assignment
from tests.solvers.random_problems import random_problem
from tests.solvers.test_messages import with_overlap, with_shards


@pytest.fixture(scope="module")
def loaded() -> SimpleNamespace:
    """The kernels, compiled if the cache lacks them (some ten seconds, once)."""
    pytest.importorskip("numba", reason="the extra 'fast' is not installed")
    before = compiled._ready
    warmup()
    module = compiled._ready
    compiled._ready = before
    assert module is not None
    return module


@pytest.fixture
def core(loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    monkeypatch.setattr(compiled, "_ready", loaded)
    return loaded


def both(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> tuple[Relaxation, Relaxation]:
    """By numpy, then by the kernels."""
    ready = compiled._ready
    monkeypatch.setattr(compiled, "_ready", None)
    slow = relaxation(problem)
    monkeypatch.setattr(compiled, "_ready", ready)
    return slow, relaxation(problem)


def assert_same(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    slow, fast = both(problem, monkeypatch)
    assert slow.bound == fast.bound
    assert [part.tolist() for part in slow.upward] == [part.tolist() for part in fast.upward]
    if slow.choice is None or fast.choice is None:
        assert slow.choice is fast.choice is None
        return
    assert (slow.core, fast.core) == ("numpy", "numpy" if slow.messages.dense else "numba")
    assert slow.choice.tolist() == fast.choice.tolist()
    assert slow.min_marginals.tolist() == fast.min_marginals.tolist()
    fitting, compiled_fitting = (backtrack_fitting(relaxed, Clock(10.0)) for relaxed in (slow, fast))
    assert (fitting is None) == (compiled_fitting is None)
    if fitting is not None and compiled_fitting is not None:
        assert fitting[0] == compiled_fitting[0]
        assert fitting[1].tolist() == compiled_fitting[1].tolist()


@pytest.mark.parametrize("links", ["tree", "odd", "pairs"])
@pytest.mark.parametrize("seed", range(40))
def test_equals_numpy(links: str, seed: int, core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = random_problem(seed, links=links, gangs=seed % 3 > 0)
    assert_same(problem, monkeypatch)
    assert_same(with_overlap(problem, seed), monkeypatch)
    if links != "pairs":
        assert_same(with_shards(problem), monkeypatch)
        assert_same(with_overlap(with_shards(problem), seed), monkeypatch)


@pytest.mark.parametrize("family", ["chain", "agent", "layered"])
@pytest.mark.parametrize("gangs", [False, True])
def test_equals_numpy_on_clusters(
    family: str, gangs: bool, core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert_same(generate(family, 12, 257 if gangs else 300, gangs=gangs), monkeypatch)


def test_equals_numpy_among_many_equal_plans(core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(10):
        problem = generate("chain", 6, 96, seed=seed)
        cost = np.random.default_rng(seed).integers(0, 3, len(problem.options.cost)) * 10**6
        edges = dataclasses.replace(problem.edges, weight=problem.edges.weight * (seed % 2))
        assert_same(
            dataclasses.replace(problem, options=dataclasses.replace(problem.options, cost=cost), edges=edges),
            monkeypatch,
        )


def test_equals_numpy_where_nothing_is_allowed_or_costs_are_beyond(
    core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = generate("chain", 4, 16)
    assert_same(dataclasses.replace(problem, capacity=np.zeros_like(problem.capacity)), monkeypatch)
    cost = np.full(len(problem.options.cost), UNREACHABLE // 4)
    assert_same(dataclasses.replace(problem, options=dataclasses.replace(problem.options, cost=cost)), monkeypatch)


@pytest.mark.parametrize("first", range(0, 120, 40))
def test_tables_of_pairs_equal_numpys(first: int, core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    clashes = timed = tables = 0
    for seed in range(first, first + 40):
        problem = random_problem(seed, stages=5, links=("tree", "odd")[seed % 2], gangs=seed % 3 > 0)
        for other in (problem, with_overlap(problem, seed), with_shards(problem)):
            if np.minimum.reduceat(other.allowed, other.options.ptr[:-1]).min() < 1:
                continue
            fast = candidates(other, other.allowed)
            monkeypatch.setattr(compiled, "_ready", None)
            slow = candidates(other, other.allowed)
            monkeypatch.setattr(compiled, "_ready", core)
            for mine, numpys in zip(fast.links, slow.links, strict=True):
                assert type(mine) is type(numpys)
                if not isinstance(mine, TableLink) or not isinstance(numpys, TableLink):
                    continue
                assert mine.table.tolist() == numpys.table.tolist()
                assert (mine.time is None) == (numpys.time is None)
                tables += 1
                clashes += int((mine.table == UNREACHABLE).sum())
                if mine.time is not None and numpys.time is not None:
                    timed += 1
                    assert mine.time.tolist() == numpys.time.tolist()
    assert tables > 50
    assert clashes > 5
    assert timed > 5


@pytest.mark.parametrize("forward", [True, False])
@pytest.mark.parametrize("family", ["chain", "layered"])
@pytest.mark.parametrize("seed", range(4))
def test_links_of_a_search_send_the_same(
    family: str, seed: int, forward: bool, core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem = dataclasses.replace(generate(family, 6, 200, "tight", seed), deadline=10**11)
    rng = np.random.default_rng(seed)
    c = candidates(problem, problem.allowed & (rng.random(len(problem.allowed)) < 0.9))
    apart = 0
    for plain, ends in zip(c.links, c.ends, strict=True):
        if not isinstance(plain, LevelLink):
            continue
        near = c.of[ends[0 if forward else 1]]
        theta = rng.integers(-(10**9), 10**10, (near.stop - near.start, 5))
        theta[rng.random(theta.shape) < 0.3] = UNREACHABLE
        odd = tuple(rng.integers(0, 10**9, len(cost)) for cost in plain.costs)
        links = [plain, plain.at(rng.random(5) * 3), plain.moving, dataclasses.replace(plain, costs=odd, home=10**8)]
        apart += int(plain.apart.sum())
        for link in [*links, dataclasses.replace(plain, home=UNREACHABLE)]:
            fast = link.send(theta, forward)
            with monkeypatch.context() as numpy:
                numpy.setattr(compiled, "_ready", None)
                assert np.array_equal(fast, link.send(theta, forward))
    assert apart > 0


def test_arrays_that_may_not_be_written_will_do(core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = generate("chain", 4, 64)
    for part in (problem.options, problem.edges):
        for value in vars(part).values():
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
    assert_same(problem, monkeypatch)


def test_the_clock_stops_it_between_stages(core: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    assert relaxation(generate("chain", 4, 64), Clock(0.0)) is None
    looks = iter([1.0, 1.0, 1.0, 1.0, 0.0])
    monkeypatch.setattr(Clock, "left", property(lambda _: next(looks)))
    assert relaxation(generate("chain", 50, 4096), Clock(1.0)) is None
    assert list(looks) == []


def test_a_loaded_kernel_cannot_compile(core: SimpleNamespace) -> None:
    dispatcher = core.forward
    known = list(dispatcher.signatures)
    with pytest.raises((TypeError, RuntimeError)):
        dispatcher(np.zeros(3), 1, 2, 3, 4)
    assert dispatcher.signatures == known


def test_warming_up_calls_every_kernel(loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    called = []

    def told(name: str) -> SimpleNamespace:
        kernel = getattr(loaded, name)
        return lambda *arguments: (called.append(name), kernel(*arguments))[1]  # type: ignore[return-value]

    monkeypatch.setattr(compiled, "_ready", SimpleNamespace(**{name: told(name) for name in vars(loaded)}))
    monkeypatch.setattr(assignment, "_sound", None)
    compiled._call_each()
    assert set(called) == set(vars(loaded))


def test_constants_are_those_of_the_package(loaded: SimpleNamespace) -> None:
    from iegopt.problem.arrays import TICKS_PER_SECOND
    from iegopt.solvers.exact import kernels as module
    from iegopt.solvers.exact import link_kernels
    from iegopt.solvers.search import kernels as in_search
    from iegopt.solvers.timed import dispatching, openings, walk

    assert in_search.TICKS_PER_SECOND == TICKS_PER_SECOND
    assert (walk._OPENINGS, walk._RULES) == (openings.OPENINGS, dispatching.RULES)
    assert (module.UNREACHABLE, module.TICKS_PER_SECOND) == (UNREACHABLE, TICKS_PER_SECOND)
    assert link_kernels._UNREACHABLE == UNREACHABLE


def test_nothing_is_loaded_until_asked() -> None:
    code = (
        "import sys, iegopt\n"
        "from iegopt.problem.families import generate\n"
        "iegopt.solve(generate('chain', 4, 16))\n"
        "assert 'numba' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_empty_cache_is_not_filled_by_checking(loaded: SimpleNamespace, tmp_path: Any, monkeypatch: Any) -> None:
    code = (
        "from iegopt.solvers.exact.compiled import kernels, warmup\n"
        "done = warmup(compile=False)\n"
        "assert (done.core, done.loaded, done.compiled, kernels()) == ('numpy', (), (), None), done\n"
        "assert 'run iegopt warmup' in done.reason"
    )
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    subprocess.run([sys.executable, "-c", code], check=True)
    assert not list(tmp_path.rglob("*.nbc"))


def test_switched_off_numba_is_named(loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    import numba

    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    assert warmup(compile=False).reason == "numba is switched off: NUMBA_DISABLE_JIT is set"


def test_no_folder_for_the_cache_is_named(loaded: SimpleNamespace) -> None:
    code = (
        "from numba.core.caching import CacheImpl\n"
        "CacheImpl._locator_classes = []\n"
        "from iegopt.solvers.exact.compiled import warmup\n"
        "done = warmup(compile=False)\n"
        "assert done.core == 'numpy' and 'set NUMBA_CACHE_DIR to a folder' in done.reason, done"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_missing_numba_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "numba", None)
    done = warmup(compile=False)
    assert done.core == "numpy"
    assert "pip install 'iegopt[fast]'" in str(done.reason)
    with pytest.raises(InputError, match=r"need numba: pip install 'iegopt\[fast\]'"):
        iegopt.warmup()


def test_the_second_warmup_loads(loaded: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_ready", None)
    done = warmup(compile=False)
    assert isinstance(done, Warmup)
    assert (done.core, done.compiled, done.reason) == ("numba", (), None)
    assert sorted(done.loaded) == sorted(vars(loaded))
    assert vars(kernels() or {}) == vars(loaded)
