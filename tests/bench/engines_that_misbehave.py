"""Engines as ``iegopt.bench.engine`` describes them, each with one bad habit."""

from __future__ import annotations

import dataclasses
import os
import time
from pathlib import Path
from typing import Any

from iegopt.solvers.api import solve
from iegopt.solvers.incumbent import Report
from iegopt.solvers.result import Params, Result, Status

GATE = "IEGOPT_TEST_GATE"


class Good:
    """Solves by enumeration; the others inherit what they do not get wrong."""

    packages: tuple[str, ...] = ()
    fresh: bool = False

    def supports(self, problem: Any) -> str | None:
        return None if hasattr(problem, "options") else "not a placement"

    def solve(self, problem: Any, params: Params, hint: Any, report: Report) -> Result:
        return solve(problem, "brute", params, hint)


class Late(Good):
    """Reports a plan and a bound, then ignores its limit."""

    fresh = True

    def solve(self, problem: Any, params: Params, hint: Any, report: Report) -> Result:
        found = solve(problem, "brute")
        report(found.choice, None, None, found.start)
        report(None, 1, "patience")
        while True:
            time.sleep(60)


class FillsMemory(Good):
    """Reports a plan, then asks for more than there is."""

    fresh = True

    def solve(self, problem: Any, params: Params, hint: Any, report: Report) -> Result:
        found = solve(problem, "brute")
        report(found.choice, None, None, found.start)
        raise MemoryError


class Dies(Good):
    fresh = True

    def solve(self, problem: Any, params: Params, hint: Any, report: Report) -> Result:
        os.kill(os.getpid(), 11)
        raise AssertionError


class Raises(Good):
    fresh = True

    def solve(self, problem: Any, params: Params, hint: Any, report: Report) -> Result:
        raise ZeroDivisionError("of an engine")


class Flatters(Good):
    """Claims a better objective than its plan has."""

    def solve(self, problem: Any, params: Params, hint: Any, report: Report) -> Result:
        found = solve(problem, "brute")
        assert found.objective is not None
        return dataclasses.replace(found, status=Status.FEASIBLE, objective=found.objective - 1, bound=None, proof=None)


class Overfills(Good):
    """Its plan puts every stage on its first option, whatever fits."""

    def solve(self, problem: Any, params: Params, hint: Any, report: Report) -> Result:
        found = solve(problem, "brute")
        return dataclasses.replace(found, choice=problem.options.ptr[:-1].copy(), bound=None)


class Absent(Good):
    packages = ("no_such_package_at_all",)


class Gated(Good):
    """Waits for ever unless the file that the environment names is there."""

    fresh = True

    def solve(self, problem: Any, params: Params, hint: Any, report: Report) -> Result:
        while not Path(os.environ[GATE]).exists():
            time.sleep(60)
        return super().solve(problem, params, hint, report)


OBJECT = Good()
