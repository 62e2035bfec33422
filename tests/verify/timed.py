"""A schedule with nothing to spare: a and b one after the other on g0, c on g1, d back on g0."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from iegopt.problem.arrays import Problem
from iegopt.problem.instance import parse_instance, to_problem

TICKS = 10**9
CHOICE = [0, 2, 5, 6]
START = [0, 1, 2, 4]
"""Seconds. a ends at 1; b, 1 s on g0 at once; c, on g1, 1 s after a with 1 s of transfer; d after c with another."""
MAKESPAN = 5
OBJECTIVE = 4 + 0.5 * MAKESPAN
"""One second for every stage; transfers have no weight."""


def tight() -> dict[str, Any]:
    """a → b (hands its KV on), a → c → d; capacity of g0 as much as a, b and d hold at the worst moment."""

    def stage(name: str, memory: float, kv: float, **limits: float) -> dict[str, Any]:
        options = {"site": [0, 1], "variant": ["x", "x"], "cost": [1, 1], "time": [1, 1]}
        return {"id": name, "options": {**options, "memory": [memory, memory], "kv": [kv, kv]}, **limits}

    far = {"latency": 1.0, "bandwidth": 1e9}
    level = [0, 1]
    return {
        "format": "iegopt-instance/1",
        "extensions": ["finish_by", "makespan_weight", "no_overlap", "peak_memory"],
        "makespan_weight": 0.5,
        "devices": {"id": ["g0", "g1"], "memory": [70, 50]},
        "sites": {"id": ["g0", "g1"], "devices": [[0], [1]], "domain": level, "host": level, "rack": level,
                  "datacenter": level},
        "links": dict.fromkeys(("domain", "host", "rack", "datacenter", "wan"), far),
        "stages": [stage("a", 40, 30), stage("b", 60, 40), stage("c", 50, 0), stage("d", 70, 0, finish_by=5.0)],
        "edges": [
            {"from": 0, "to": 1, "bytes": 0, "weight": 0, "hands_on": True},
            {"from": 0, "to": 2, "bytes": 0, "weight": 0},
            {"from": 2, "to": 3, "bytes": 0, "weight": 0},
        ],
        "deadline": 5.0,
    }  # fmt: skip


def tight_problem() -> Problem:
    return to_problem(parse_instance(tight()))


def placement(start: Sequence[float]) -> dict[str, Any]:
    sites = dict(zip("abcd", ("g0", "g0", "g1", "g0"), strict=True))
    at = zip(sites.items(), start, strict=True)
    return {name: {"site": site, "variant": "x", "start": begin} for (name, site), begin in at}
