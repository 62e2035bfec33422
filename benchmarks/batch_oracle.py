"""``replan`` on many random snapshots: ``python benchmarks/batch_oracle.py --seeds 1000``.

Every plan is held against the verifier, asked for twice, and searched for requests that lower priorities keep out;
tiny snapshots are compared with the enumeration of all placements. Prints what became of them, and how often the plan
was the best one. The exit status is 1 where any plan breaks a rule, is better than the best, or has a bound below it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from iegopt.batch.brute import MOST_EVALUATIONS, TooLargeError
from tests.batch.properties import against_brute, blocked, broken, plan_of
from tests.batch.random_snapshots import random_case


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=1000, help="how many small snapshots (default %(default)s)")
    parser.add_argument("--tiny", type=int, default=200, help="how many tiny ones are enumerated (default %(default)s)")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--most", type=int, default=MOST_EVALUATIONS // 50, help="placements that are enumerated")
    arguments = parser.parse_args()
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    began = time.perf_counter()
    for seed in range(arguments.first, arguments.first + arguments.seeds):
        wrong += rules(seed, seen)
    kept = time.perf_counter() - began
    for seed in range(arguments.first, arguments.first + arguments.tiny):
        wrong += optimum(seed, arguments.most, seen)
    for line in wrong:
        print(line)
    print(f"{arguments.seeds} small snapshots in {kept:.0f} s: {len(wrong)} found wrong")
    print(", ".join(f"{name} {count}" for name, count in sorted(seen.items())))
    compared = seen["equal"] + seen["worse"]
    if compared:
        share = seen["equal"] / compared
        print(f"{compared} tiny snapshots enumerated: {share:.1%} of the plans are the best")
    record(
        "batch_oracle",
        {"seeds": arguments.seeds, "tiny": arguments.tiny, "wrong": len(wrong), "seen": dict(sorted(seen.items()))},
    )
    return 1 if wrong else 0


def rules(seed: int, seen: Counter[str]) -> Iterator[str]:
    """What one plan breaks."""
    case = random_case(seed)
    plan = plan_of(case)
    for decision in plan.queue:
        seen[decision.status] += 1
    for act in plan.running:
        seen[act.action] += 1
    for line in (*broken(case, plan), *blocked(case, plan)):
        yield f"seed {seed}: {line}"


def optimum(seed: int, most: int, seen: Counter[str]) -> Iterator[str]:
    """What one plan has in common with the best."""
    try:
        verdict, wrong = against_brute(random_case(seed, "tiny"), most)
    except TooLargeError:
        seen["too large to enumerate"] += 1
        return
    seen[verdict] += 1
    for line in wrong:
        yield f"tiny seed {seed}: {line}"


if __name__ == "__main__":
    sys.exit(main())
