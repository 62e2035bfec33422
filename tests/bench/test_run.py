"""Runs of suites: their order, what bad engines leave, interruption by a kill."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from iegopt.bench.compact import compact
from iegopt.bench.journal import journal_of, read_results, write_results
from iegopt.bench.run import run_suite, tasks_of
from iegopt.errors import InputError
from iegopt.problem.families import generate
from iegopt.solvers.api import solve
from iegopt.spec.suite import SuiteSpec
from tests.bench.engines_that_misbehave import GATE

OWN = "tests.bench.engines_that_misbehave:"
ROOT = Path(__file__).parents[2]


def suite(*solvers: Any, seeds: Any = 0, limits: Any = 20.0, **more: Any) -> SuiteSpec:
    source = {"generate": {"family": "chain", "stages": 3, "sites": 4, "memory": "tight", "seeds": seeds}}
    entries = [{"solver": each} if isinstance(each, str) else each for each in solvers]
    document = {"name": "test", "instances": [source], "solvers": entries, "limits": limits, **more}
    return SuiteSpec.model_validate(document)


def run(tested: SuiteSpec, folder: Path, **options: Any) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = run_suite(tested, folder, folder / "r.json", **options)["rows"]
    return rows


def test_all_solvers_take_their_turn_on_an_instance_before_the_next() -> None:
    tested = suite("auto", "cpsat", seeds="0..1", limits=[1.0, 2.0], repetitions=2)
    order = [(str(task), task.repetition) for task in tasks_of(tested, Path())]
    assert order[:5] == [
        ("chain-3x4-tight-s0:auto:1s", 0), ("chain-3x4-tight-s0:cpsat:1s", 0), ("chain-3x4-tight-s0:auto:1s", 1),
        ("chain-3x4-tight-s0:cpsat:1s", 1), ("chain-3x4-tight-s0:auto:2s", 0),
    ]  # fmt: skip
    assert [name.split(":")[0][-1] for name, _ in order] == ["0"] * 8 + ["1"] * 8


def test_a_filter_takes_part_of_a_name_or_a_pattern() -> None:
    tested = suite("auto", "cpsat", seeds="0..1", limits=[1.0, 10.0])
    assert len(tasks_of(tested, Path(), ["s1"])) == 4
    assert {str(task) for task in tasks_of(tested, Path(), ["*s0:cpsat:1s", "*s1:auto:10s"])} == {
        "chain-3x4-tight-s0:cpsat:1s", "chain-3x4-tight-s1:auto:10s"
    }  # fmt: skip
    with pytest.raises(InputError, match="no run fits milp; runs are called such as chain-3x4-tight-s0:auto:1s"):
        tasks_of(tested, Path(), ["cpsat", "milp"])


def test_a_solver_may_have_limits_of_its_own(tmp_path: Path) -> None:
    hinted = {"solver": "local", "hint": "auto", "limits": 9.0}
    tested = suite({"solver": "auto", "limits": [2.0, 9.0]}, "cpsat", hinted, limits=[1.0, 2.0])
    assert [str(task).partition(":")[2] for task in tasks_of(tested, Path())] == [
        "cpsat:1s", "auto:2s", "cpsat:2s", "auto:9s", "local+auto:9s"
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"limits of local\+auto: expected some of those of auto, its hint"):
        suite("auto", hinted)


def test_an_unknown_solver_is_told_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no solver or peer 'toulbar'\. Maybe toulbar2\?"):
        run(suite("auto", "toulbar"), tmp_path)
    with pytest.raises(InputError, match=r"solver 'no\.such:Thing': No module named 'no'"):
        run(suite("no.such:Thing"), tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_what_each_engine_leaves(tmp_path: Path) -> None:
    names = ("Good", "Late", "Dies", "Raises", "Flatters", "Overfills", "Absent", "OBJECT", "FillsMemory")
    rows = run(suite(*(OWN + name for name in names), "heft", limits=0.2, grace=0.1), tmp_path)
    known = solve(generate("chain", 3, 4, "tight", 0), "brute")
    got = {row["solver"].removeprefix(OWN): row for row in rows}
    assert [row["status"] for row in rows] == [
        "optimal", "feasible", "crashed", "error", "refused", "refused", "missing", "optimal",
        "error", "unsupported" if got["heft"]["status"] != "missing" else "missing",
    ]  # fmt: skip
    assert known.choice is not None
    assert (got["Good"]["objective"], got["Good"]["choice"]) == (known.objective, known.choice.tolist())
    late = got["Late"]
    assert (late["objective"], late["bound"], late["proof"], late["killed"]) == (known.objective, 1, "patience", True)
    assert [point[1:] for point in late["trajectory"]] == [[known.objective, None], [known.objective, 1]]
    assert late["reason"] == "killed 0.1 s after its limit"
    assert late["memory"] is None or late["memory"] > 10**6
    full = got["FillsMemory"]
    assert (full["reason"], full["objective"], full["trajectory"][0][1]) == ("out of memory", *[known.objective] * 2)
    assert got["Dies"]["reason"] == "its process ended with signal 11"
    assert got["Raises"]["reason"] == "ZeroDivisionError: of an engine"
    assert known.objective is not None
    assert got["Flatters"]["reason"] == f"claims {known.objective - 1}, is {known.objective}"
    assert "memory of" in got["Overfills"]["reason"]
    assert got["Absent"]["reason"] == "no_such_package_at_all is not installed"
    assert all(row["objective"] is None and row["choice"] is None for row in rows if row["status"] == "refused")


@pytest.mark.slow
def test_a_hint_is_the_plan_of_the_same_round(tmp_path: Path) -> None:
    hinted = {"solver": "local", "hint": "auto"}
    lost = {"solver": "auto", "hint": "dies", "label": "without"}
    dies = {"solver": OWN + "Dies", "label": "dies"}
    first, _, second, third = run(suite("auto", dies, hinted, lost, limits=0.3), tmp_path)
    assert first["status"] == "optimal"
    assert second["solver"] == "local+auto"
    assert second["trajectory"][0] == [0.0, first["objective"], None]
    assert (third["status"], third["reason"]) == ("skipped", "dies left no plan to start from")


@pytest.mark.slow
def test_schedules_are_verified_with_their_start_times(tmp_path: Path) -> None:
    (tmp_path / "g.stg").write_text("4\n0 0 0\n1 3 1 0\n2 2 1 0\n3 1 1 1\n4 4 1 2\n5 0 2 3 4\n")
    document = suite("auto", "cpsat", {"solver": "local", "hint": "auto"}, OWN + "Late", "milp", limits=0.6, grace=0.1)
    source = {"public": {"set": "stg", "folder": ".", "names": ["g"]}}
    tested = SuiteSpec.model_validate({**document.model_dump(exclude_none=True), "instances": [source]})
    rows = run_suite(tested, tmp_path, tmp_path / "r.json", patterns=["stg-g-p2"])["rows"]
    assert [row["status"] for row in rows] == ["optimal", "optimal", "optimal", "feasible", "unsupported"]
    assert [row["objective"] for row in rows[:4]] == [6 * 10**9] * 4
    assert all(len(row["start"]) == 6 for row in rows[:4])
    assert rows[1]["trajectory"][-1][1:] == [6 * 10**9] * 2
    assert rows[2]["trajectory"][0] == [0.0, 6 * 10**9, None]


def test_results_say_where_they_come_from(tmp_path: Path) -> None:
    run(suite(OWN + "Good"), tmp_path, command="iegopt bench run x")
    document = read_results(tmp_path / "r.json")
    (session,) = document["sessions"]
    assert session["command"] == "iegopt bench run x"
    assert {"numpy", "ortools", "pydantic"} <= set(session["versions"])
    assert all(session[key] for key in ("date", "python", "processor", "cores", "system", "messages"))
    assert document["suite"]["solvers"][0]["solver"] == OWN + "Good"
    assert not journal_of(tmp_path / "r.json").exists()


def test_resuming_adds_only_what_is_missing(tmp_path: Path) -> None:
    tested = suite(OWN + "Good", OWN + "OBJECT")
    seen: list[str] = []

    def observe(number: int, total: int, task: Any, row: Any) -> None:
        if row is not None:
            seen.append(task.entry.solver.removeprefix(OWN))

    run(tested, tmp_path, patterns=["Good"], observe=observe)
    rows = run(tested, tmp_path, resume=True, observe=observe)
    assert seen == ["Good", "OBJECT"]
    assert [row["session"] for row in rows] == [0, 1]
    with pytest.raises(InputError, match=r"r\.json: made from another suite"):
        run(suite(OWN + "Good"), tmp_path, resume=True)


def test_resuming_repeats_what_a_signal_ended_and_nothing_else(tmp_path: Path) -> None:
    """A process that somebody killed while it warmed up counted against its solver for good."""
    good, hinted = OWN + "Good", {"solver": OWN + "OBJECT", "hint": OWN + "Good"}
    tested = suite(good, hinted, seeds="0..3")
    run(tested, tmp_path)
    document = read_results(tmp_path / "r.json")
    rows = {(row["instance"][-1], row["solver"]): row for row in document["rows"]}
    after = f"{OWN}OBJECT+{good}"
    nothing: dict[str, Any] = {"objective": None, "bound": None, "proof": None, "choice": None, "trajectory": []}
    for seed, reason in (
        ("0", "warming up: its process ended with signal 9"),
        ("1", "its process ended with signal 11"),
        ("2", "its process ended with code 3"),
    ):
        rows[seed, good] |= {**nothing, "status": "crashed", "reason": reason}
        rows[seed, after] |= {**nothing, "status": "skipped", "reason": f"{good} left no plan to start from"}
    write_results(tmp_path / "r.json", document)
    again = run(tested, tmp_path, resume=True, patterns=["s0", "s2", "s3"])
    kept = [key for key in rows if key not in {("0", good), ("0", after)}]
    assert again[: len(kept)] == [rows[key] for key in kept]
    assert [(row["instance"][-1], row["solver"], row["status"]) for row in again[len(kept) :]] == [
        ("0", good, "optimal"), ("0", after, "optimal")
    ]  # fmt: skip


def test_what_is_there_is_refused_kept_or_replaced_as_asked(tmp_path: Path) -> None:
    tested = suite(OWN + "Good", OWN + "OBJECT", seeds="0..1")
    run(tested, tmp_path)
    before = (tmp_path / "r.json").read_bytes()
    there = r"^r\.json is already there: --resume adds what is missing, --force starts anew$"
    for patterns in ([], ["Good"]):
        with pytest.raises(InputError, match=there):
            run(tested, tmp_path, patterns=patterns)
        assert [file.name for file in tmp_path.iterdir()] == ["r.json"]
        assert (tmp_path / "r.json").read_bytes() == before
    assert len(run(tested, tmp_path, resume=True, patterns=["Good"])) == 4
    assert [row["solver"] for row in run(tested, tmp_path, force=True, patterns=["*s0:*:Good:*"])] == [OWN + "Good"]
    (tmp_path / "r.json").write_text("a letter")
    with pytest.raises(InputError, match=there):
        run(tested, tmp_path)
    with pytest.raises(InputError, match=r"r\.json: line 1 column 1: not JSON"):
        run(tested, tmp_path, resume=True)
    assert (tmp_path / "r.json").read_text() == "a letter"


def test_finished_results_stay_until_the_new_ones_are_done(tmp_path: Path) -> None:
    tested = suite(OWN + "Good", OWN + "OBJECT")
    run(tested, tmp_path)
    before = (tmp_path / "r.json").read_bytes()

    def interrupt(number: int, total: int, task: Any, row: Any) -> None:
        if number == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(tested, tmp_path, force=True, observe=interrupt)
    assert (tmp_path / "r.json").read_bytes() == before
    assert len(read_results(tmp_path / "r.json")["rows"]) == 1
    assert len(run(tested, tmp_path, resume=True)) == 2


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"force": True}])
@pytest.mark.parametrize("left", [b"", b'{"format":"iegopt-be'])
def test_a_journal_without_a_whole_line_is_no_run(tmp_path: Path, left: bytes, options: dict[str, bool]) -> None:
    (tmp_path / "r.json.journal").write_bytes(left)
    assert len(run(suite(OWN + "Good"), tmp_path, **options)) == 1
    assert [file.name for file in tmp_path.iterdir()] == ["r.json"]


@pytest.mark.parametrize("options", [{}, {"resume": True}, {"force": True}])
@pytest.mark.parametrize("left", [b"a letter", b"a letter\n", b"[1,2]\n"])
def test_a_file_in_the_place_of_the_journal_is_left_alone(
    tmp_path: Path, left: bytes, options: dict[str, bool]
) -> None:
    (tmp_path / "r.json.journal").write_bytes(left)
    with pytest.raises(InputError, match=r"r\.json\.journal: line 1: expected the journal of an iegopt bench run"):
        run(suite(OWN + "Good"), tmp_path, **options)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == {"r.json.journal": left}


def test_results_may_be_compressed(tmp_path: Path) -> None:
    tested, file = suite(OWN + "Good"), tmp_path / "r.json.gz"
    run_suite(tested, tmp_path, file)
    assert json.loads(gzip.decompress(file.read_bytes())) == read_results(file)
    assert len(run_suite(tested, tmp_path, file, resume=True)["rows"]) == 1


def test_compact_results_have_no_plan_to_start_from(tmp_path: Path) -> None:
    tested = suite(OWN + "Good", {"solver": OWN + "Good", "hint": OWN + "Good", "label": "hinted"})
    run(tested, tmp_path, patterns=["*Good:*"])
    write_results(tmp_path / "r.json", compact(read_results(tmp_path / "r.json"), ()))
    with pytest.raises(InputError, match=r"^r\.json: holds no plans, and chain-3x4-tight-s0:hinted:20s would start"):
        run(tested, tmp_path, resume=True)


SUITE = """
suite:
  name: killed
  instances: [{{generate: {{family: chain, stages: 3, sites: 4}}}}]
  solvers: [{{solver: "{own}Good", label: first}}, {{solver: "{own}Gated", label: second}}]
  limits: 1000s
