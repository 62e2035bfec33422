"""Functions with the signature of an engine, for the child processes of ``test_killable``."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

from iegopt.solvers.incumbent import Report
from iegopt.solvers.result import Params, Result, Status


def hangs(problem: Any, params: Params, hint: Any, report: Report) -> Result:
    """Report a plan and a bound, then ignore the limit."""
    if hint is None:
        report(problem.options.ptr[:-1].copy(), None, None)
        report(None, 1, "patience")
    return waits(problem, params, hint, report)


def waits(problem: Any, params: Params, hint: Any, report: Report) -> Result:
    """Never end."""
    while True:
        time.sleep(60)


def starts_a_process_and_hangs(problem: Any, params: Params, hint: Any, report: Report) -> Result:
    """Leave the number of a grandchild behind as a log line."""
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    assert params.log is not None
    params.log(str(child.pid))
    return waits(problem, params, hint, report)


def dies(problem: Any, params: Params, hint: Any, report: Report) -> Result:
    """As an engine that crashes."""
    if hint is not None:
        report(hint, None, None)
    os.abort()


def fills_memory(problem: Any, params: Params, hint: Any, report: Report) -> Result:
    if hint is not None:
        report(hint, None, None)
    raise MemoryError


def raises(problem: Any, params: Params, hint: Any, report: Report) -> Result:
    raise ZeroDivisionError("of an engine")


def answers(problem: Any, params: Params, hint: Any, report: Report) -> Result:
    """Print as HiGHS does, and say who and when."""
    sys.stdout.write("a banner\n")
    sys.stdout.flush()
    os.write(1, b"another\n")
    note = f"{os.getpid()} {params.time_limit}"
    return Result(Status.UNKNOWN, None, None, None, None, "answers", 0.0, note)
