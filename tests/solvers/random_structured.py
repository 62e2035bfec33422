"""Small random instances like clusters: equal devices in equal hosts, gangs of whole hosts, options that follow a type.

What ``random_problems`` seldom or never draws: interchangeable devices, graphs of many joins, up to twelve stages,
costs below zero, costs that lie six orders of magnitude apart, many affinities, weights that many stages share,
and limits in time on top of all that.
"""

from __future__ import annotations

import random
from typing import Any

from tests.solvers.random_problems import LEVELS, draw_links, extend, typical_path
from tests.solvers.random_timed import lifetimes

__all__ = ["KINDS", "structured_instance"]

KINDS = ("symmetric", "dense", "wide", "long", "negative", "spread", "affine", "gangs", "shared")
_STAGES = {"dense": (5, 8), "wide": (5, 9), "long": (7, 12)}
_COMBINATIONS = 4_000


def structured_instance(seed: int) -> dict[str, Any]:
    """An ``iegopt-instance/1`` document of one of ``KINDS``, which stands in its name."""
    rng = random.Random(f"structured {seed}")
    kind = KINDS[seed % len(KINDS)]
    V = rng.randint(*_STAGES.get(kind, (2, 6)))
    per_host = rng.choice([1, 2, 4])
    D = min(per_host * rng.randint(1, 4), 10)
    sites = _sites(rng, D, per_host, gangs=kind == "gangs" or rng.random() < 0.4)
    alike = kind in ("symmetric", "gangs", "shared") or rng.random() < 0.4
    document: dict[str, Any] = {
        "format": "iegopt-instance/1",
        "name": f"structured-{seed}-{kind}",
        "devices": {"id": [f"d{d}" for d in range(D)], "memory": [0] * D},
        "sites": sites,
        "links": draw_links(rng, rng.choice(["tree", "tree", "odd", "pairs"]), sites),
        "stages": _stages(rng, kind, V, sites["devices"], per_host, alike),
        "edges": _edges(rng, kind, V),
    }
    _fit_memory(rng, document, per_host, alike)
    if kind == "affine" or rng.random() < 0.25:
        document["affinity"] = [_affinity(rng, V) for _ in range(rng.randint(1, 5))]
    if rng.random() < 0.3:
        document["deadline"] = round(typical_path(rng, document), 9)
    if kind == "shared" or rng.random() < 0.3:
        extend(rng, document)
    if kind == "shared":
        _share_weights(rng, document)
    if V <= 6 and rng.random() < 0.25:
        _time(rng, document)
    return document


