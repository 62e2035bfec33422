"""Problems made of any arrays that say the same are solved the same; arrays that would lose something are refused."""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.errors import InputError
from iegopt.problem.arrays import Affinity, Problem
from iegopt.problem.families import generate
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact import compiled
from iegopt.solvers.result import Params
from iegopt.solvers.search.quick import quick_plan

Array = npt.NDArray[Any]


def strided(array: Array) -> Array:
    return np.repeat(array, 2, axis=0)[::2]


def read_only(array: Array) -> Array:
    array = array.copy()
    array.flags.writeable = False
    return array


def narrow(array: Array) -> Array:
    fits = array.dtype == np.int64 and (array.size == 0 or np.abs(array).max() < 2**31)
    return array.astype(np.int32) if fits else array


def remade(value: Any, how: Callable[[Array], Array]) -> Any:
    arrays = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    return dataclasses.replace(value, **{k: how(v) for k, v in arrays.items() if isinstance(v, np.ndarray)})


@pytest.fixture(params=["numpy", "numba"])
def core(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "_ready", None)  # what it was comes back behind the test
    if request.param == "numba":
        pytest.importorskip("numba", reason="the extra 'fast' is not installed")
        compiled.warmup()


@pytest.mark.parametrize("how", [strided, read_only, narrow])
@pytest.mark.parametrize("gangs", [False, True])
def test_any_arrays_that_say_the_same_are_solved_the_same(
    how: Callable[[Array], Array], gangs: bool, core: None
) -> None:
    problem = generate("joins", 8, 32, "part_full", 1, gangs=gangs)
    parts: dict[str, Any] = {name: remade(getattr(problem, name), how) for name in ("options", "edges", "topology")}
    other: Problem = dataclasses.replace(remade(problem, how), **parts)
    result = solve(problem, "auto", Params(time_limit=5.0))
    assert result.status == "optimal"
    assert solve(other, "auto", Params(time_limit=5.0)).objective == result.objective
    assert solve(other, "auto", Params(time_limit=2e-3)).solver == "auto"


def test_affinities_and_budgets_of_any_whole_numbers_are_solved_the_same(core: None) -> None:
    problem = generate("joins", 8, 32, "part_full", 1)
    narrow = np.arange(8, dtype=np.int32)
    rules = Affinity((0, 1), 1, True, True, 0), Affinity((2, 3), -1, False, False, 7)
    others = (
        Affinity(tuple(narrow[:2]), narrow[1], np.True_, np.True_, narrow[0]),  # type: ignore[arg-type]
        Affinity(tuple(narrow[2:4]), -1, False, False, 7),
        Affinity((), 0, False, True, 0),
        Affinity((), 0, False, False, 0),
    )
    plain = dataclasses.replace(problem, affinities=rules, budget=10**15, budget_stages=(0, 1))
    other = dataclasses.replace(plain, affinities=others, budget_stages=tuple(narrow[:2]))
    result = solve(plain, "auto", Params(time_limit=5.0))
    assert result.status == "optimal"
    assert solve(other, "auto", Params(time_limit=5.0)).objective == result.objective
    assert quick_plan(other, Clock(5.0)) is not None


def test_arrays_that_would_lose_something_are_refused() -> None:
    options = generate("chain", 3, 8).options
    with pytest.raises(InputError, match=r"Options\.cost: int64 expected, not float64"):
        dataclasses.replace(options, cost=options.cost * 1.5)


def test_penalties_of_narrow_integers_do_not_overflow(core: None) -> None:
    problem = generate("chain", 6, 16, "tight", 0)
    objectives = []
    for kind in (int, np.int32):
        together = tuple(Affinity((0, v), -1, False, False, kind(2**31 - 5)) for v in range(1, 6))
        apart = tuple(Affinity((0, v), -1, True, True, kind(0)) for v in range(1, 6))
        made = dataclasses.replace(problem, affinities=(*together, *apart), budget=kind(2**31 - 1))
        result = solve(made, "auto", Params(time_limit=5.0))
        assert result.status == "optimal"
        objectives.append(result.objective)
    assert objectives[0] == objectives[1] > 5 * (2**31 - 5)


@pytest.mark.parametrize("given", [1.5, "1", None])
def test_what_is_no_whole_number_is_refused(given: object) -> None:
    with pytest.raises(InputError, match=r"Affinity\.penalty: whole numbers expected, not"):
        Affinity((0, 1), -1, True, False, given)  # type: ignore[arg-type]


def test_a_topology_without_levels_is_refused() -> None:
    topology = generate("chain", 3, 8).topology
    with pytest.raises(InputError, match=r"Topology\.group: expected one level or more and 8 sites"):
        dataclasses.replace(topology, group=topology.group[:0], latency=topology.latency[-1:],
                            seconds_per_byte=topology.seconds_per_byte[-1:])  # fmt: skip


