"""How much the topology tree saves: ``tree`` against the same dynamic programme over dense tables.

    python benchmarks/tree.py

A chain of 20 stages on 1,024 sites, memory slack, solved to optimality with its placement in both ways, taking turns
in one process:

- ``tree`` is the whole solver on a problem as compiled: allowed options, messages, backtracking, and the check of
  every constraint;
- ``dense`` is the recursion of Viterbi over a sites × sites table per edge with its table of predecessors (argmin);
  tables and allowed options are made outside the timer.

Beside them, without a threshold: ``messages``, the solver without that check and with the allowed options given, as
``dense`` has them; and ``value``, dense tables with min in place of argmin and the placement found by looking again at
one row per edge, as the messages do, in four ways of which the fastest counts (either layout of the tables, a
temporary per edge or one that is kept).

Then ``tree`` alone on more and more sites, and the slope of log time over log sites from 1,024 to 10,000. The
topology is kept between runs, as a planner keeps it. Prints a table, writes ``benchmarks/results/tree.json``, and
exits 1 if the optima differ, dense / tree is below 50, or the slope is above 1.15.
"""

from __future__ import annotations

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.exact.tree import TreeSolver
from iegopt.solvers.result import Params

Ints = npt.NDArray[np.int64]

STAGES, SITES = 20, 1024
SIZES = (256, 512, 1024, 2048, 4096, 10_000)
LEAST_RATIO, MOST_SLOPE = 50.0, 1.15
EXCLUDED = 1 << 61


def main() -> int:
    ratio = compare(runs=15)
    sizes = scale(runs=15)
    large = {sites: ms for sites, ms in sizes.items() if sites >= SITES}
    slope = float(np.polyfit(np.log(list(large)), np.log(list(large.values())), 1)[0])
    ratio_seen = ratio["dense_ms"] / ratio["tree_ms"]
    ratio_value = ratio["value_ms"] / ratio["messages_ms"]
    print(f"\nchain {STAGES} x {SITES}, medians of runs in turn")
    for name, ms in ratio.items():
        print(f"  {name:18s} {ms:9.3f} ms")
    print(f"  dense / tree       {ratio_seen:9.1f}      at least {LEAST_RATIO:g}")
    print(f"  value / messages   {ratio_value:9.1f}")
    print(f"\nchain {STAGES} stages, tree alone")
    for sites, ms in sizes.items():
        print(f"  {sites:6d} sites {ms:9.3f} ms")
    print(f"  slope {slope:.3f} from {SITES:,} sites on, at most {MOST_SLOPE:g}")
    record(
        "tree",
        {
            "stages": STAGES,
            "sites": SITES,
            **ratio,
            "dense_over_tree": ratio_seen,
            "value_over_messages": ratio_value,
            "tree_ms_by_sites": sizes,
            "slope": slope,
        },
    )
    return int(ratio_seen < LEAST_RATIO or slope > MOST_SLOPE)


def compare(runs: int) -> dict[str, float]:
    """Medians in ms of all ways on one problem; exits where their optima differ."""
    problem = generate("chain", STAGES, SITES, "slack", 0)
    allowed = problem.allowed
    start = time.perf_counter()
    tables = dense_tables(problem)
    tables_ms = (time.perf_counter() - start) * 1e3
    transposed = [np.ascontiguousarray(table.T) for table in tables]
    work = np.empty_like(tables[0])
    ways: dict[str, Callable[[Problem], int | None]] = {
        "messages": lambda p: relaxation(p).bound,
        "tree": lambda p: TreeSolver().solve(p, Params(), None).objective,
        "dense": lambda p: viterbi(p, tables),
        "value rows": lambda p: min_plus(p, tables, 0, None),
        "value rows kept": lambda p: min_plus(p, tables, 0, work),
        "value columns": lambda p: min_plus(p, transposed, 1, None),
        "value columns kept": lambda p: min_plus(p, transposed, 1, work),
    }
    seen: dict[str, list[float]] = {way: [] for way in ways}
    optima: set[int | None] = set()
    for _ in range(runs):
        for way, run in ways.items():
            run(problem)  # the way before has emptied the caches
            fresh = renew(problem)
            if way != "tree":
                vars(fresh)["allowed"] = allowed
            start = time.perf_counter()
            optima.add(run(fresh))
            seen[way].append((time.perf_counter() - start) * 1e3)
    if len(optima) != 1:
        raise SystemExit(f"different optima: {optima}")
    medians = {f"{way.replace(' ', '_')}_ms": statistics.median(ms) for way, ms in seen.items()}
    fastest = min(ms for way, ms in medians.items() if way.startswith("value"))
    return {**medians, "value_ms": fastest, "tables_ms": tables_ms}


def scale(runs: int) -> dict[int, float]:
    """Median ms of ``tree`` by the number of sites."""
    solver = TreeSolver()
    problems = {sites: generate("chain", STAGES, sites, "slack", 0) for sites in SIZES}
    seen: dict[int, list[float]] = {sites: [] for sites in SIZES}
    for _ in range(runs):
        for sites, problem in problems.items():
            fresh = renew(problem)
            start = time.perf_counter()
            solver.solve(fresh, Params(), None)
            seen[sites].append((time.perf_counter() - start) * 1e3)
    return {sites: statistics.median(ms) for sites, ms in seen.items()}


def renew(problem: Problem) -> Problem:
    """The same problem with nothing computed yet but what belongs to its topology."""
    return dataclasses.replace(problem, options=dataclasses.replace(problem.options))


def dense_tables(problem: Problem) -> list[Ints]:
    """Per edge the (source options, target options) ticks."""
    ptr, edges = problem.options.ptr, problem.edges
    tables = []
    for e in range(problem.E):
        source = np.arange(ptr[edges.source[e]], ptr[edges.source[e] + 1])
        target = np.arange(ptr[edges.target[e]], ptr[edges.target[e] + 1])
        tables.append(edge_ticks(problem, e, source[:, None], target[None, :])[1])
    return tables


def min_plus(problem: Problem, tables: list[Ints], axis: int, work: Ints | None) -> int:
    """Optimum of a chain, its placement found too; sources along ``axis`` of the tables, sums in ``work``."""
    stages = stage_costs(problem)
    best = [stages[0]]
    for table, cost in zip(tables, stages[1:], strict=True):
        reached = best[-1] if axis else best[-1][:, None]
        best.append(np.minimum(np.add(table, reached, out=work).min(axis=axis) + cost, EXCLUDED))
    at = int(best[-1].argmin())
    value = int(best[-1][at])
    for table, reached in zip(reversed(tables), reversed(best[:-1]), strict=True):
        at = int((reached + (table[at] if axis else table[:, at])).argmin())
    return value


def viterbi(problem: Problem, tables: list[Ints]) -> int:
    """The same by the recursion of Viterbi with its table of predecessors."""
    stages = stage_costs(problem)
    best, columns = stages[0], np.arange(len(stages[0]))
    came_from = []
    for table, cost in zip(tables, stages[1:], strict=True):
        total = table + best[:, None]
        came_from.append(total.argmin(axis=0))
        best = np.minimum(total[came_from[-1], columns] + cost, EXCLUDED)
    at = int(best.argmin())
    value = int(best[at])
    for pointers in reversed(came_from):
        at = int(pointers[at])
    return value


def stage_costs(problem: Problem) -> list[Ints]:
    """Per stage, in order, the costs of its options, ``EXCLUDED`` where not allowed."""
    costs = np.where(problem.allowed, problem.options.cost, EXCLUDED)
    return [costs[problem.options.of(v)] for v in problem.order.tolist()]


if __name__ == "__main__":
    sys.exit(main())