def _sites(rng: random.Random, D: int, per_host: int, gangs: bool) -> dict[str, Any]:
    members = [[d] for d in range(D)]
    for first in range(0, D, per_host) if gangs else ():
        host = list(range(first, min(first + per_host, D)))
        members += [host] if len(host) > 1 else []
        members += [host[:2], host[2:]] if len(host) == 4 else []
    if gangs and D >= 3 and rng.random() < 0.4:
        across = sorted(rng.sample(range(D), rng.randint(2, min(5, D))))
        members += [across] if across not in members else []
    sites: dict[str, Any] = {"id": ["+".join(f"d{d}" for d in m) for m in members], "devices": members}
    for level, devices in zip(LEVELS, (per_host, per_host, 2 * per_host, 4 * per_host), strict=True):
        touched = [{d // devices for d in m} for m in members]
        sites[level] = [min(g) if len(g) == 1 else -1 for g in touched]
    return sites


def _edges(rng: random.Random, kind: str, V: int) -> list[dict[str, Any]]:
    if kind == "dense":
        pairs = [(u, v) for v in range(V) for u in range(v) if rng.random() < 0.8]
    elif kind == "wide":
        pairs = [pair for v in range(1, V - 1) for pair in ((0, v), (v, V - 1))]
    elif kind == "long":
        pairs = [(v - 1, v) for v in range(1, V)] + [(v - 2, v) for v in range(2, V) if rng.random() < 0.4]
    else:
        pairs = [(rng.randrange(v), v) for v in range(1, V) for _ in range(rng.choice([0, 1, 1, 2]))]
    edges = []
    for u, v in pairs:
        moved = rng.choice([0, 1e3, 1e8, 1e9, 5e9])
        edge = {"from": u, "to": v, "kind": "data", "bytes": moved, "weight": rng.choice([1, 1, 0.5, 0, 2.5])}
        edges.append(edge | {"kind": "control", "bytes": 0} if rng.random() < 0.1 else edge)
    return edges


def _stages(
    rng: random.Random, kind: str, V: int, members: list[list[int]], per_host: int, alike: bool
) -> list[dict[str, Any]]:
    most = max(2, int(_COMBINATIONS ** (1 / V)))
    slower = [rng.choice([1, 1, 2, 3]) for _ in range(4)]
    stages: list[dict[str, Any]] = []
    for v in range(V):
        base, need = rng.uniform(0.05, 1), rng.choice([0, 1, 2, 3, 5, 8]) * 10**9 + rng.choice([0, 0, 1])
        some = range(len(members)) if rng.random() < 0.6 else rng.sample(range(len(members)), min(len(members), 3))
        pairs = [(s, m) for s in some for m in (("fp16",) if rng.random() < 0.6 else ("fp16", "int8"))]
        options: dict[str, list[Any]] = {key: [] for key in ("site", "variant", "cost", "time", "memory")}
        for s, variant in rng.sample(pairs, min(most, len(pairs))):
            width, smaller = len(members[s]), variant == "int8"
            time = base * slower[members[s][0] // per_host] * (0.6 if smaller else 1) / width**0.8
            time *= 1 if alike else rng.uniform(0.7, 1.3)
            sign = rng.choice([-1, -1, 1, 0]) if kind == "negative" else 1
            scale = 10.0 ** rng.randint(-4, 2) if kind == "spread" else 1
            options["site"].append(s)
            options["variant"].append(variant)
            options["time"].append(round(time, 9))
            options["cost"].append(round(sign * scale * time * (1 + 0.2 * width), 9))
            options["memory"].append(int(need / (1 + smaller) * (1 if alike else rng.uniform(0.8, 1.2))))
        stages.append({"id": f"s{v}", "options": options})
        if rng.random() < 0.15:
            times = sorted(options["time"])
            stages[-1]["sla"] = times[rng.randrange(len(times) // 2, len(times))]
    return stages


def _fit_memory(rng: random.Random, document: dict[str, Any], per_host: int, alike: bool) -> None:
    each = [stage["options"]["memory"] for stage in document["stages"]]
    need, devices = sum(sum(m) / len(m) for m in each), document["devices"]["memory"]
    room = need * rng.choice([0.9, 1.05, 1.2, 1.5, 2.5, 5]) / len(devices)
    room = max(room, max(map(max, each))) if rng.random() < 0.5 else room
    devices[:] = [int(room if alike else room * rng.uniform(0.8, 1.2)) for _ in devices]


def _affinity(rng: random.Random, V: int) -> dict[str, Any]:
    return {
        "stages": rng.sample(range(V), rng.randint(2, min(V, 5))),
        "level": rng.choice(["site", *LEVELS]),
        "apart": rng.random() < 0.5,
        "required": rng.random() < 0.35,
        "penalty": rng.choice([0, 0.05, 0.3, 2, 1000]),
    }


def _share_weights(rng: random.Random, document: dict[str, Any]) -> None:
    sizes = {"A": 4 * 10**9, "B": 2 * 10**9, None: 0}
    for stage in document["stages"]:
        keys = [rng.choice(["A", "A", "B", None]) for _ in stage["options"]["site"]]
        stage["options"]["weights"] = {"key": keys, "memory": [sizes[key] for key in keys]}
    if rng.random() < 0.7:
        document["devices"]["memory"] = [m + 6 * 10**9 for m in document["devices"]["memory"]]
    document["extensions"] = sorted({*document["extensions"], "weights"})


def _time(rng: random.Random, document: dict[str, Any]) -> None:
    chosen = rng.sample(["makespan_weight", "peak_memory"], rng.randint(1, 2))
    if "makespan_weight" in chosen:
        document["makespan_weight"] = rng.choice([1, 0.5, 3, 1000, 1e-6])
    if "peak_memory" in chosen:
        lifetimes(rng, document)
    document["extensions"] = sorted({*document.get("extensions", []), *chosen})
