"""Readers of the public sets: made-up files of each format, and the real ones with their published values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from iegopt.bench.instances import expand
from iegopt.bench.ours import Ours
from iegopt.bench.public import ctap, gap, gqap, stg
from iegopt.errors import SpecError
from iegopt.problem.arrays import TICKS_PER_SECOND as SECOND
from iegopt.problem.arrays import Problem
from iegopt.solvers.api import solve
from iegopt.solvers.result import Params, Status
from iegopt.spec.suite import SuiteSpec
from iegopt.verify.assignment import check_assignment
from tests.conftest import shared_dir


def value(problem: Problem, places: list[int]) -> tuple[float | None, list[str]]:
    """Objective in units and the broken rules of a placement given by site."""
    report = check_assignment(problem, [int(problem.options.ptr[v]) + s for v, s in enumerate(places)])
    return None if report.objective is None else report.objective / SECOND, [each.rule for each in report.violations]


def test_ctap_pays_communication_between_processors_and_keeps_capacities(tmp_path: Path) -> None:
    file = tmp_path / "tassc0302.dat"
    file.write_text("3\n\n2\n\n1 2 3\n10 20 30\n\n100 200\n400\n\n5 5 5\n\n10 15\n")
    problem = ctap.load(file)
    assert value(problem, [0, 0, 1]) == (1 + 2 + 30 + 200 + 400, [])
    assert value(problem, [1, 1, 1]) == (60, [])
    assert value(problem, [0, 0, 0]) == (6, ["memory"])
    file.with_suffix(".sol").write_text("1 2\n2 2\n3 2\n60.000000\n")
    assert ctap.published(file) == ctap.Published(60 * SECOND, True)
    assert [o - 2 * v for v, o in enumerate(ctap.solution(file, problem))] == [1, 1, 1]


def test_gqap_counts_ordered_pairs_times_the_transport_cost(tmp_path: Path) -> None:
    file = tmp_path / "2-2.txt"
    file.write_text("2 2 3\n77\n0 4\n5 0\n0 10\n10 0\n1 2\n3 4\n6 6\n6 12\n")
    problem = gqap.load(file)
    assert value(problem, [0, 1]) == (1 + 4 + 3 * (4 + 5) * 10, [])
    assert value(problem, [1, 1]) == (2 + 4, [])
    assert value(problem, [0, 0]) == (1 + 3, ["memory"])
    assert gqap.published(file) == gqap.Published(77 * SECOND, False)


def test_gap_has_a_resource_for_each_agent(tmp_path: Path) -> None:
    folder = tmp_path / "chu1997"
    folder.mkdir()
    (folder / "a").write_text(" 2 3 \n 1 2 3 \n 7 8 9 \n 1 1 4 \n 2 2 2 \n 4 5 \n")
    (tmp_path / "data.csv").write_text(
        "Path,Format,Dataset,Item number,Agent number,Best known bound,Optimum,Best known solution value\n"
        "chu1997/a,orlibrary,chu1997,3,2,12,,13\n"
    )
    problem = gap.load(folder / "a")
    assert value(problem, [0, 0, 1]) == (1 + 2 + 9, [])
    assert value(problem, [0, 1, 0]) == (1 + 8 + 3, ["memory"])
    assert gap.published(folder / "a") == gap.Published(13 * SECOND, False)


def test_stg_reads_durations_and_predecessors(tmp_path: Path) -> None:
    file = tmp_path / "rand0000.stg"
    file.write_text("  2\n 0 0 0\n 1 3 1 0\n 2 4 1 0\n 3 0 2 1 2\n# 2 tasks\n")
    problem = stg.load(file, 2)
    assert problem.options.time.tolist() == [0, 0, 3 * SECOND, 3 * SECOND, 4 * SECOND, 4 * SECOND, 0, 0]
    pairs = zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)
    assert [*pairs] == [(0, 1), (0, 2), (1, 3), (2, 3)]
    report = check_assignment(problem, [0, 2, 5, 6], [0, 0, 0, 4 * SECOND])
    assert (report.violations, report.objective) == ((), 4 * SECOND)


def test_stg_values_after_a_bound_are_not_called_optimal(tmp_path: Path) -> None:
    (tmp_path / "Case50_2_OPT.csv").write_text("50/rand0000.stg,2,4\n50/rand0001.stg,2,9,10\n")
    assert stg.published(tmp_path / "rand0000.stg", 2) == stg.Published(4 * SECOND, True)
    assert stg.published(tmp_path / "rand0001.stg", 2) == stg.Published(10 * SECOND, False)
    assert stg.published(tmp_path / "rand0000.stg", 4) is None


def test_a_task_graph_out_of_order_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "g.stg"
    file.write_text("1\n0 0 0\n1 3 1 2\n2 0 1 0\n")
    with pytest.raises(SpecError, match="task 1 after 2: expected predecessors before it"):
        stg.load(file, 2)


def test_what_breaks_a_schedule_is_named() -> None:
    graph = stg.task_graph("g", (3, 4, 2), ((), (), (0,)), 2)
    assert check_assignment(graph, [0, 3, 4], [0, 0, 3]).ok
    broken = check_assignment(graph, [0, 2, 5], [0, 2, 2])
    assert [(each.rule, each.where) for each in broken.violations] == [
        ("order", "t0 -> t2"), ("no_overlap", "t0, t1 on p0")
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["auto", "cpsat", "local", "greedy", "brute"])
def test_our_solvers_schedule_a_task_graph(name: str) -> None:
    """10 s of work on two processors; t1 and t3 one after the other take 6 s."""
    graph = stg.task_graph("g", tuple(t * SECOND for t in (3, 2, 1, 4)), ((), (), (0,), (1,)), 2)
    assert Ours(name).supports(graph) is None
    found = solve(graph, name, Params(time_limit=20.0))
    assert found.choice is not None
    assert found.start is not None
    report = check_assignment(graph, found.choice.tolist(), found.start.tolist())
    assert (report.violations, report.objective, found.objective) == ((), 6 * SECOND, 6 * SECOND)
    if name != "greedy":
        assert found.status is Status.OPTIMAL


@pytest.mark.parametrize("text", ["3 2\n1 2 x", "3 2\n1 2 3 4", "3 2 1.5"])
def test_a_damaged_file_is_refused_in_one_line(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.dat").write_text(text)
    with pytest.raises(SpecError, match=r"t\.dat: ") as caught:
        ctap.load(tmp_path / "t.dat")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", [f"tassc1003{a}" for a in ("Aa", "Bb", "Cc", "Da")])
def test_ctap_optima_are_the_published_ones(name: str) -> None:
    file = shared_dir() / "data" / "ctap_elloumi" / f"{name}.dat"
    problem, known = ctap.load(file), ctap.published(file)
    assert known is not None
    report = check_assignment(problem, ctap.solution(file, problem))
    assert (report.violations, report.objective) == ((), known.ticks)
    found = solve(problem, "brute")
    assert (found.status, found.objective) == (Status.OPTIMAL, known.ticks)


@pytest.mark.parametrize(("graph", "processors"), [("0000", 2), ("0045", 2), ("0000", 4), ("0063", 4), ("0009", 4)])
def test_stg_makespans_are_proven_at_the_published_values(graph: str, processors: int) -> None:
    """The value of 0009 on 4 is published as the best known one; it is the optimum."""
    file = shared_dir() / "data" / "stg" / f"rand{graph}.stg"
    problem, known = stg.load(file, processors), stg.published(file, processors)
    assert known is not None
    assert known.optimal == ((graph, processors) != ("0009", 4))
    found = solve(problem, "auto", Params(time_limit=20.0))
    assert (found.status, found.objective) == (Status.OPTIMAL, known.ticks)


@pytest.mark.slow
def test_gap_optimum_is_the_published_one() -> None:
    file = shared_dir() / "data" / "gap_orlib" / "chu1997" / "a05100"
    known = gap.published(file)
    assert known is not None
    assert known.optimal
    found = solve(gap.load(file), "milp", Params(time_limit=20))
    assert (found.status, found.objective) == (Status.OPTIMAL, known.ticks)


def test_no_verified_plan_beats_a_published_value() -> None:
    data = shared_dir() / "data"
    for file in sorted((data / "gqap_cordeau").glob("[23]*.txt")):
        known = gqap.published(file)
        found = solve(gqap.load(file), "local", Params(time_limit=0.1))
        assert known is not None
        if found.objective is not None:
            assert known.ticks <= found.objective < 2 * known.ticks, file.name


def test_every_file_of_the_sets_can_be_read() -> None:
    shared_dir()
    sources = [{"public": {"set": name}} for name in ("ctap", "gqap", "gap", "stg")]
    suite = SuiteSpec.model_validate({"name": "s", "instances": sources, "solvers": ["auto"], "limits": [1]})
    found = expand(suite, Path())
    counts = {name: sum(each.name.startswith(name) for each in found) for name in ("ctap", "gqap", "gap", "stg")}
    assert all(each.missing is None for each in found)
    assert all(counts.values()), counts
    assert sum(each.published is not None for each in found if each.family == "ctap") == 12
    assert all(each.published is not None for each in found if each.family != "ctap")
    for each in found:
        problem = each.load()
        assert problem.allowed.any()
        assert np.array_equal(problem.order, np.arange(problem.V))
