"""Warm starts: what the prices of the last solve save the next one on the same cluster.

    python benchmarks/warm.py [--requests 20]

A sequence of requests to one cluster: problems of a family whose costs, times and free memory change by some per cent
from one to the next. Each is solved to the end by ``prices`` twice, without prices to start from and with those of the
problem before it, in turn; plans of construction are left out, so that the root's bound is what counts. Medians over
the sequence of seconds, of nodes, and of the gap that the first prices leave: a start saves the first steps, which
matters where little time is given, and hardly anything of a proof by branch and bound.
"""

from __future__ import annotations

import argparse
import dataclasses
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.limits import money_alone, with_budget, with_deadline
from benchmarks.record import record
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.bounding import PricedSearch
from iegopt.solvers.multipliers import Multipliers
from iegopt.solvers.result import Params

CLUSTERS = {
    "chain-20x64-tight": lambda: generate("chain", 20, 64, "tight", 3),
    "agent-20x64-tight": lambda: generate("agent", 20, 64, "tight", 1),
    "chain-20x64-deadline": lambda: with_deadline(money_alone(generate("chain", 20, 64, "slack", 1))),
    "chain-20x64-budget": lambda: with_budget(money_alone(generate("chain", 20, 64, "slack", 1))),
}
CHANGE = 0.03


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--requests", type=int, default=20)
    parser.add_argument("--only", default="", help="clusters whose name contains this")
    options = parser.parse_args()
    rows = {}
    for name, make in CLUSTERS.items():
        if options.only in name:
            rows[name] = sequence(make(), options.requests)
            print(name, rows[name], flush=True)
    record("warm", {"requests": options.requests, "change": CHANGE, "rows": rows})


def sequence(problem: Problem, requests: int) -> dict[str, Any]:
    """Medians over a sequence of changed problems, cold and warm, and the share that warm starts need of both."""
    known: Multipliers | None = None
    seconds: dict[str, list[float]] = {"cold": [], "warm": []}
    nodes: dict[str, list[int]] = {"cold": [], "warm": []}
    gaps: dict[str, list[float]] = {"cold": [], "warm": []}
    for number in range(requests + 1):
        each = changed(problem, number)
        found: dict[str, Any] = {}
        order = ("cold", "warm") if number % 2 else ("warm", "cold")
        for way in order:
            start = known if way == "warm" else None
            begun = time.perf_counter()
            found[way] = solve(each, "prices", Params(time_limit=60.0, multipliers=start))
            spent = time.perf_counter() - begun
            if number == 0:
                continue
            seconds[way].append(spent)
            nodes[way].append(found[way].stats.get("nodes", 0))
            search = PricedSearch(each, each.allowed, None, Clock(60.0), start)
            search.bound_root(1)
            value = found[way].objective
            gaps[way].append((value - (search.bound or 0)) / value)
        assert found["cold"].objective == found["warm"].objective, "a start changes no optimum"
        known = found["warm"].multipliers
    return {
        **{f"{way}_seconds": round(statistics.median(values), 4) for way, values in seconds.items()},
        **{f"{way}_nodes": statistics.median(values) for way, values in nodes.items()},
        **{f"{way}_first_gap": round(statistics.median(values), 5) for way, values in gaps.items()},
        "seconds_ratio": round(
            statistics.median(w / c for w, c in zip(seconds["warm"], seconds["cold"], strict=True)), 3
        ),
    }


def changed(problem: Problem, seed: int) -> Problem:
    """The problem with other costs, times and free memory, each by a few per cent."""
    rng = np.random.default_rng(seed)
    options = problem.options
    factor = 1 + CHANGE * rng.standard_normal(len(options.cost))
    return dataclasses.replace(
        problem,
        options=dataclasses.replace(
            options,
            cost=np.rint(options.cost * factor).astype(np.int64),
            time=np.rint(options.time * factor).astype(np.int64),
        ),
        capacity=np.rint(problem.capacity * (1 + CHANGE * rng.random(len(problem.capacity)))).astype(np.int64),
        sla=np.full_like(problem.sla, np.iinfo(np.int64).max),
    )


if __name__ == "__main__":
    main()
