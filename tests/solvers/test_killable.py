"""Children that hang, die, raise and answer; and none of them is left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from iegopt.errors import BackendError
from iegopt.problem.families import generate
from iegopt.solvers import killable
from iegopt.solvers.api import load_engine, solve
from iegopt.solvers.clock import pressure
from iegopt.solvers.cpsat import CpSat
from iegopt.solvers.evaluate import objective
from iegopt.solvers.killable import run_killable, stop_children
from iegopt.solvers.result import Params, Result, Status

ENGINES = "tests.solvers.engines_that_misbehave:"
PROBLEM = generate("chain", 4, 8, "slack", 0)
PLAN = np.array([int(np.flatnonzero(PROBLEM.allowed[PROBLEM.options.of(v)])[0] + PROBLEM.options.ptr[v])
                 for v in range(PROBLEM.V)])  # fmt: skip


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    stop_children()


def run(name: str, limit: float | None = None, hint: np.ndarray | None = None, **more: float) -> Result:
    return run_killable(ENGINES + name, PROBLEM, Params(time_limit=limit), hint, solver=name, **more)


def gone(pid: int) -> bool:
    """Whether a process has ended (a zombie has: nobody here may have reaped it yet)."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()[0]
    except FileNotFoundError:
        return True
    return state == "Z"


def test_a_child_that_hangs_is_killed_and_what_it_had_found_comes_back() -> None:
    run("answers")  # warm: the start of Python is not what is tested
    pid = killable._idle[0].process.pid
    began = time.monotonic()
    result = run("hangs", limit=0.3, grace=0.2)
    assert time.monotonic() - began < 5
    assert gone(pid)
    first = PROBLEM.options.ptr[:-1]
    assert result.status is Status.FEASIBLE
    assert result.objective == objective(PROBLEM, first)
    assert (result.bound, result.proof) == (1, "patience")
    assert result.note == "killed 0.2 s after its time limit"


def test_a_hang_without_a_plan_is_unknown_or_the_hint() -> None:
    assert run("waits", limit=0.1, grace=0.1).status is Status.UNKNOWN
    assert run("hangs", limit=0.1, hint=PLAN, grace=0.1).objective == objective(PROBLEM, PLAN)


def test_a_crash_is_told_and_the_plan_before_it_kept() -> None:
    with pytest.raises(BackendError, match="dies: its process ended with signal 6"):
        run("dies")
    result = run("dies", hint=PLAN)
    assert result.status is Status.FEASIBLE
    assert result.note == "its process ended with signal 6"


def test_without_memory_the_plan_before_is_kept() -> None:
    with pytest.raises(BackendError, match="fills_memory: out of memory"):
        run("fills_memory")
    result = run("fills_memory", hint=PLAN)
    assert (result.status, result.note) == (Status.FEASIBLE, "out of memory")


