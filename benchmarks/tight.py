"""Tight memory: what ``auto`` proves in ten seconds where CP-SAT alone does not.

    python benchmarks/tight.py [--seconds 10] [--only TEXT] [--auto-as NAME] [--solvers auto cpsat]
    python benchmarks/tight.py --everyday 100

Families chain, agent and layered, 8, 20 and 50 stages on 32, 256 and 1,024 sites, memory 1.1 times the need; the
solvers take turns on every instance, one thread each, CP-SAT in a process that can be killed. ``--everyday`` solves
that many instances of 20 stages on 1,024 part-full sites with ``auto`` and compares its time with that of ``tree``.

Prints a line per instance and keeps every figure in ``benchmarks/results/tight.json``; a run replaces the figures that
it measures again and leaves the others. ``--auto-as`` keeps those of ``auto`` under another name: the column "before"
was measured so with ``auto`` as it was at commit 0a079ae, before there were prices.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import RESULTS, record
from iegopt.problem.arrays import Problem
from iegopt.problem.families import Family, generate
from iegopt.solvers.api import solve
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.killable import run_killable
from iegopt.solvers.result import Params, Result

TIGHT: tuple[Family, ...] = ("chain", "agent", "layered")
EVERYDAY: tuple[Family, ...] = ("chain", "agent", "layered", "fanout")
STAGES, SITES = (8, 20, 50), (32, 256, 1024)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--only", default="", help="instances whose name contains this")
    parser.add_argument("--auto-as", default="auto")
    parser.add_argument("--solvers", nargs="+", default=["auto", "cpsat"])
    parser.add_argument("--everyday", type=int, default=0, metavar="INSTANCES")
    options = parser.parse_args()
    kept = RESULTS / "tight.json"
    figures: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8")) if kept.exists() else {}
    figures = {"tight": figures.get("tight", {}), "everyday": figures.get("everyday", {})}
    if options.everyday:
        figures["everyday"] = everyday(options.everyday)
    else:
        for family in TIGHT:
            for stages in STAGES:
                for sites in SITES:
                    name = f"{family}-{stages}x{sites}"
                    if options.only in name:
                        row = figures["tight"].setdefault(name, {})
                        problem = generate(family, stages, sites, "tight", 0)
                        row.update(compare(name, problem, options.solvers, options.seconds, options.auto_as))
    record("tight", figures)


def compare(name: str, problem: Problem, solvers: list[str], seconds: float, auto_as: str) -> dict[str, Any]:
    """Status, objective, bound, gap and seconds of every solver, in turn."""
    row: dict[str, Any] = {}
    for solver in solvers:
        result = answer(problem, solver, seconds)
        column = auto_as if solver == "auto" else solver
        gap = result.gap
        row[column] = {
            "status": str(result.status),
            "objective": result.objective,
            "bound": result.bound,
            "gap": gap,
            "seconds": round(result.seconds, 3),
            "proof": result.proof,
        }
        shown = "-" if gap is None else f"{100 * gap:.3f} %"
        print(
            f"{name:16} {column:8} {result.status:10} gap {shown:>10} {result.seconds:7.2f} s  {result.proof}",
            flush=True,
        )
    return row


def answer(problem: Problem, solver: str, seconds: float) -> Result:
    params = Params(time_limit=seconds, threads=1)
    if solver == "cpsat":
        return run_killable("iegopt.solvers.cpsat.solver:run", problem, params, None, solver="cpsat", grace=2.0)
    return solve(problem, solver, params)


def everyday(instances: int) -> dict[str, Any]:
    """How often and how soon ``auto`` proves part-full instances, against the messages alone."""
    ratios, gaps, proven, milliseconds = [], [], 0, []
    for i in range(instances):
        problem = generate(EVERYDAY[i % len(EVERYDAY)], 20, 1024, "part_full", i)
        relaxation(problem)
        tree = min(timed(lambda problem=problem: relaxation(problem)) for _ in range(5))
        start = time.perf_counter()
        result = solve(problem, "auto", Params(time_limit=10.0))
        seconds = time.perf_counter() - start
        short = solve(problem, "auto", Params(time_limit=0.1))
        proven += result.status == "optimal"
        ratios.append(seconds / tree)
        milliseconds.append(1e3 * seconds)
        gaps.append(short.gap if short.gap is not None else float("inf"))
    figures = {
        "instances": instances,
        "proven": proven,
        "proven_within_20_times_tree": sum(ratio <= 20 for ratio in ratios),
        "times_tree": [round(x, 1) for x in (statistics.median(ratios), max(ratios))],
        "milliseconds": [round(x, 1) for x in (statistics.median(milliseconds), max(milliseconds))],
        "gap_above_1_percent_after_100_ms": sum(gap > 0.01 for gap in gaps),
    }
    print(figures)
    return figures


def timed(run: Any) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
