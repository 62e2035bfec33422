"""Every solver against brute force on many random problems: ``python benchmarks/oracle.py --seeds 2000``.

Prints, for every solver, how often it agreed, how it ended, what it does not support and why, and its time.
The exit status is 1 where any answer is wrong or an exact solver falls short.
"""

from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from iegopt.errors import IegoptError
from iegopt.solvers.api import SOLVERS
from iegopt.solvers.exact.compiled import warmup
from tests.solvers.agreement import COMPARED, Instances, answer, disagreement, incomplete, is_exact, oracle
from tests.solvers.random_problems import random_instance
from tests.solvers.random_structured import structured_instance

INSTANCES: dict[str, Instances] = {"random": random_instance, "structured": structured_instance}


@dataclass
class Tally:
    """What became of one solver."""

    ended: Counter[str] = field(default_factory=Counter)
    unsupported: Counter[str] = field(default_factory=Counter)
    optimum: int = 0
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def figures(self) -> dict[str, object]:
        return {
            "ended": dict(self.ended),
            "at_optimum": self.optimum,
            "unsupported": sum(self.unsupported.values()),
            "disagreements": len(self.wrong),
            "seconds": round(self.seconds, 1),
        }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=2000, help="how many random problems")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument(
        "--instances", choices=INSTANCES, default="random", help="from which generator (default random)"
    )
    parser.add_argument("--solver", action="append", choices=COMPARED, help="only these (may be repeated)")
    parser.add_argument("--fast", action="store_true", help="with the compiled kernels of the extra 'fast'")
    args = parser.parse_args()
    if args.fast:
        print(warmup())
    tallies = {name: Tally() for name in args.solver or COMPARED}
    for seed in range(args.first, args.first + args.seeds):
        for name, tally in tallies.items():
            compare(seed, name, tally, INSTANCES[args.instances])
    report(tallies, args.seeds)
    if not args.solver and not args.fast and args.instances == "random":
        record("oracle", {"seeds": args.seeds, "solvers": {name: tally.figures() for name, tally in tallies.items()}})
    return 1 if any(tally.wrong for tally in tallies.values()) else 0


def compare(seed: int, name: str, tally: Tally, instances: Instances) -> None:
    _, problem, truth = oracle(seed, instances)
    reason = SOLVERS[name].supports(problem) if name in SOLVERS else None
    if reason is not None:
        # Stages are named by the problem: "edge s0 → s1 closes a cycle" is one reason, whichever edge it is.
        reason = re.sub(r"\bs\d+\b", "s", reason)
        tally.unsupported[reason] += 1
        return
    start = time.perf_counter()
    try:
        result = answer(seed, name, instances)
    except IegoptError as error:
        tally.wrong.append(f"seed {seed}: {type(error).__name__}: {error}")
        return
    assert result is not None
    tally.seconds += time.perf_counter() - start
    tally.ended[str(result.status)] += 1
    tally.optimum += result.objective is not None and result.objective == truth.objective
    problem_found = disagreement(seed, result, instances)
    if problem_found is None and is_exact(name):
        problem_found = incomplete(seed, result, instances)
    if problem_found:
        tally.wrong.append(f"seed {seed}: {problem_found}")


def report(tallies: dict[str, Tally], seeds: int) -> None:
    columns = ("optimal", "feasible", "infeasible", "unknown")
    print(
        f"{'solver':15}{'agreed':>8}"
        + "".join(f"{c:>11}" for c in columns)
        + f"{'at optimum':>12}{'skipped':>9}{'s':>9}"
    )
    for name, tally in tallies.items():
        skipped = sum(tally.unsupported.values())
        counts = "".join(f"{tally.ended[c]:>11}" for c in columns)
        agreed = seeds - skipped - len(tally.wrong)
        print(f"{name:15}{agreed:>8}{counts}{tally.optimum:>12}{skipped:>9}{tally.seconds:>9.1f}")
    for name, tally in tallies.items():
        for reason, count in tally.unsupported.most_common():
            print(f"{name}: {count} not supported: {reason}")
        for line in tally.wrong:
            print(f"{name}: WRONG {line}")


if __name__ == "__main__":
    sys.exit(main())
