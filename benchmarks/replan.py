"""Replanning a queue: gaps, times and memory by size; against a monolithic CP-SAT model; against routing rules on
seconds of public traces; whether it herds, knows unlike instances, refuses under overload, and keeps its plans.

    python benchmarks/replan.py                 # all; exits with 1 where a claim fails
    python benchmarks/replan.py --only traces --data DIR
    python benchmarks/replan.py --rows rows.json      # may be cut, and goes on there with what is missing

Traces are read from DIR (``mooncake``, ``azure_llm_2023``; by default ../shared/data); without them the section is
left out and says so. Each size runs in a process of its own, whose peak memory is the one reported.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.pieces import Rows
from benchmarks.queues import Case, generated, of_trace, pressure
from benchmarks.record import record
from benchmarks.replan_behaviour import CHANGES, behaviour, churn
from benchmarks.replan_rules import compared, lexicographically_less, worth_of
from iegopt.batch.api import replan
from iegopt.batch.cpsat import solve_cpsat
from iegopt.batch.rules.admitted import admit
from iegopt.batch_plans import BatchPlan

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
SIZES = {
    "small": (50, 64, 2.0, 0.01),
    "medium": (1000, 256, 2.0, 0.01),
    "large": (10_000, 1024, 10.0, 0.02),
}
"""Requests, instances, seconds allowed, and the gap that is claimed at every priority."""
CPSAT_LIMIT, FASTER = 60.0, 50
"""Seconds, and how many times as fast ours is claimed to be."""
LOADS = (0.25, 0.5, 1.0)
"""Seconds of prefills over what the limits leave for them (``queues.pressure``)."""
MOST_MEMORY = 2 * 10**9
TRACES = {
    "mooncake": ("mooncake/conversation_trace.jsonl", 4.0, 2400.0),
    "azure": ("azure_llm_2023/AzureLLMInferenceTrace_conv.csv", 30.0, 3500.0),
}
"""File, how many times as fast it is replayed, and how many of its own seconds are used."""
TRACE_DEVICES, TRACE_DEADLINE = 4, 2000.0
"""Devices of each of five kinds, and milliseconds."""
OVERLOADED = 1.0
"""Pressure from which a second of a trace counts: more waits than can be in time."""
LATE = 1.1
"""A plan may take so many times its deadline."""

Row = dict[str, Any]
Failures = list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = {"sizes": sizes, "cpsat": against_cpsat, "traces": traces, "behaviour": behaviour, "churn": churn}
    parser.add_argument("--only", choices=sections, action="append", help="one section (may be given again)")
    parser.add_argument("--seeds", type=int, default=3, help="generated snapshots of each kind (default %(default)s)")
    parser.add_argument("--snapshots", type=int, default=8, help="seconds of each trace (default %(default)s)")
    parser.add_argument("--data", type=Path, default=DATA, help="where the traces lie")
    parser.add_argument("--rows", type=Path, help="rows of an earlier piece, not measured again, and added to")
    arguments = parser.parse_args()
    failures: Failures = []
    figures: dict[str, Any] = {}
    rows = Rows(arguments.rows)
    for name in arguments.only or sections:
        figures[name] = sections[name](arguments, rows, failures)
    for failure in failures:
        print(f"FAILED {failure}")
    if arguments.only is None:
        record("replan", {**_told(figures), **figures, "failures": failures})
    return 1 if failures else 0


def _told(figures: dict[str, Any]) -> Row:
    """The figures in short, for the table of the results."""
    told: Row = {}
    for size in SIZES:
        rows = [row for row in figures["sizes"] if row["size"] == size]
        told[f"{size}_worst_gap"] = max(row["gap"] for row in rows)
        told[f"{size}_median_total_gap"] = float(np.median([row["total_gap"] for row in rows]))
        told[f"{size}_most_seconds"] = max(row["seconds"] for row in rows)
    told["peak_megabytes"] = round(max(row["peak_bytes"] for row in figures["sizes"]) / 1e6)
    told["no_worse_than_cpsat"] = f"{sum(not row['worse'] for row in figures['cpsat'])} of {len(figures['cpsat'])}"
    for name, rows in figures["traces"].items():
        if isinstance(rows, str):
            told[name] = rows
            continue
        over = [row["total_over_best"] for row in rows]
        told[f"{name}_at_least_the_best_rule"] = f"{sum(row['at_least_the_best'] for row in rows)} of {len(rows)}"
        told[f"{name}_utility_over_the_best_rule"] = f"{min(over):.3f} to {max(over):.3f} times"
    told["most_churn"] = max(max(row[when] for when in CHANGES) for row in figures["churn"])
    return told


def sizes(arguments: argparse.Namespace, rows: Rows, failures: Failures) -> list[Row]:
    """Gaps, seconds and peak memory of every size, load and seed."""
    found: list[Row] = []
    for size in SIZES:
        for load in LOADS:
            for seed in range(arguments.seeds):
                row = rows.get(f"{size}, load {load:g}, seed {seed}", _apart, measured, size, load, seed)
                found.append(row)
                _, _, limit, gap = SIZES[size]
                title = f"{row['snapshot']}:"
                if row["gap"] > gap:
                    failures.append(f"{title} gap {row['gap']:.2%}, claimed {gap:.0%}")
                if row["seconds"] > LATE * limit:
                    failures.append(f"{title} {row['seconds']} s, allowed {limit} s")
                if size == "large" and row["peak_bytes"] > MOST_MEMORY:
                    failures.append(f"{title} peak memory {row['peak_bytes'] / 1e9:.2f} GB")
    each = {size: np.median([r["ms_a_request"] for r in found if r["size"] == size]) for size in SIZES}
    if not each["small"] >= each["medium"] >= each["large"]:
        failures.append(f"milliseconds a request grow with the queue: {each}")
    return found


def measured(size: str, load: float, seed: int) -> Row:
    requests, instances, limit, _ = SIZES[size]
    case = generated(requests, instances, load, seed)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun, busy = time.perf_counter(), time.process_time()
    plan = replan(case.snapshot, case.cluster, case.policy, deadline_ms=1000 * limit)
    seconds, busy = time.perf_counter() - begun, time.process_time() - busy
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    levels = [{"priority": v.priority, "objective": v.objective, "bound": v.bound, "gap": v.gap} for v in plan.levels]
    return {
        "size": size, "snapshot": case.name, "seconds": round(seconds, 3), "processor_seconds": round(busy, 3),
        "ms_a_request": round(1000 * seconds / requests, 3), "gap": worst_gap(plan), "total_gap": total_gap(plan),
        "pressure": round(pressure(case.model()), 2), "placed": sum(d.prefill is not None for d in plan.queue),
        "peak_bytes": 1024 * peak, "peak_bytes_before": 1024 * before, "levels": levels,
    }  # fmt: skip


def worst_gap(plan: BatchPlan) -> float:
    """The largest gap of a priority; ∞ where one has no bound."""
    return max((_gap(v.objective, v.bound) for v in plan.levels), default=0.0)


def total_gap(plan: BatchPlan) -> float:
    """Of the sums over all priorities."""
    bounds = [v.bound for v in plan.levels]
    known = [np.inf if bound is None else bound for bound in bounds]
    return _gap(sum(v.objective for v in plan.levels), sum(known))


def _gap(have: float, bound: float | None) -> float:
    if bound is None or bound == np.inf:
        return float("inf")
    return round(max(0.0, bound - have) / max(1e-9, abs(bound)), 6) if bound > have + 1e-9 else 0.0


def against_cpsat(arguments: argparse.Namespace, rows: Rows, failures: Failures) -> list[Row]:
    """Fifty requests on 64 instances: no worse than the monolithic model has after a minute, in a fiftieth of it.

    It is helped: it starts from the plan of a rule, and nothing that runs may move, which makes it a tenth as large.
    """
    found = []
    for load in LOADS:
        for seed in range(arguments.seeds):
            title = f"load {load:g}, seed {seed}"
            theirs = rows.get(f"CP-SAT, {title}", _apart, by_cpsat, load, seed)
            row = beside(theirs, rows.get(f"beside CP-SAT, {title}", _apart, by_us, load, seed))
            found.append(row)
            if row["worse"]:
                failures.append(f"{row['snapshot']}: {row['ours']}, CP-SAT {row['cpsat']}")
            if row["times_as_fast"] < FASTER:
                failures.append(f"{row['snapshot']}: {row['times_as_fast']} times as fast as CP-SAT, claimed {FASTER}")
    return found


def _small(load: float, seed: int) -> Case:
    requests, instances, _, _ = SIZES["small"]
    case = generated(requests, instances, load, seed)
    return replace(case, policy=case.policy.model_copy(update={"migration": False}))


def by_cpsat(load: float, seed: int) -> Row:
    model = _small(load, seed).model()
    found = solve_cpsat(model, CPSAT_LIMIT, hint=admit(model, "first-token"))
    return {"cpsat": found.objective.tolist(), "cpsat_seconds": round(found.seconds, 1), "cpsat_proven": found.proven}


def by_us(load: float, seed: int) -> Row:
    case = _small(load, seed)
    begun = time.perf_counter()
    plan = replan(case.snapshot, case.cluster, case.policy, deadline_ms=1000 * CPSAT_LIMIT / FASTER)
    seconds = time.perf_counter() - begun
    return {"snapshot": case.name, "ours": worth_of(plan), "gap": worst_gap(plan), "seconds": round(seconds, 3)}


def beside(theirs: Row, ours: Row) -> Row:
    """Both, and what follows."""
    return {
        **ours, **theirs, "times_as_fast": round(CPSAT_LIMIT / ours["seconds"], 1),
        "worse": lexicographically_less(ours["ours"], theirs["cpsat"]),
    }  # fmt: skip


def traces(arguments: argparse.Namespace, rows: Rows, failures: Failures) -> dict[str, Any]:
    """Overloaded seconds of public traces: ours beside every rule."""
    found: dict[str, Any] = {}
    for name, (file, speed, end) in TRACES.items():
        path = arguments.data / file
        if not path.exists():
            print(f"traces: {path.name} is not there, {name} is left out")
            found[name] = f"left out: {file} is not there"
            continue
        found[name] = []
        for case in overloaded(path, speed, end, arguments.snapshots):
            row = rows.get(f"{name}, {case.name}", compared, case, TRACE_DEADLINE)
            found[name].append(row)
            if not row["at_least_the_best"]:
                failures.append(f"{row['snapshot']}: {row['ours']}, {row['best_rule']} {row['best']}")
    return found


def overloaded(file: Path, speed: float, end: float, count: int) -> list[Case]:
    """Moments spread over a trace at which more waits than the instances can prefill in time."""
    moments = [end / speed * (n + 1) / (4 * count) for n in range(4 * count)]
    cases = [
        case
        for case in of_trace(file, moments, speed, TRACE_DEVICES, 0)
        if len(case.snapshot.queue) > 1 and pressure(case.model()) >= OVERLOADED
    ]
    return cases[:: max(1, len(cases) // count)][:count]


def _apart(work: Callable[..., Row], *arguments: Any) -> Row:
    """The result of a call in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *arguments).result()


if __name__ == "__main__":
    sys.exit(main())
