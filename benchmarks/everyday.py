"""The everyday case: ``auto`` on part-full clusters in real time, against ``tree`` alone on the same instance.

    python benchmarks/everyday.py [--instances 100] [--others 25]
    python benchmarks/everyday.py --compiled --others 0
    python benchmarks/everyday.py --first-seed 1000 --instances 60 --others 15

20 stages on 1,024 part-full sites with gangs, SLAs and an affinity (``problem/families.py``), one thread: instances of
family ``joins``, whose graphs have one or two joins, and some each of the other families, which have none or many more.
Of every instance: the least time of three for the messages alone and for ``auto`` until its proof, or its limit of 2 s,
in turns; and what ``auto`` has proven where its limit is 100 ms. Keeps the figures in
``benchmarks/results/everyday.json``. Both by numpy; with ``--compiled`` both by the kernels of the extra ``fast``,
which quicken the messages alone far more than the rest of ``auto`` (``everyday_compiled.json``). Constants were chosen
on seeds from 0 to 199; others show what they are worth elsewhere (``everyday_held_out.json``).
"""

from __future__ import annotations

import argparse
import gc
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from iegopt.problem.families import Family, generate
from iegopt.solvers.api import solve
from iegopt.solvers.exact.compiled import warmup
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.result import Params

EVERYDAY: Family = "joins"
OTHERS: tuple[Family, ...] = ("chain", "agent", "fanout", "layered")
STAGES, SITES = 20, 1024
REPETITIONS = 3
LIMIT, SHORT_LIMIT = Params(time_limit=2.0), Params(time_limit=0.1)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--instances", type=int, default=100)
    parser.add_argument("--others", type=int, default=25, help="instances of each of the other families")
    parser.add_argument("--first-seed", type=int, default=0, help="of every family, the next ones follow it")
    parser.add_argument("--compiled", action="store_true", help="by compiled kernels")
    options = parser.parse_args()
    if options.compiled:
        print(warmup())
    gc.freeze()  # as a server does once it is up
    seeds, others_seeds = (
        range(options.first_seed, options.first_seed + n) for n in (options.instances, options.others)
    )
    figures = measured(EVERYDAY, seeds)
    others = {family: measured(family, others_seeds) for family in OTHERS} if others_seeds else {}
    name = "everyday" + "_compiled" * options.compiled + "_held_out" * bool(options.first_seed)
    record(name, {"first_seed": options.first_seed, **figures, "others": others})


def measured(family: Family, seeds: range) -> dict[str, Any]:
    """Figures of a family; prints a line per instance that is not proven within 20 times ``tree``, and the figures."""
    ratios: list[float] = []
    seconds: list[float] = []
    gaps: list[float] = []
    proven = within = 0
    for seed in seeds:
        problem = generate(family, STAGES, SITES, "part_full", seed, gangs=True)
        relaxation(problem)  # what is cached in a problem is cached in a planner's, too
        result = solve(problem, "auto", LIMIT)
        optimal = result.status == "optimal"
        tree, auto = float("inf"), float("inf")
        for _ in range(REPETITIONS if optimal else 1):
            tree = min(tree, timed(lambda problem=problem: relaxation(problem)))
            auto = min(auto, timed(lambda problem=problem: solve(problem, "auto", LIMIT)))
        proven += optimal
        within += optimal and auto <= 20 * tree
        short = solve(problem, "auto", SHORT_LIMIT).gap
        ratios.append(auto / tree)
        seconds.append(auto)
        gaps.append(float("inf") if short is None else short)
        if not optimal or auto > 20 * tree:
            print(f"{problem.name}: {result.status}, {auto / tree:.1f} times tree, {gaps[-1]:.2%} after 100 ms")
    figures = {
        "instances": len(seeds),
        "proven": proven,
        "within_20_times_tree": within,
        "times_tree_median_and_most": [round(x, 1) for x in (statistics.median(ratios), max(ratios))],
        "milliseconds_median_and_most": [round(1e3 * x, 1) for x in (statistics.median(seconds), max(seconds))],
        "gap_above_1_percent_after_100_ms": sum(gap > 0.01 for gap in gaps),
    }
    print(family, figures, flush=True)
    return figures


def timed(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
