"""What a short deadline leaves of a queue's utility, and whether it is kept; ``benchmarks/replan.py`` has the rest.

    python benchmarks/replan_short.py                           # all; benchmarks/results/replan_short.json
    python benchmarks/replan_short.py --print --size 4000x16    # one, told alone

Every queue is planned once without a deadline, then three times by each; the median counts. A share is of the utility
of all priorities together, and of the first alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.queues import Case, generated
from benchmarks.record import record
from iegopt.batch.api import replan
from iegopt.batch_plans import BatchPlan

SIZES = ((1000, 256), (4000, 16), (10_000, 1024))
LOAD = 0.5
DEADLINES = (0.1, 0.3, 1.0, 3.0)
AMPLE = 20.0
"""Seconds without a deadline."""
REPEATS = 3

Row = dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="record nothing")
    parser.add_argument("--size", help="one of them, as 1000x256")
    arguments = parser.parse_args()
    wanted = [size for size in SIZES if arguments.size in (None, "x".join(map(str, size)))]
    rows = [row for size in wanted for row in measured(*size)]
    if not arguments.print:
        told = {f"{row['queue']}_at_{row['deadline']:g}s": row["share"] for row in rows}
        most = max(row["seconds"] - row["deadline"] for row in rows)
        record("replan_short", {**told, "most_seconds_late": round(max(0.0, most), 3), "rows": rows})
    return 0


def measured(requests: int, instances: int) -> list[Row]:
    """A row for each deadline."""
    case, found = generated(requests, instances, LOAD, 0), []
    full = _plan(case, AMPLE)[0]
    for deadline in DEADLINES:
        tries = [_plan(case, deadline) for _ in range(REPEATS)]
        row = {
            "queue": f"{requests}x{instances}", "deadline": deadline,
            "seconds": round(median(seconds for _, seconds in tries), 3),
            "share": round(median(_utility(plan) for plan, _ in tries) / _utility(full), 4),
            "share_of_the_first": round(median(_first(plan) for plan, _ in tries) / _first(full), 4),
            "placed": int(median(sum(d.status == "placed" for d in plan.queue) for plan, _ in tries)),
            "placed_in_full": sum(d.status == "placed" for d in full.queue),
        }  # fmt: skip
        print(" ".join(f"{name} {value}" for name, value in row.items()), flush=True)
        found.append(row)
    return found


def _plan(case: Case, seconds: float) -> tuple[BatchPlan, float]:
    begun = time.perf_counter()
    plan = replan(case.snapshot, case.cluster, case.policy, deadline_ms=1000 * seconds)
    return plan, time.perf_counter() - begun


def _utility(plan: BatchPlan) -> float:
    return sum(level.objective for level in plan.levels)


def _first(plan: BatchPlan) -> float:
    return plan.levels[0].objective


if __name__ == "__main__":
    raise SystemExit(main())
