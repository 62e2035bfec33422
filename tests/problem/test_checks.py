"""Indices that point to nothing are refused before compiled loops follow them."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from iegopt.errors import InputError
from iegopt.problem.arrays import Affinity, Problem
from iegopt.problem.checks import check_arrays
from iegopt.problem.families import generate
from iegopt.solvers.api import SOLVERS, solve
from iegopt.solvers.result import Params

LIMIT = Params(time_limit=10.0)


def problem() -> Problem:
    return generate("joins", 6, 16, "part_full", 1)


def changed(name: str, at: Any, value: int) -> Problem:
    """A problem with one value of one of its arrays changed."""
    part, of = name.split(".")
    whole = problem()
    owner: Any = whole if part == "Problem" else getattr(whole, part.lower())
    array = getattr(owner, of).copy()
    array[at] = value
    replaced = dataclasses.replace(owner, **{of: array})
    return replaced if part == "Problem" else dataclasses.replace(whole, **{part.lower(): replaced})


@pytest.mark.parametrize(
    ("name", "at", "value", "expected"),
    [
        ("Options.site", 3, 16, r"Options\.site\[3\]: 16, expected a site from 0 to 15"),
        ("Options.site", -1, -1, r"Options\.site\[\d+\]: -1, expected a site"),
        ("Options.variant", 2, 10**12, r"Options\.variant\[2\]: 1000000000000, expected a variant from 0 to"),
        ("Options.ptr", 0, 1, r"Options\.ptr\[0\]: 1, expected 0"),
        ("Options.ptr", 2, 0, r"Options\.ptr\[2\]: 0, expected 16 or more, after 16"),
        ("Edges.source", 0, -(2**60), r"Edges\.source\[0\]: -\d+, expected a stage from 0 to 5"),
        ("Edges.target", 1, 6, r"Edges\.target\[1\]: 6, expected a stage from 0 to 5"),
        ("Problem.order", 5, 9, r"Problem\.order\[5\]: 9, expected every stage from 0 to 5 once"),
        ("Problem.order", 1, 0, r"Problem\.order\[1\]: 0, expected every stage from 0 to 5 once"),
        ("Problem.order", slice(0, 2), [1, 0], r"Problem\.order: expected stage 0 before stage \d, as edge \d leads"),
        ("Options.ptr", slice(1, 6), [2**63 - 1, -2, 1, 20, 30], r"Options\.ptr\[1\]: 9\d+, expected a number from 0"),
        ("Options.cost", 2, 2**62, r"Options\.cost\[2\]: 4611686018427387904, expected at most 1152"),
        ("Options.cost", 3, -(2**63), r"Options\.cost\[3\]: -9223372036854775808, expected at most 1152"),
        ("Options.time", 4, -1, r"Options\.time\[4\]: -1, expected a number"),
        ("Options.share", 0, -5, r"Options\.share\[0\]: -5, expected a number"),
        ("Options.weight_share", 7, -5, r"Options\.weight_share\[7\]: -5, expected a number"),
        ("Edges.bytes", 0, math.nan, r"Edges\.bytes\[0\]: nan, expected 0 or more, and finite"),
        ("Edges.weight", 1, -0.5, r"Edges\.weight\[1\]: -0.5, expected 0 or more, and finite"),
        ("Edges.chunk", 1, math.inf, r"Edges\.chunk\[1\]: inf, expected 0 or more, and finite"),
        ("Topology.device_ptr", 1, 0, r"Topology\.device_ptr\[1\]: 0, expected 1 or more, after 0"),
        ("Topology.device_index", 4, 16, r"Topology\.device_index\[4\]: 16, expected a device from 0 to 15"),
        ("Topology.group", (1, 7), -2, r"Topology\.group\[1, 7\]: -2, expected a group from 0, or -1 for none"),
    ],
)
@pytest.mark.parametrize("solver", ["auto", "tree", "brute"])
def test_an_index_that_points_to_nothing_is_named(name: str, at: Any, value: int, expected: str, solver: str) -> None:
    with pytest.raises(InputError, match=expected):
        solve(changed(name, at, value), solver, LIMIT)


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"affinities": (Affinity((0, 6), 0, False, True, 0),)}, r"affinities\[0\]\.stages: \(0, 6\), expected stages"),
        ({"affinities": (Affinity((-1, 2), 0, False, True, 0),)}, r"affinities\[0\]\.stages: \(-1, 2\)"),
        ({"affinities": (Affinity((0, 2), 4, False, True, 0),)}, r"affinities\[0\]\.level: 4, expected -1 for"),
        ({"budget_stages": (0, 8)}, r"budget_stages: \(0, 8\), expected stages from 0 to 5"),
        ({"makespan_weight": math.nan}, r"makespan_weight: nan, expected 0 or more, and finite"),
        ({"memory_scale": 0}, r"memory_scale: 0, expected 1 or more"),
    ],
)
def test_rules_and_scales_mean_something(more: dict[str, Any], expected: str) -> None:
    with pytest.raises(InputError, match=expected):
        solve(dataclasses.replace(problem(), **more), "auto", LIMIT)


@pytest.mark.parametrize("solver", sorted(name for name in SOLVERS if SOLVERS[name].supports(problem()) is None))
def test_arrays_made_read_only_are_solved_all_the_same(solver: str) -> None:
    given, guarded = problem(), problem()
    expected = solve(given, "auto", LIMIT).objective
    for part in (guarded, guarded.options, guarded.edges, guarded.topology):
        for field in dataclasses.fields(part):
            value = getattr(part, field.name)
            if isinstance(value, np.ndarray):
                value.flags.writeable = False
    found = solve(guarded, solver, LIMIT)
    assert found.objective is not None
    assert found.objective == expected or not SOLVERS[solver].exact or found.status != "optimal"


def test_a_problem_is_looked_at_once() -> None:
    whole = problem()
    check_arrays(whole)
    whole.options.site[0] = 99
    check_arrays(whole)
    with pytest.raises(InputError, match="site"):
        check_arrays(dataclasses.replace(whole))


@pytest.mark.parametrize("wrong", [-1.0, math.nan, math.inf])
def test_links_take_time(wrong: float) -> None:
    whole = problem()
    topology = whole.topology
    latency = (*topology.latency[:-1], np.array([wrong]))
    with pytest.raises(InputError, match=rf"Topology\.latency\[{len(latency) - 1}\]\[0\]: {wrong}, expected 0 or more"):
        solve(dataclasses.replace(whole, topology=dataclasses.replace(topology, latency=latency)), "auto", LIMIT)
    hidden = (np.full(16, wrong), *whole.edges.hidden[1:])
    with pytest.raises(InputError, match=rf"Edges\.hidden\[0\]\[0\]: {wrong}, expected 0 or more"):
        solve(dataclasses.replace(whole, edges=dataclasses.replace(whole.edges, hidden=hidden)), "auto", LIMIT)


def test_values_are_looked_at_where_there_is_time_for_it() -> None:
    dear = changed("Options.cost", 2, 2**62)
    check_arrays(dear, values=False)
    assert solve(dear, "auto", Params(time_limit=0.01)).objective is not None
    with pytest.raises(InputError, match="cost"):
        solve(dear, "auto", LIMIT)