def test_a_child_killed_from_outside_is_told() -> None:
    run("answers")
    pid = killable._idle[0].process.pid
    killer = threading.Timer(0.2, os.kill, (pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(BackendError, match="signal 9"):
        run("waits")
    killer.join()


def test_an_idle_child_killed_from_outside_is_replaced() -> None:
    first = run("answers").note.split()[0]
    child = killable._idle[0]
    os.kill(child.process.pid, signal.SIGKILL)
    child._reader.join()
    assert run("answers").note.split()[0] != first


def test_an_exception_is_a_backend_error_and_the_child_lives() -> None:
    first = run("answers").note.split()[0]
    with pytest.raises(BackendError) as caught:
        run("raises")
    assert str(caught.value).endswith("raises: ZeroDivisionError: of an engine")
    assert "engines_that_misbehave.py" in caught.value.__notes__[0]
    assert run("answers").note.split()[0] == first


def test_the_warm_child_is_used_again_and_the_limit_counts_from_the_call() -> None:
    first, second = (run("answers", limit=50.0).note.split() for _ in range(2))
    assert first[0] == second[0]
    assert float(second[1]) <= 50.0


def test_calls_with_short_limits_are_answered_once_the_engine_is_there() -> None:
    result = run("answers", limit=1.5 * killable._SPAWN * pressure())
    assert result.status is Status.UNKNOWN
    assert "still being loaded" in result.note
    pid = killable._idle[0].process.pid
    assert killable._idle[0].ready(time.monotonic() + 30)
    assert run("answers", limit=5.0).note.split()[0] == str(pid)


@pytest.mark.parametrize("solver", ["cpsat", "milp", "auto", "none"])
def test_an_engine_is_loaded_ahead_of_the_first_limit(solver: str) -> None:
    load_engine(solver)
    assert [child.ready(time.monotonic()) for child in killable._idle] == [True] * (solver in ("cpsat", "milp"))
    assert not killable._busy
    if killable._idle:
        pid = killable._idle[0].process.pid
        assert solve(PROBLEM, solver, Params(time_limit=20.0)).status is Status.OPTIMAL
        assert killable._idle[0].process.pid == pid


def test_a_killed_child_leaves_a_successor_that_is_ready() -> None:
    run("answers")
    pid = killable._idle[0].process.pid
    run("waits", limit=0.1, grace=0.1)
    assert gone(pid)
    (successor,) = killable._idle
    assert successor.ready(time.monotonic() + 30)
    assert run("answers", limit=5.0).note.split()[0] == str(successor.process.pid)


@pytest.mark.parametrize("solver", ["cpsat", "milp"])
def test_an_exception_of_the_listener_ends_the_solve(solver: str) -> None:
    pytest.importorskip("pulp" if solver == "milp" else "ortools", reason=f"the extra of {solver} is not installed")

    def raise_it(_: object) -> None:
        raise LookupError("of the listener")

    with pytest.raises(LookupError, match="of the listener"):
        solve(PROBLEM, solver, Params(time_limit=60.0), on_improvement=raise_it)
    assert not killable._busy


def test_what_engines_print_is_not_seen(capfd: pytest.CaptureFixture[str]) -> None:
    run("answers")
    assert capfd.readouterr() == ("", "")


@pytest.mark.slow
def test_processes_of_an_engine_die_with_it() -> None:
    lines: list[str] = []
    run_killable(
        ENGINES + "starts_a_process_and_hangs", PROBLEM, Params(time_limit=1.5, log=lines.append), None,
        solver="x", grace=0.1,
    )  # fmt: skip
    assert gone(int(lines[0]))


@pytest.mark.slow
def test_threads_get_children_of_their_own() -> None:
    notes: list[str] = []
    threads = [threading.Thread(target=lambda: notes.append(CpSat().solve(PROBLEM, Params(time_limit=30), None).status))
               for _ in range(3)]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert notes == [Status.OPTIMAL] * 3
    assert len(killable._idle) == 1
    assert not killable._busy


SCRIPT = """
import os, sys
from iegopt.problem.families import generate
from iegopt.solvers.cpsat import CpSat
from iegopt.solvers.result import Params
from iegopt.solvers import killable
result = CpSat().solve(generate("chain", 4, 8, "slack", 0), Params(time_limit=30), None)
print(result.status.value, killable._idle[0].process.pid, flush=True)
{end}
"""


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_no_process_outlives_a_script_without_a_main_guard(end: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT.format(end=end)), encoding="utf-8")
    root = str(Path(killable.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
        check=False,
    )
    status, pid = done.stdout.split()
    assert status == "optimal", done.stderr
    until = time.monotonic() + 10
    while not gone(int(pid)):
        assert time.monotonic() < until, "the child is still there"
        threading.Event().wait(0.02)


def test_a_wait_beyond_all_clocks_is_as_long_as_they_allow() -> None:
    assert run("answers", 1e300, grace=1e300).status is Status.UNKNOWN


def test_a_limit_shorter_than_the_start_of_a_process_is_kept_and_the_engine_is_there_later() -> None:
    """No process is started while such a limit runs; the one that comes after it serves the next call."""
    refused = run("answers", limit=0.001)
    assert (refused.status, killable._idle) == (Status.UNKNOWN, [])
    assert "still being loaded" in refused.note
    assert killable._later is not None
    killable._later.join(10)
    assert killable._later.finished.is_set()
    (child,) = killable._idle
    assert run("answers", limit=60.0).note.split()[0] == str(child.process.pid)
    assert killable._idle == [child]


def test_a_process_that_is_to_start_later_does_not_once_all_are_stopped() -> None:
    run("answers", limit=0.01)
    stop_children()
    assert killable._later is not None
    assert killable._later.finished.is_set()
    assert killable._idle == []
