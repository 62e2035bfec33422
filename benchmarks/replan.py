"""Replanning a queue: gaps, times and memory by size; against a monolithic CP-SAT model; against routing rules on
seconds of public traces; whether it herds, knows unlike instances, refuses under overload, and keeps its plans.

    python benchmarks/replan.py                 # all; exits with 1 where a claim fails
    python benchmarks/replan.py --only traces --data DIR

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

from benchmarks.queues import Case, common_prompt, generated, of_trace, pressure
from benchmarks.record import record
from benchmarks.replan_rules import compared, lexicographically_less, placement_of, worth_of
from iegopt.batch.api import replan
from iegopt.batch.cpsat import solve_cpsat
from iegopt.batch.rules.admitted import admit
from iegopt.batch.rules.unchecked import send_out
from iegopt.batch.schedule import evaluate
from iegopt.batch_plans import BatchPlan

DATA = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
SIZES = {
    "small": (50, 64, 2.0, 0.01),
    "medium": (1000, 256, 2.0, 0.01),
    "large": (10_000, 1024, 10.0, 0.02),
}
"""Requests, instances, seconds allowed, and the gap that is claimed at every priority."""
CPSAT_LIMIT = 60.0
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
CHURN = 0.1
"""The share of requests still waiting that may change place when a twentieth of the queue changes."""
CHANGES = ("a twentieth new", "back", "again")

Row = dict[str, Any]
Failures = list[str]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sections = {"sizes": sizes, "cpsat": against_cpsat, "traces": traces, "behaviour": behaviour, "churn": churn}
    parser.add_argument("--only", choices=sections, action="append", help="one section (may be given again)")
    parser.add_argument("--seeds", type=int, default=3, help="generated snapshots of each kind (default %(default)s)")
    parser.add_argument("--snapshots", type=int, default=8, help="seconds of each trace (default %(default)s)")
    parser.add_argument("--data", type=Path, default=DATA, help="where the traces lie")
    arguments = parser.parse_args()
    failures: Failures = []
    figures: dict[str, Any] = {}
    for name in arguments.only or sections:
        figures[name] = sections[name](arguments, failures)
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


def sizes(arguments: argparse.Namespace, failures: Failures) -> list[Row]:
    """Gaps, seconds and peak memory of every size, load and seed."""
    rows: list[Row] = []
    for size in SIZES:
        for load in LOADS:
            for seed in range(arguments.seeds):
                row = _apart(measured, size, load, seed)
                rows.append(row)
                print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
                _, _, limit, gap = SIZES[size]
                title = f"{row['snapshot']}:"
                if row["gap"] > gap:
                    failures.append(f"{title} gap {row['gap']:.2%}, claimed {gap:.0%}")
                if row["seconds"] > LATE * limit:
                    failures.append(f"{title} {row['seconds']} s, allowed {limit} s")
                if size == "large" and row["peak_bytes"] > MOST_MEMORY:
                    failures.append(f"{title} peak memory {row['peak_bytes'] / 1e9:.2f} GB")
    each = {size: np.median([r["ms_a_request"] for r in rows if r["size"] == size]) for size in SIZES}
    if not each["small"] >= each["medium"] >= each["large"]:
        failures.append(f"milliseconds a request grow with the queue: {each}")
    return rows


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


def against_cpsat(arguments: argparse.Namespace, failures: Failures) -> list[Row]:
    """Fifty requests on 64 instances: no worse than the monolithic model has after a minute, in a fiftieth of it.

    It is helped: it starts from the plan of a rule, and nothing that runs may move, which makes it a tenth as large.
    """
    rows = []
    for load in LOADS:
        for seed in range(arguments.seeds):
            row = _apart(beside_cpsat, load, seed)
            rows.append(row)
            print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
            if row["worse"]:
                failures.append(f"{row['snapshot']}: {row['ours']}, CP-SAT {row['cpsat']}")
            if row["times_as_fast"] < 50:
                failures.append(f"{row['snapshot']}: {row['times_as_fast']} times as fast as CP-SAT, claimed 50")
    return rows


def beside_cpsat(load: float, seed: int) -> Row:
    requests, instances, limit, _ = SIZES["small"]
    case = generated(requests, instances, load, seed)
    case = replace(case, policy=case.policy.model_copy(update={"migration": False}))
    begun = time.perf_counter()
    plan = replan(case.snapshot, case.cluster, case.policy, deadline_ms=min(1000 * limit, 1200.0))
    seconds = time.perf_counter() - begun
    model = case.model()
    theirs = solve_cpsat(model, CPSAT_LIMIT, hint=admit(model, "first-token"))
    return {
        "snapshot": case.name, "ours": worth_of(plan), "cpsat": theirs.objective.tolist(), "gap": worst_gap(plan),
        "seconds": round(seconds, 3), "cpsat_seconds": round(theirs.seconds, 1), "cpsat_proven": theirs.proven,
        "times_as_fast": round(CPSAT_LIMIT / seconds, 1),
        "worse": lexicographically_less(worth_of(plan), theirs.objective.tolist()),
    }  # fmt: skip


def traces(arguments: argparse.Namespace, failures: Failures) -> dict[str, Any]:
    """Overloaded seconds of public traces: ours beside every rule."""
    found: dict[str, Any] = {}
    for name, (file, speed, end) in TRACES.items():
        path = arguments.data / file
        if not path.exists():
            print(f"traces: {path.name} is not there, {name} is left out")
            found[name] = f"left out: {file} is not there"
            continue
        rows = []
        for case in overloaded(path, speed, end, arguments.snapshots):
            row = compared(case, TRACE_DEADLINE)
            rows.append(row)
            print(" ".join(f"{key} {value}" for key, value in row.items() if key != "rules"), flush=True)
            if not row["at_least_the_best"]:
                failures.append(f"{row['snapshot']}: {row['ours']}, {row['best_rule']} {row['best']}")
        found[name] = rows
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


def behaviour(arguments: argparse.Namespace, failures: Failures) -> Row:
    """One common prompt, no reuse, unlike instances, overload."""
    row: Row = {}
    case = common_prompt(64, 16)
    model = case.model()
    ours = placement_of(model, replan(case.snapshot, case.cluster, case.policy, deadline_ms=2000))
    row["common prompt, most on one of 16"] = int(np.bincount(ours.prefill[ours.prefill >= 0], minlength=16).max())
    row["the same by cache-aware"] = int(np.bincount(send_out(model, "cache-aware").prefill, minlength=16).max())
    if row["common prompt, most on one of 16"] > 8:
        failures.append(f"herds: {row['common prompt, most on one of 16']} of 64 on one of 16 instances")
    for title, case in {
        "no reuse": generated(200, 32, 1.0, 0, shared=0.0, fleet=("H100",)),
        "unlike instances": generated(200, 32, 1.2, 0),
        "overload": generated(400, 32, 3.0, 0),
    }.items():
        seen = compared(case, 2000)
        row[title] = {key: seen[key] for key in ("ours", "best_rule", "best", "total_over_best", "gaps")}
        row[title]["least-loaded, as it is"] = seen["rules"]["least-loaded, as it is"]
        if not seen["at_least_the_best"]:
            failures.append(f"{title}: {seen['ours']}, {seen['best_rule']} {seen['best']}")
    model = case.model()
    kept = evaluate(model, placed := send_out(model, "least-loaded")).kept
    row["overload, in time by least-loaded"] = f"{int(kept.sum())} of {int((placed.prefill >= 0).sum())} placed"
    for key, value in row.items():
        print(f"{key}: {value}", flush=True)
    return row


def churn(arguments: argparse.Namespace, failures: Failures) -> list[Row]:
    """Places that change between plans: nothing new; a twentieth of the queue new; load that swings to and fro."""
    rows = []
    for seed in range(arguments.seeds):
        case = generated(400, 64, 1.2, seed)
        first = _planned(case)
        same = _planned(case, first)
        changed = _changed(case, seed)
        small = _planned(changed, first)
        back = _planned(case, small)
        again = _planned(changed, back)
        row = {
            "snapshot": case.name, "nothing new": moved(first, same), "a twentieth new": moved(first, small),
            "back": moved(small, back), "again": moved(back, again),
        }  # fmt: skip
        rows.append(row)
        print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        if row["nothing new"]:
            failures.append(f"{case.name}: {row['nothing new']:.2%} change place with nothing new")
        for when in CHANGES:
            if row[when] > CHURN:
                failures.append(f"{case.name}, {when}: {row[when]:.1%} change place")
    return rows


def _planned(case: Case, previous: BatchPlan | None = None) -> BatchPlan:
    return replan(case.snapshot, case.cluster, case.policy, deadline_ms=3000, previous=previous)


def _changed(case: Case, seed: int) -> Case:
    """The case with a twentieth of its queue in another's place, under new names."""
    rng = np.random.default_rng(seed)
    queue = list(case.snapshot.queue)
    for n in rng.choice(len(queue), len(queue) // 20, replace=False).tolist():
        other = queue[int(rng.integers(0, len(queue)))]
        queue[n] = other.model_copy(update={"id": f"new{n}"})
    return replace(case, snapshot=case.snapshot.model_copy(update={"queue": tuple(queue)}))


def moved(before: BatchPlan, after: BatchPlan) -> float:
    """Share of the requests that the first plan placed and that wait still which the second does not have there."""
    was = {d.id: (d.prefill, d.decode) for d in before.queue if d.prefill is not None}
    now = {d.id: (d.prefill, d.decode) for d in after.queue}
    still = [name for name in was if name in now]
    return round(sum(was[name] != now[name] for name in still) / max(1, len(still)), 4)


def _apart(work: Callable[..., Row], *arguments: Any) -> Row:
    """The result of a call in a fresh process."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(work, *arguments).result()


if __name__ == "__main__":
    sys.exit(main())
