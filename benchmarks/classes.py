"""Interchangeable devices as counted classes: an agent's request on 10,000 devices, with and without the merge.

    python benchmarks/classes.py

Milliseconds of the merge, of ``auto`` with and without it, in turns, and of ``Planner.plan`` end to end, its cluster
compiled and its explanation left out; the least of 15 runs each.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import iegopt
from benchmarks.record import record
from iegopt.problem.classes import fold
from iegopt.solvers.api import solve
from iegopt.solvers.result import Params

RUNS, LIMIT = 15, Params(time_limit=30.0)
INSTANCES = Path(__file__).resolve().parent.parent / "instances"


def main() -> None:
    planner = iegopt.Planner(iegopt.load_cluster(INSTANCES / "clusters" / "ten-thousand.yaml"))
    request = iegopt.load_request(INSTANCES / "requests" / "agent.yaml")
    problem = planner.compile(request, tier=0).problem
    folded = fold(problem)
    assert folded is not None

    def whole() -> None:
        with mock.patch("iegopt.solvers.auto.fold", return_value=None):
            solve(problem, "auto", LIMIT)

    runs: dict[str, Callable[[], object]] = {
        "merge": lambda: fold(problem),
        "auto": lambda: solve(problem, "auto", LIMIT),
        "auto_without": whole,
        "plan": lambda: planner.plan(request, explained=False),
    }
    seconds = {name: float("inf") for name in runs}
    for _ in range(RUNS):
        for name, run in runs.items():
            begun = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - begun)
    milliseconds = {f"{name}_ms": round(1e3 * value, 2) for name, value in seconds.items()}
    figures = {"devices": problem.topology.D, "sites": folded.of, "sites_left": folded.sites, **milliseconds}
    print(figures)
    record("classes", figures)


if __name__ == "__main__":
    main()
