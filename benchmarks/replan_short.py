"""What a short deadline leaves of a queue's utility, and whether it is kept; ``benchmarks/replan.py`` has the rest.

    python benchmarks/replan_short.py                        # all; benchmarks/results/replan_short.json
    python benchmarks/replan_short.py --rows rows.json       # may be cut, and goes on there with what is missing
    python benchmarks/replan_short.py --size 4000x16         # one, told alone

Every queue is planned once without a deadline, then three times by each; the median counts. A share is of the utility
of all priorities together, and of the first alone.
"""

from __future__ import annotations

import argparse
import sys
import time
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.pieces import Rows
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
    parser.add_argument("--size", choices=["x".join(map(str, size)) for size in SIZES], help="one alone, not recorded")
    parser.add_argument("--rows", type=Path, help="rows of an earlier piece, not measured again, and added to")
    arguments = parser.parse_args()
    rows, found = Rows(arguments.rows), []
    for requests, instances in SIZES:
        size = f"{requests}x{instances}"
        if arguments.size not in (None, size):
            continue
        full = rows.get(f"{size}, ample", ample, requests, instances)
        found += [
            rows.get(f"{size}, {deadline:g} s", measured, requests, instances, deadline, full) for deadline in DEADLINES
        ]
    if arguments.size is None:
        told = {f"{row['queue']}_at_{row['deadline']:g}s": row["share"] for row in found}
        late = max((row["seconds"] - row["deadline"] for row in found if row["deadline"] >= 1.0), default=0.0)
        record("replan_short", {**told, "most_late_of_1_s_and_3_s": round(max(0.0, late), 3), "rows": found})
    return 0


@lru_cache(maxsize=1)
def case_of(requests: int, instances: int) -> Case:
    return generated(requests, instances, LOAD, 0)


def ample(requests: int, instances: int) -> Row:
    plan, seconds = _plan(case_of(requests, instances), AMPLE)
    return {"queue": f"{requests}x{instances}", "seconds": round(seconds, 3), **_told(plan)}


def measured(requests: int, instances: int, deadline: float, full: Row) -> Row:
    tries = [_plan(case_of(requests, instances), deadline) for _ in range(REPEATS)]
    told = [_told(plan) for plan, _ in tries]
    middle = {name: median(one[name] for one in told) for name in ("utility", "first", "placed")}
    return {
        "queue": f"{requests}x{instances}", "deadline": deadline, "seconds": round(median(s for _, s in tries), 3),
        "share": round(middle["utility"] / full["utility"], 4),
        "share_of_the_first": round(middle["first"] / full["first"], 4),
        "placed": int(middle["placed"]), "placed_in_full": full["placed"],
    }  # fmt: skip


def _plan(case: Case, seconds: float) -> tuple[BatchPlan, float]:
    begun = time.perf_counter()
    plan = replan(case.snapshot, case.cluster, case.policy, deadline_ms=1000 * seconds)
    return plan, time.perf_counter() - begun


def _told(plan: BatchPlan) -> Row:
    placed = sum(decision.status == "placed" for decision in plan.queue)
    return {"utility": sum(v.objective for v in plan.levels), "first": plan.levels[0].objective, "placed": placed}


if __name__ == "__main__":
    raise SystemExit(main())
