"""Limits beside memory: what ``auto`` and ``prices`` prove where deadlines, budgets, affinities or weights bind.

    python benchmarks/limits.py [--seconds 5] [--only TEXT] [--solvers auto prices] [--as NAME]

Families chain, agent and layered of 20 stages, with money as the cost, so that what is cheap is slow; a device holds
the largest stage one and a half times. On each one of: a deadline and a compute budget at 0.3 of the way from the
fastest plan's to the cheapest's; affinities of a fifth of the stages with others; model weights that stages share. And
requests of the class "offline" with an end-to-end SLA in the middle between the fastest plan's time and the cheapest's,
as the planner compiles them.

Keeps every figure in ``benchmarks/results/limits.json``; ``--as`` keeps those of a solver under another name: the
columns "… before" were measured so at commit 60258a3, where prices knew memory alone.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import iegopt
from benchmarks.record import RESULTS, record
from iegopt.problem.arrays import Affinity, Problem
from iegopt.problem.families import Family, generate
from iegopt.solvers.api import solve
from iegopt.solvers.evaluate import finish_times
from iegopt.solvers.exact.relaxation import relaxation
from iegopt.solvers.result import Params
from iegopt.spec.request import RequestSpec, SlaClass, Weights

FAMILIES: tuple[Family, ...] = ("chain", "agent", "layered")
SITES = (64, 256)
REQUESTS = (
    ("agent", "two-datacenters"),
    ("research-agent", "two-datacenters"),
    ("debate", "spot-mixed-1024"),
    ("rag", "spot-mixed-1024"),
    ("offline-labels", "spot-mixed-1024"),
)
BETWEEN = 0.3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--only", default="", help="instances whose name contains this")
    parser.add_argument("--solvers", nargs="+", default=["auto", "prices"])
    parser.add_argument("--as", dest="suffix", default="", help="appended to the names of the solvers")
    options = parser.parse_args()
    kept = RESULTS / "limits.json"
    rows: dict[str, Any] = json.loads(kept.read_text(encoding="utf-8"))["rows"] if kept.exists() else {}
    for name, problem in instances():
        if options.only not in name:
            continue
        for solver in options.solvers:
            result = solve(problem, solver, Params(time_limit=options.seconds))
            gap = result.gap
            rows.setdefault(name, {})[solver + options.suffix] = {
                "status": str(result.status),
                "gap": gap,
                "seconds": round(result.seconds, 3),
                "objective": result.objective,
                "proof": result.proof,
            }
            shown = "-" if gap is None else f"{100 * gap:.3f} %"
            print(
                f"{name:34} {solver:7} {result.status:10} gap {shown:>9} {result.seconds:6.2f} s  {result.proof}",
                flush=True,
            )
    record("limits", {"seconds": options.seconds, "rows": rows})


def instances() -> Iterator[tuple[str, Problem]]:
    """Every instance of the benchmark by name."""
    for family in FAMILIES:
        for sites in SITES:
            plain = money_alone(generate(family, 20, sites, "slack", 1))
            for kind, change in CHANGES.items():
                yield f"{family}-20x{sites}-{kind}", change(plain)
    folder = Path(__file__).resolve().parent.parent / "instances"
    for name, cluster in REQUESTS:
        planner = iegopt.Planner(iegopt.load_cluster(folder / "clusters" / f"{cluster}.yaml"))
        request = offline(iegopt.load_request(folder / "requests" / f"{name}.yaml"))
        yield f"{name}-on-{cluster}", with_deadline(planner.compile(request, tier=0).problem, 0.5)


def money_alone(problem: Problem) -> Problem:
    """Money as the only cost, so that the cheapest plan is slow, and devices of one and a half of the largest stage."""
    options = problem.options
    money = (options.cost / options.time - 0.6) / 0.4
    cost = np.rint(money * options.time).astype(np.int64)
    edges = dataclasses.replace(problem.edges, weight=np.full(problem.E, 0.05))
    capacity = np.full_like(problem.capacity, options.share.max() * 3 // 2)
    return dataclasses.replace(problem, options=dataclasses.replace(options, cost=cost), edges=edges, capacity=capacity)


def offline(request: RequestSpec) -> RequestSpec:
    """Money first, whatever the request's own weights say."""
    return request.model_copy(update={"sla_class": SlaClass.OFFLINE, "weights": Weights()})


def fastest(problem: Problem) -> np.ndarray[Any, Any]:
    """The plan of least summed times, without shared limits."""
    timed = dataclasses.replace(
        problem,
        options=dataclasses.replace(problem.options, cost=problem.options.time),
        edges=dataclasses.replace(problem.edges, weight=np.ones(problem.E)),
    )
    return plan_of(timed)


def plan_of(problem: Problem) -> np.ndarray[Any, Any]:
    """The plan of least cost, without shared limits."""
    choice = relaxation(problem).choice
    assert choice is not None
    return choice


def with_deadline(problem: Problem, between: float = BETWEEN) -> Problem:
    fast, cheap = (int(finish_times(problem, plan).max()) for plan in (fastest(problem), plan_of(problem)))
    return dataclasses.replace(problem, deadline=fast + max(0, int(between * (cheap - fast))))


def with_budget(problem: Problem) -> Problem:
    fast, cheap = (int(problem.options.time[plan].sum()) for plan in (fastest(problem), plan_of(problem)))
    budget = fast + max(0, int(BETWEEN * (cheap - fast)))
    return dataclasses.replace(problem, budget=budget, budget_stages=tuple(range(problem.V)))


def with_affinities(problem: Problem) -> Problem:
    rng = np.random.default_rng(problem.V)
    rules = []
    for i in range(problem.V // 5):
        pair = tuple(rng.choice(problem.V, 2, replace=False).tolist())
        rules.append(Affinity(pair, i % 3, i % 2 == 0, i % 4 < 2, 3 * 10**8))
    return dataclasses.replace(problem, affinities=tuple(rules))


def with_weights(problem: Problem) -> Problem:
    """Half of every stage's memory is weights that stages on one site share, on two thirds of the memory."""
    options = problem.options
    half = options.share // 2
    shared = dataclasses.replace(
        options,
        share=options.share - half,
        weight_key=options.site,
        weight_share=np.full_like(half, int(np.median(half))),
    )
    return dataclasses.replace(problem, options=shared, capacity=problem.capacity * 2 // 3)


CHANGES = {"deadline": with_deadline, "budget": with_budget, "affinities": with_affinities, "weights": with_weights}

if __name__ == "__main__":
    main()
