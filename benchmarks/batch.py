"""What a request costs when many go together: ``relaxations`` against one ``relaxation`` each.

    python benchmarks/batch.py

A chain of 20 stages on 1,024 sites under 1 to 256 cost vectors. ``alone`` solves each as a problem of its own on a kept
topology, ``together`` all in one call, by numpy and by compiled kernels, taking turns. Bounds and choices must be
equal. Writes ``benchmarks/results/batch.json``.
"""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from benchmarks.tree import core
from iegopt.problem.arrays import Problem
from iegopt.problem.families import generate
from iegopt.solvers.exact.batch import relaxations
from iegopt.solvers.exact.compiled import warmup
from iegopt.solvers.exact.relaxation import relaxation

STAGES, SITES, BATCHES, RUNS = 20, 1024, (1, 4, 16, 64, 256), 7


def main() -> None:
    warmup()
    problem = generate("chain", STAGES, SITES, "slack", 0)
    options = len(problem.options.cost)
    added = np.random.default_rng(0).integers(0, 10**8, (max(BATCHES), options))
    figures: dict[str, dict[int, float]] = {}
    for count in BATCHES:
        problems = [with_costs(problem, problem.options.cost + added[b]) for b in range(count)]
        costs = np.stack([each.options.cost for each in problems])
        fastest: dict[str, float] = {}
        answers = []
        for _ in range(RUNS):
            for way in ("alone", "together", "alone compiled", "together compiled"):
                fresh = [with_costs(each, each.options.cost) for each in problems]
                with core(way):
                    start = time.perf_counter()
                    if "alone" in way:
                        solved = [relaxation(each) for each in fresh]
                        bound, choice = [each.bound for each in solved], [each.choice for each in solved]
                    else:
                        batch = relaxations(fresh[0], costs)
                        bound, choice = batch.bound.tolist(), list(batch.choice)
                    seconds = time.perf_counter() - start
                fastest[way] = min(fastest.get(way, seconds), seconds)
                answers.append((bound, [each.tolist() for each in choice]))
        if any(answer != answers[0] for answer in answers):
            raise SystemExit(f"different answers for {count} requests")
        for way, seconds in fastest.items():
            figures.setdefault(way.replace(" ", "_"), {})[count] = round(seconds / count * 1e3, 4)
    for way, by_count in figures.items():
        told = "  ".join(f"{count}: {ms:.3f}" for count, ms in by_count.items())
        print(f"{way:18s} ms a request by requests   {told}")
    record("batch", {"stages": STAGES, "sites": SITES, "ms_a_request_by_requests": figures})


def with_costs(problem: Problem, cost: np.ndarray) -> Problem:
    """The problem with other costs, and nothing computed yet."""
    return dataclasses.replace(problem, options=dataclasses.replace(problem.options, cost=cost))


if __name__ == "__main__":
    main()
