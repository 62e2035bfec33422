"""Our schedules against every list scheduler of anrg-saga: ``python benchmarks/makespan.py`` (``iegopt[peers]``).

On random instances of its own generators and on our families over related machines, the makespan alone. Every
heuristic runs by itself, timed without the statement of the problem and with its caches empty; ``auto`` then has as
long as the quickest that reached the best of their makespans (``alone``), as all of them together (``together``), and
longer. All plans go through the verifier, ours within their time. HEFT and CPOP are also met at their own time each.
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import iegopt
from benchmarks.record import record
from iegopt.bench.instances import BenchInstance, expand
from iegopt.bench.peers.saga import HEURISTICS, Saga
from iegopt.problem.arrays import Problem
from iegopt.solvers.api import solve
from iegopt.solvers.result import Params
from iegopt.spec.load import load_document
from iegopt.verify.assignment import check_assignment

SUITE = Path(__file__).parent / "suites" / "makespan.yaml"
SECONDS = 1e-9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=1.0, help="the longest limit of ours")
    parser.add_argument("--part", default="", help="only instances with this in their names")
    args = parser.parse_args()
    print(iegopt.warmup())
    instances = [i for i in expand(load_document(SUITE, "suite")[1], SUITE.parent) if args.part in i.name]
    rows = []
    for instance in instances:
        rows.append(dict(measured(instance, args.seconds)))
        print(told(rows[-1]), flush=True)
    figures = {family: summary([r for r in rows if r["family"] == family]) for family in families(rows)}
    figures["all"] = summary(rows)
    for family, row in figures.items():
        print(family, row)
    if not args.part:
        record(
            "makespan", {"limit": args.seconds, "heuristics": len(HEURISTICS), "summary": figures, "instances": rows}
        )


def measured(instance: BenchInstance, longest: float) -> Iterator[tuple[str, Any]]:
    """One instance: their makespans and ours, in seconds, and the seconds each took."""
    problem = instance.load()
    gc.collect()
    theirs = {name: peer for name in HEURISTICS if (peer := heuristic(problem, name)) is not None}
    name, (best, alone) = min(theirs.items(), key=lambda item: item[1])
    together = sum(seconds for _, seconds in theirs.values())
    yield from {
        "name": instance.name,
        "family": instance.family,
        "stages": problem.V,
        "sites": problem.topology.S,
    }.items()
    yield from {"best_of": name, "best": best, "alone_s": alone, "together_s": together}.items()
    for limit, seconds in {"alone": alone, "together": together, "long": longest}.items():
        yield f"ours_{limit}", ours(problem, seconds)
    for one in ("heft", "cpop"):
        yield one, (*theirs[one], *ours(problem, theirs[one][1]))


def told(row: dict[str, Any]) -> str:
    """A line on an instance."""
    ratios = ", ".join(
        f"{row[f'ours_{limit}'][0] / row['best']:.4f} {limit}" for limit in ("alone", "together", "long")
    )
    return f"{row['name']}: {row['best_of']} {row['best']:.3f} s in {1e3 * row['alone_s']:.1f} ms; ours {ratios}"


def heuristic(problem: Problem, name: str) -> tuple[float, float] | None:
    """Makespan and seconds of one of theirs; ``None`` where it leaves tasks out or fails (HBMCT, on some graphs)."""
    peer = Saga(HEURISTICS[name])
    network, graph = peer.stated(problem)
    forget(network, graph)
    began = time.perf_counter()
    try:
        found = peer.schedule(network, graph)
    except KeyError:
        return None
    seconds = time.perf_counter() - began
    plan = peer.in_ticks(problem, found)
    if plan is None:
        return None
    report = check_assignment(problem, plan[0].tolist(), plan[1].tolist())
    assert report.ok, f"{name} on {problem.name}: {report.violations[0]}"
    assert report.makespan is not None
    return report.makespan * SECONDS, seconds


def forget(*objects: Any) -> None:
    """Empty the caches of ranks, and fill those that every heuristic would have to fill first."""
    from saga.schedulers import cpop

    cached: list[Callable[..., Any]] = [cpop.upward_rank, cpop.cpop_ranks]
    for function in cached:
        function.cache_clear()  # type: ignore[attr-defined]
    for each in objects:
        hash(each)
        assert each.graph is not None


def ours(problem: Problem, limit: float) -> tuple[float, float]:
    """Makespan and seconds of ``auto``, verified, on a problem that it has never seen."""
    fresh = dataclasses.replace(problem)
    began = time.perf_counter()
    result = solve(fresh, "auto", Params(time_limit=limit))
    seconds = time.perf_counter() - began
    assert result.objective is not None, f"no plan of {problem.name}: {result.note}"
    return result.objective * SECONDS, seconds


def families(rows: list[dict[str, Any]]) -> list[str]:
    return list(dict.fromkeys(row["family"] for row in rows))


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Mean of ours/theirs, and on how many instances ours is worse, equal and better."""
    found: dict[str, Any] = {"instances": len(rows)}
    for limit in ("alone", "together", "long"):
        found[limit] = compared([(row[f"ours_{limit}"][0], row["best"]) for row in rows])
    for one in ("heft", "cpop"):
        found[one] = compared([(row[one][2], row[one][0]) for row in rows])
    return found


def compared(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    off = [mine / their - 1 for mine, their in pairs]
    return {
        "mean_ratio": round(1 + statistics.mean(off), 4),
        "worse": sum(x > 1e-7 for x in off),
        "equal": sum(abs(x) <= 1e-7 for x in off),
        "better": sum(x < -1e-7 for x in off),
        "worst_ratio": round(1 + max(off), 4),
    }


if __name__ == "__main__":
    main()
