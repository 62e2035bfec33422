"""A plan that keeps every constraint with nothing to spare: one unit less anywhere and it is broken."""

from __future__ import annotations

from typing import Any

from iegopt.problem.arrays import Problem
from iegopt.problem.instance import parse_instance, to_problem

CHOICE = [0, 2, 4]
PLACEMENT: dict[str, object] = {
    "a": {"site": "g0", "variant": "fp16"},
    "b": {"site": "g1", "variant": "fp16"},
    "c": {"site": "g0+g1", "variant": "fp16"},
}
OBJECTIVE = 6.625
MAKESPAN = 4.0
TICKS = 10**9


def tight() -> dict[str, Any]:
    """a on g0 (1 s) → b on g1 (1 s) → c on both (1 s), each transfer 0.5 s, overlap hides 0.25 s of the second,
    and a preferred affinity that is broken at a penalty of 0.25 s."""

    def stage(name: str, site: int, memory: int, **limits: float) -> dict[str, Any]:
        options = {"site": [site, 2 - site], "variant": ["fp16", "int8"], "cost": [2.0, 3.0], "time": [1.0, 1.5]}
        return {"id": name, "options": {**options, "memory": [memory, memory]}, **limits}

    far = {"latency": 0.25, "bandwidth": 4.0}
    stages = [stage("a", 0, 50, sla=1.0), stage("b", 1, 40, finish_by=2.5), stage("c", 2, 20)]
    stages[1]["options"]["site"][1] = 0
    stages[2]["options"]["weights"] = {"key": ["w", None], "memory": [6, 0]}
    return {
        "format": "iegopt-instance/1",
        "extensions": ["overlap", "finish_by", "budget", "weights"],
        "devices": {"id": ["g0", "g1"], "memory": [63, 53]},
        "sites": {
            "id": ["g0", "g1", "g0+g1"],
            "devices": [[0], [1], [0, 1]],
            "domain": [0, 1, -1],
            "host": [0, 0, 0],
            "rack": [0, 0, 0],
            "datacenter": [0, 0, 0],
        },
        "links": dict.fromkeys(("domain", "host", "rack", "datacenter", "wan"), far),
        "stages": stages,
        "edges": [
            {"from": 0, "to": 1, "bytes": 1, "weight": 0.5},
            {"from": 1, "to": 2, "bytes": 2, "weight": 0.25, "overlap": {"chunk": 1, "hidden": [0.5, 0.5]}},
        ],
        "affinity": [
            {"stages": [0, 1], "level": "host"},
            {"stages": [0, 1, 2], "level": "site", "apart": True},
            {"stages": [1, 2], "level": "domain", "required": False, "penalty": 0.25},
        ],
        "deadline": 4.0,
        "budget": {"limit": 2.0, "stages": [0, 2]},
    }


def tight_problem() -> Problem:
    return to_problem(parse_instance(tight()))
