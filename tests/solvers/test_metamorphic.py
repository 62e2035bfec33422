"""How a proven optimum must change when its problem does, for every exact solver."""

from __future__ import annotations

import copy
import random
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from iegopt.problem.instance import parse_instance, to_problem
from iegopt.solvers.api import SOLVERS, solve
from iegopt.solvers.result import Params, Result, Status
from tests.solvers.agreement import short_search
from tests.solvers.random_problems import LEVELS, random_instance

SEEDS = range(12)
EXACT = [name for name, solver in SOLVERS.items() if solver.exact]

Document = dict[str, Any]


def instance(seed: int, **switches: Any) -> Document:
    return random_instance(1000 + seed, combinations=400, **switches)


def answer(document: Document, name: str, hint: npt.NDArray[np.int64] | None = None) -> Result:
    """What is proven of a document; skips what is not supported."""
    problem = to_problem(parse_instance(document))
    reason = SOLVERS[name].supports(problem)
    if reason is not None:
        pytest.skip(reason)
    with short_search():
        result = solve(problem, name, Params(time_limit=60.0), hint)
    assert result.status in (Status.OPTIMAL, Status.INFEASIBLE)
    return result


def optimum(document: Document, name: str) -> float:
    """Proven optimum in ticks, infinite where it is proven that there is none."""
    return ticks(answer(document, name))


def ticks(result: Result) -> float:
    return float("inf") if result.objective is None else result.objective


@cache
def unchanged(seed: int, name: str, links: str | None = None) -> Result:
    """``answer`` to an instance as it is, which several tests change."""
    return answer(instance(seed, links=links), name)


pytestmark = [pytest.mark.parametrize("name", EXACT), pytest.mark.parametrize("seed", SEEDS)]


def test_the_names_and_order_of_sites_and_stages_change_nothing(seed: int, name: str) -> None:
    after, rng = instance(seed), random.Random(seed)
    sites, S = after["sites"], len(after["sites"]["id"])
    order = rng.sample(range(S), S)
    for key in ("devices", *LEVELS):
        sites[key] = [sites[key][s] for s in order]
    sites["id"] = [f"site{s}" for s in range(S)]
    if "pairs" in after["links"]:
        pairs = after["links"]["pairs"]
        for key in pairs:
            pairs[key] = [[pairs[key][a][b] for b in order] for a in order]
    for v, stage in enumerate(after["stages"]):
        stage["id"] = f"stage{v}"
        stage["options"]["site"] = [order.index(s) for s in stage["options"]["site"]]
    assert optimum(after, name) == ticks(unchanged(seed, name))


def test_twice_the_times_and_costs_are_twice_the_optimum(seed: int, name: str) -> None:
    after = instance(seed)
    for stage in after["stages"]:
        for key in ("cost", "time"):
            stage["options"][key] = [2 * x for x in stage["options"][key]]
        for key in ("sla", "finish_by"):
            if key in stage:
                stage[key] *= 2
    for level, link in after["links"].items():
        if level == "pairs":
            for key, rows in link.items():
                link[key] = [[2 * x for x in row] for row in rows]
            continue
        for part in (link, *link.get("groups", {}).values()):
            if "latency" in part:
                part["latency"] *= 2
            if "bandwidth" in part:
                part["bandwidth"] /= 2
    for edge in after["edges"]:
        if "overlap" in edge:
            edge["overlap"]["hidden"] = [2 * x for x in edge["overlap"]["hidden"]]
    for rule in after.get("affinity", []):
        rule["penalty"] *= 2
    if "deadline" in after:
        after["deadline"] *= 2
    if "budget" in after:
        after["budget"]["limit"] *= 2
    # Every edge rounds to ticks once on either side.
    assert optimum(after, name) == pytest.approx(2 * ticks(unchanged(seed, name)), rel=0, abs=2 * len(after["edges"]))


def test_more_memory_never_hurts(seed: int, name: str) -> None:
    before = instance(seed, memory="tight")
    after = copy.deepcopy(before)
    after["devices"]["memory"] = [m + 2 * 10**9 for m in after["devices"]["memory"]]
    assert optimum(after, name) <= optimum(before, name)


def test_one_more_site_never_hurts(seed: int, name: str) -> None:
    links = "odd" if seed % 2 else "tree"
    after = instance(seed, links=links)
    after["devices"]["id"].append("new")
    after["devices"]["memory"].append(10**10)
    sites = after["sites"]
    sites["id"].append("new")
    sites["devices"].append([len(after["devices"]["id"]) - 1])
    for level in LEVELS:
        sites[level].append(1000)
    for stage in after["stages"]:
        added = {"site": len(sites["id"]) - 1, "variant": "fp16", "cost": 0.1, "time": 0.1, "memory": 10**9}
        for key, value in added.items():
            stage["options"][key].append(value)
        if "weights" in stage["options"]:
            stage["options"]["weights"]["key"].append(None)
            stage["options"]["weights"]["memory"].append(0)
    for edge in after["edges"]:
        if "overlap" in edge:
            edge["overlap"]["hidden"].append(0.0)
    assert optimum(after, name) <= ticks(unchanged(seed, name, links))


def test_a_slower_link_never_helps(seed: int, name: str) -> None:
    links = "odd" if seed % 2 else "tree"
    after = instance(seed, links=links)
    for level in ("host", "wan"):
        after["links"][level]["bandwidth"] /= 3
        after["links"][level]["latency"] *= 2
    assert optimum(after, name) >= ticks(unchanged(seed, name, links))


def test_the_answer_given_as_a_hint_comes_back(seed: int, name: str) -> None:
    first = unchanged(seed, name)
    again = answer(instance(seed), name, first.choice)
    assert (again.status, again.objective) == (first.status, first.objective)