"""


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on_where_it_stopped(tmp_path: Path) -> None:
    (tmp_path / "s.yaml").write_text(SUITE.format(own=OWN))
    results, journal = tmp_path / "r.json", tmp_path / "r.json.journal"
    command = [sys.executable, "-m", "iegopt", "bench", "run", str(tmp_path / "s.yaml"), "-o", str(results)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), GATE: str(tmp_path / "gate")}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        rival = subprocess.run([*command, "--resume"], capture_output=True, text=True, env=environment, check=False)
        os.kill(process.pid, signal.SIGKILL)
    assert rival.returncode == 1
    holder = f"process {process.pid}"
    assert rival.stderr == f"iegopt: r.json: another run is writing it, {holder}; wait for it, or end it\n"
    assert (tmp_path / "r.json.lock").exists()
    assert line.startswith("[1/2] chain-3x4-slack-s0:first:1000s  optimal"), line
    assert not results.exists()
    assert [row["solver"] for row in read_results(results)["rows"]] == ["first"]
    journal.write_bytes(journal.read_bytes() + b'{"row":{"instance":"cut sho')

    again = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert again.returncode == 1
    assert again.stderr == (
        "iegopt: r.json.journal holds an interrupted run: --resume adds what is missing, --force starts anew\n"
    )
    (tmp_path / "gate").touch()
    resumed = subprocess.run([*command, "--resume"], capture_output=True, text=True, env=environment, check=True)
    assert resumed.stderr.startswith("[2/2] chain-3x4-slack-s0:second:1000s  optimal"), resumed.stderr
    document = json.loads(results.read_text())
    assert [(row["solver"], row["status"]) for row in document["rows"]] == [("first", "optimal"), ("second", "optimal")]
    assert len(document["sessions"]) == 2
    assert {path.name for path in tmp_path.iterdir()} == {"s.yaml", "gate", "r.json"}


@pytest.mark.slow
@pytest.mark.parametrize("solver", ["auto", "prices", "local"])
def test_our_solvers_stream_what_they_find(tmp_path: Path, solver: str) -> None:
    source = {"generate": {"family": "layered", "stages": 20, "sites": 64, "memory": "tight"}}
    document = suite(solver, limits=1.0).model_dump(exclude_none=True)
    (row,) = run(SuiteSpec.model_validate({**document, "instances": [source]}), tmp_path)
    found = [point for point in row["trajectory"] if point[1] is not None]
    assert len({value for _, value, _ in found}) > 1
    assert found[0][0] < 0.5 * row["seconds"]
    assert found[-1][1:] == [row["objective"], row["bound"]]