@pytest.mark.parametrize("gangs", [False, True])
def test_a_problem_out_of_a_pickle_whose_arrays_are_shared_is_solved_the_same(gangs: bool, core: None) -> None:
    """As those that pass objects between processes without a copy of their arrays make it."""
    problem = generate("joins", 8, 32, "part_full", 1, gangs=gangs)
    assert problem.allowed.any()  # is kept, and goes into the pickle
    shared: list[pickle.PickleBuffer] = []
    told = pickle.dumps(problem, protocol=5, buffer_callback=shared.append)
    other = pickle.loads(told, buffers=[bytes(each) for each in shared])
    params = Params(time_limit=20.0)
    expected, found = (solve(each, "prices", params) for each in (problem, other))
    assert (found.status, found.objective, found.bound) == (expected.status, expected.objective, expected.bound)


def arrays() -> list[tuple[Any, str]]:
    """Every array of a problem but ``ptr``, by the part that holds it."""
    problem = generate("joins", 8, 32, "part_full", 1)
    options = dataclasses.replace(problem.options, kv_share=problem.options.share)
    edges = dataclasses.replace(problem.edges, hands_on=np.zeros(problem.E, dtype=np.bool_))
    pairs = np.ones((32, 32))
    topology = dataclasses.replace(problem.topology, pair_latency=pairs, pair_seconds_per_byte=pairs)
    return [
        (part, field.name)
        for part in (options, edges, topology, problem)
        for field in dataclasses.fields(part)
        if isinstance(getattr(part, field.name), np.ndarray) and field.name != "ptr"
    ]


@pytest.mark.parametrize(("part", "name"), arrays(), ids=lambda each: each if isinstance(each, str) else "")
@pytest.mark.parametrize(
    "how", [lambda a: a[:-1], lambda a: np.concatenate([a, a[-1:]]), lambda a: a[None], lambda a: a[:0]],
    ids=["one less", "one more", "of a dimension more", "none"],
)  # fmt: skip
def test_arrays_of_another_shape_are_refused_where_they_are_given(
    part: Any, name: str, how: Callable[[Array], Array]
) -> None:
    with pytest.raises(InputError, match=rf"^{type(part).__name__}\.\w+: (shape .*, )?expected") as caught:
        dataclasses.replace(part, **{name: how(getattr(part, name))})
    if name != "source":  # by which the others are counted
        assert str(caught.value).startswith(f"{type(part).__name__}.{name}: ")


def test_parts_of_different_sizes_make_no_problem() -> None:
    problem, other = generate("joins", 8, 32, "part_full", 1), generate("joins", 9, 32, "part_full", 1)
    with pytest.raises(InputError, match=r"Options\.ptr: shape \(10,\), expected \(9,\), one for every stage, and one"):
        dataclasses.replace(problem, options=other.options)
    for ptr in (problem.options.ptr[:-1], problem.options.ptr[None], problem.options.ptr[:0]):
        with pytest.raises(InputError, match=r"Options\..* shape .* expected .*ptr\[-1\]|Options\.ptr: shape"):
            dataclasses.replace(problem.options, ptr=ptr)
    with pytest.raises(InputError, match=rf"Edges\.hidden, Edges\.kind: {problem.E - 1} and .* expected {problem.E},"):
        dataclasses.replace(problem.edges, hidden=problem.edges.hidden[1:])
    hidden = dataclasses.replace(problem.edges, hidden=(*problem.edges.hidden[1:], np.zeros(3)))
    with pytest.raises(InputError, match=rf"Edges\.hidden\[{problem.E - 1}\]: shape \(3,\), expected \(32,\), one for"):
        dataclasses.replace(problem, edges=hidden)


def test_links_are_given_for_every_group() -> None:
    topology = generate("joins", 8, 32, "part_full", 1).topology
    for name in ("latency", "seconds_per_byte"):
        given = getattr(topology, name)
        for level in range(len(given)):
            for wrong in (given[level][:-1], given[level][None]):
                links: Any = {name: (*given[:level], wrong, *given[level + 1 :])}
                with pytest.raises(InputError, match=rf"Topology\.seconds_per_byte\[{level}\]: shapes .* every group"):
                    dataclasses.replace(topology, **links)


def test_lists_of_different_lengths_are_no_array() -> None:
    options = generate("chain", 3, 8).options
    with pytest.raises(InputError, match=r"Options\.cost: int64 expected, not lists of different lengths"):
        dataclasses.replace(options, cost=[[1], [2, 3]])  # type: ignore[arg-type]
