"""How much the topology tree saves: ``tree`` against the same dynamic programme over dense tables.

    python benchmarks/tree.py

A chain of 20 stages on 1,024 sites, memory slack, solved to optimality with its placement in both ways, taking turns
in one process:

- ``tree`` is the whole solver on a problem as compiled: allowed options, messages, backtracking, and the check of
  every constraint; by numpy, and (``compiled``) by the kernels of the extra ``fast``, compiled and loaded before;
- ``dense`` is the recursion of Viterbi over a sites × sites table per edge with its table of predecessors (argmin);
  tables and allowed options are made outside the timer.

Beside them, without a threshold: ``messages``, the solver without that check and with the allowed options given, as
``dense`` has them; and ``value``, dense tables with min in place of argmin and the placement found by looking again at
one row per edge, as the messages do, in four ways of which the fastest counts (either layout of the tables, a
temporary per edge or one that is kept). That is the fairest rival: the argmin of ``dense`` runs down columns,
costs many times the sum before it, and differs threefold with the state of the machine's memory.

Then ``tree`` alone on more and more sites, 50 stages, and the slope of log time over log sites from 1,024 to 10,000.
The topology is kept between runs, as a planner keeps it. Prints a table, writes ``benchmarks/results/tree.json``, and
exits 1 if the optima differ, dense / tree is below 200 compiled or 100 by numpy, or a slope is above 1.15.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import numpy.typing as npt

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.exact import compiled
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.exact.tree import TreeSolver
from iegopt.solvers.result import Params

Ints = npt.NDArray[np.int64]

STAGES, SITES = 20, 1024
SIZES = (256, 512, 1024, 2048, 4096, 10_000)
LONG = 50
LEAST_RATIO, MOST_SLOPE = {"tree": 100.0, "tree_compiled": 200.0}, 1.15
EXCLUDED = 1 << 61


def main() -> int:
    warm = compiled.warmup()
    print(f"kernels: {len(warm.compiled)} compiled, {len(warm.loaded)} from the cache, in {warm.seconds:.1f} s")
    figures = compare(runs=15)
    sizes = scale(runs=15)
    print(f"\nchain {STAGES} x {SITES}, fastest of runs in turn")
    for name, ms in figures.items():
        print(f"  {name:18s} {ms:9.3f} ms")
    ratios = {way: figures["dense_ms"] / figures[f"{way}_ms"] for way in LEAST_RATIO}
    for way, least in LEAST_RATIO.items():
        print(f"  dense / {way:13s} {ratios[way]:6.1f}      at least {least:g}")
    value = {way: figures["value_ms"] / figures[f"{way}_ms"] for way in ("messages", "messages_compiled")}
    for way, ratio in value.items():
        print(f"  value / {way:17s} {ratio:6.1f}")
    print(f"\nchain {LONG} stages, tree alone")
    slopes = {}
    for way, seen in sizes.items():
        large = {sites: ms for sites, ms in seen.items() if sites >= SITES}
        slopes[way] = float(np.polyfit(np.log(list(large)), np.log(list(large.values())), 1)[0])
        for sites, ms in seen.items():
            print(f"  {way:14s} {sites:6d} sites {ms:9.3f} ms")
        print(f"  {way:14s} slope {slopes[way]:.3f} from {SITES:,} sites on, at most {MOST_SLOPE:g}")
    record(
        "tree",
        {
            "stages": STAGES,
            "sites": SITES,
            **figures,
            **{f"dense_over_{way}": ratio for way, ratio in ratios.items()},
            **{f"value_over_{way}": ratio for way, ratio in value.items()},
            "long_stages": LONG,
            **{f"{way}_ms_by_sites": seen for way, seen in sizes.items()},
            **{f"{way}_slope": slope for way, slope in slopes.items()},
            "warmup_seconds": {"seconds": warm.seconds, "compiled": warm.compiled, "loaded": warm.loaded},
        },
    )
    slow = any(ratios[way] < least for way, least in LEAST_RATIO.items())
    return int(slow or max(slopes.values()) > MOST_SLOPE)


@contextmanager
def core(way: str) -> Iterator[None]:
    """By numpy, unless the way is a compiled one."""
    ready = compiled._ready
    try:
        compiled._ready = ready if "compiled" in way else None
        yield
    finally:
        compiled._ready = ready


def compare(runs: int) -> dict[str, float]:
    """Fastest ms of all ways on one problem; exits where their optima differ."""
    problem = generate("chain", STAGES, SITES, "slack", 0)
    allowed = problem.allowed
    start = time.perf_counter()
    tables = dense_tables(problem)
    tables_ms = (time.perf_counter() - start) * 1e3
    transposed = [np.ascontiguousarray(table.T) for table in tables]
    work = np.empty_like(tables[0])
    ways: dict[str, Callable[[Problem], int | None]] = {
        "messages": lambda p: relaxation(p).bound,
        "messages compiled": lambda p: relaxation(p).bound,
        "tree": lambda p: TreeSolver().solve(p, Params(), None).objective,
        "tree compiled": lambda p: TreeSolver().solve(p, Params(), None).objective,
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
            with core(way):
                run(problem)  # the way before has emptied the caches
                fresh = renew(problem)
                if "tree" not in way:
                    vars(fresh)["allowed"] = allowed
                start = time.perf_counter()
                optima.add(run(fresh))
                seen[way].append((time.perf_counter() - start) * 1e3)
    if len(optima) != 1:
        raise SystemExit(f"different optima: {optima}")
    fastest = {f"{way.replace(' ', '_')}_ms": min(ms) for way, ms in seen.items()}
    value = min(ms for way, ms in fastest.items() if way.startswith("value"))
    return {**fastest, "value_ms": value, "tables_ms": tables_ms}


def scale(runs: int) -> dict[str, dict[int, float]]:
    """Fastest ms of ``tree`` by core and number of sites."""
    solver = TreeSolver()
    problems = {sites: generate("chain", LONG, sites, "slack", 0) for sites in SIZES}
    ways = ("tree", "tree compiled")
    seen: dict[tuple[str, int], list[float]] = {(way, sites): [] for way in ways for sites in SIZES}
    for _ in range(runs):
        for sites, problem in problems.items():
            for way in ways:
                with core(way):
                    fresh = renew(problem)
                    start = time.perf_counter()
                    solver.solve(fresh, Params(), None)
                    seen[way, sites].append((time.perf_counter() - start) * 1e3)
    return {way.replace(" ", "_"): {sites: min(seen[way, sites]) for sites in SIZES} for way in ways}


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
