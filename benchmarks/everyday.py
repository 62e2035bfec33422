"""The everyday case: ``auto`` on part-full clusters in real time, against ``tree`` alone on the same instance.

    python benchmarks/everyday.py [--instances 100]

20 stages on 1,024 part-full sites with gangs and SLAs, the four families in turn, one thread. Of every instance: the
least time of three for the messages alone and for ``auto`` until its proof, or its limit of 2 s, in turns; and what
``auto`` has proven where its limit is 100 ms. Keeps the figures in ``benchmarks/results/everyday.json``.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from iegopt.problem.families import Family, generate
from iegopt.solvers.api import solve
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.result import Params

FAMILIES: tuple[Family, ...] = ("chain", "agent", "layered", "fanout")
STAGES, SITES = 20, 1024
REPETITIONS = 3
LIMIT, SHORT_LIMIT = Params(time_limit=2.0), Params(time_limit=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--instances", type=int, default=100)
    instances = parser.parse_args().instances
    ratios: list[float] = []
    seconds: list[float] = []
    gaps: list[float] = []
    proven = 0
    for seed in range(instances):
        problem = generate(FAMILIES[seed % len(FAMILIES)], STAGES, SITES, "part_full", seed, gangs=True)
        relaxation(problem)  # what is cached in a problem is cached in a planner's, too
        optimal = solve(problem, "auto", LIMIT).status == "optimal"
        tree, auto = float("inf"), float("inf")
        for _ in range(REPETITIONS if optimal else 1):
            tree = min(tree, timed(lambda problem=problem: relaxation(problem)))
            auto = min(auto, timed(lambda problem=problem: solve(problem, "auto", LIMIT)))
        proven += optimal
        short = solve(problem, "auto", SHORT_LIMIT).gap
        ratios.append(auto / tree)
        seconds.append(auto)
        gaps.append(float("inf") if short is None else short)
    within = sum(ratio <= 20 for ratio in ratios)
    figures = {
        "instances": instances,
        "proven": proven,
        "within_20_times_tree": within,
        "times_tree_median_and_most": [round(x, 1) for x in (statistics.median(ratios), max(ratios))],
        "milliseconds_median_and_most": [round(1e3 * x, 1) for x in (statistics.median(seconds), max(seconds))],
        "gap_above_1_percent_after_100_ms": sum(gap > 0.01 for gap in gaps),
    }
    print(figures)
    record("everyday", figures)


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
