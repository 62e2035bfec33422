"""Small random instances for the oracle: every feature of the format, at most 20,000 combinations."""

from __future__ import annotations

import math
import random
from typing import Any

from iegopt.problem.arrays import Problem
from iegopt.problem.instance import parse_instance, to_problem

LEVELS = ("domain", "host", "rack", "datacenter")


def random_problem(seed: int, **switches: Any) -> Problem:
    """``random_instance`` compiled."""
    return to_problem(parse_instance(random_instance(seed, **switches), f"seed {seed}"))


def random_instance(
    seed: int,
    *,
    stages: int | None = None,
    shape: str | None = None,
    memory: str | None = None,
    gangs: bool | None = None,
    links: str | None = None,
    affinity: bool | None = None,
    sla: bool | None = None,
    deadline: bool | None = None,
    extensions: bool | None = None,
    combinations: int = 4_000,
) -> dict[str, Any]:
    """An ``iegopt-instance/1`` document. A switch that is ``None`` is drawn.

    Parameters
    ----------
    shape
        ``chain``, ``tree``, ``dag`` (joins) or ``forest`` (with isolated stages).
    memory
        ``tight`` or ``slack``.
    links
        ``tree`` (wider is slower), ``odd`` (any order, overrides of single groups), ``pairs`` (a dense matrix).
    """
    rng = random.Random(seed)

    def drawn(value: bool | None, chance: float) -> bool:
        return rng.random() < chance if value is None else value

    shape = shape or rng.choice(["chain", "tree", "tree", "dag", "dag", "forest"])
    memory = memory or rng.choice(["tight", "tight", "slack"])
    links = links or rng.choice(["tree", "tree", "odd", "pairs"])
    V = stages or rng.randint(2, 6)
    devices, sites = _sites(rng, drawn(gangs, 0.5))
    count = len(sites["id"])
    document: dict[str, Any] = {
        "format": "iegopt-instance/1",
        "name": f"random-{seed}",
        "devices": devices,
        "sites": sites,
        "links": draw_links(rng, links, sites),
        "stages": [],
        "edges": _edges(rng, shape, V),
    }
    most = max(1, int(combinations ** (1 / V)))
    grid = rng.choice([1, 3, 9])
    for v in range(V):
        options = _options(rng, count, rng.randint(max(1, most // 2), most), grid)
        document["stages"].append({"id": f"s{v}", "options": options})
    assert math.prod(len(s["options"]["site"]) for s in document["stages"]) <= combinations
    _fit_memory(rng, document, memory)
    for stage in document["stages"]:
        if drawn(sla, 0.2):
            times = sorted(stage["options"]["time"])
            stage["sla"] = times[rng.randrange(len(times) // 3, len(times))]
    if drawn(affinity, 0.5):
        document["affinity"] = [_affinity(rng, V) for _ in range(rng.randint(1, 3))]
    if drawn(deadline, 0.35):
        document["deadline"] = round(typical_path(rng, document), 9)
    if drawn(extensions, 0.35):
        extend(rng, document)
    return document


def _sites(rng: random.Random, gangs: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    D = rng.randint(2, 5)
    fan = [rng.randint(1, D), rng.randint(1, 3), rng.randint(1, 2), rng.randint(1, 2)]
    parent = [[rng.randrange(width) for _ in range(20)] for width in fan]
    groups = []
    for d in range(D):
        at, row = d, []
        for level in range(4):
            at = parent[level][at]
            row.append(at)
        groups.append(row)
    members = [[d] for d in range(D)]
    if gangs:
        for _ in range(rng.randint(1, 3)):
            gang = sorted(rng.sample(range(D), rng.randint(2, min(D, 4))))
            if gang not in members:
                members.append(gang)
    if rng.random() < 0.3:
        rng.shuffle(members)
    sites: dict[str, Any] = {"id": ["+".join(f"d{d}" for d in m) for m in members], "devices": members}
    for level, name in enumerate(LEVELS):
        touched = [{groups[d][level] for d in m} for m in members]
        sites[name] = [min(g) * 3 if len(g) == 1 else -1 for g in touched]
    return {"id": [f"d{d}" for d in range(D)], "memory": [0] * D}, sites


def draw_links(rng: random.Random, kind: str, sites: dict[str, Any]) -> dict[str, Any]:
    latencies = [2e-6, 1e-5, 2e-5, 1e-4, 5e-3]
    bandwidths = [6e11, 3.2e10, 1.25e10, 6.25e9, 1.25e9]
    if kind == "odd":
        rng.shuffle(latencies)
        rng.shuffle(bandwidths)
    names = (*LEVELS, "wan")
    links: dict[str, Any] = {
        name: {"latency": la, "bandwidth": bw} for name, la, bw in zip(names, latencies, bandwidths, strict=True)
    }
    if kind == "odd":
        for name in LEVELS:
            present = sorted({g for g in sites[name] if g >= 0})
            if present and rng.random() < 0.6:
                override = {"latency": rng.choice(latencies), "bandwidth": rng.choice(bandwidths)}
                if rng.random() < 0.3:
                    del override[rng.choice(["latency", "bandwidth"])]
                links[name]["groups"] = {str(rng.choice(present)): override}
    if kind == "pairs":
        S = len(sites["id"])
        links["pairs"] = {
            "latency": [[rng.choice(latencies) for _ in range(S)] for _ in range(S)],
            "seconds_per_byte": [[1 / rng.choice(bandwidths) for _ in range(S)] for _ in range(S)],
        }
        if rng.random() < 0.5:
            links = {"pairs": links["pairs"]}
    return links


def _edges(rng: random.Random, shape: str, V: int) -> list[dict[str, Any]]:
    pairs: list[tuple[int, int]] = []
    for v in range(1, V):
        if shape == "chain":
            pairs.append((v - 1, v))
        elif shape != "forest" or rng.random() < 0.6:
            pairs.append((rng.randrange(v), v))
    if shape == "tree":
        pairs = [(v, u) if rng.random() < 0.3 and not any(u == b for _, b in pairs[:i]) else (u, v)
                 for i, (u, v) in enumerate(pairs)]  # fmt: skip
        pairs = [(u, v) if u < v else (v, u) for u, v in pairs]
    if shape == "dag":
        for _ in range(rng.randint(1, V)):
            u, v = sorted(rng.sample(range(V), 2))
            pairs.append((u, v))
    label = list(range(V))
    if rng.random() < 0.3:
        rng.shuffle(label)
    edges = []
    for u, v in pairs:
        edge: dict[str, Any] = {"from": label[u], "to": label[v]}
        if rng.random() < 0.2:
            edge |= {"kind": "control", "bytes": 0}
        else:
            edge |= {"kind": "data", "bytes": rng.choice([0, 4e3, 1e8, 1.3e9, rng.randint(1, 10**9)])}
        edge["weight"] = rng.choice([1.0, 1.0, 0.0, 0.5, round(rng.uniform(0.1, 3), 2)])
        edges.append(edge)
    return edges


def _options(rng: random.Random, sites: int, count: int, grid: int) -> dict[str, Any]:
    pairs = [(s, m) for s in range(sites) for m in ("fp16", "int8")]
    if rng.random() < 0.5:
        pairs = pairs[::2]
    chosen = rng.sample(pairs, min(count, len(pairs)))
    if rng.random() < 0.7:
        chosen.sort()
    time = [round(rng.uniform(0.05, 1.0), grid) for _ in chosen]
    spread = rng.choice([0.0, 0.3])
    return {
        "site": [s for s, _ in chosen],
        "variant": [m for _, m in chosen],
        "cost": [round(t * (1 + spread * rng.uniform(-1, 1)), grid) for t in time],
        "time": time,
        "memory": [rng.choice([0, 1, 2, 3, 5, 8]) * 10**9 + rng.choice([0, 0, 1, 7]) for _ in chosen],
    }


def _fit_memory(rng: random.Random, document: dict[str, Any], kind: str) -> None:
    """Capacities around what the stages need (tight), or more than they could need (slack)."""
    each = [stage["options"]["memory"] for stage in document["stages"]]
    if rng.random() < 0.1:
        for memory in each:
            memory[:] = [m / 3 for m in memory]
    D = len(document["devices"]["id"])
    need = sum(sum(m) / len(m) for m in each)
    for d in range(D):
        factor = rng.uniform(0.8, 2.4) / D if kind == "tight" else rng.uniform(3, 5)
        document["devices"]["memory"][d] = int(need * factor)
    if kind == "tight" and rng.random() < 0.3:
        document["devices"]["memory"][rng.randrange(D)] = rng.choice([0, int(need)])


def _affinity(rng: random.Random, V: int) -> dict[str, Any]:
    return {
        "stages": rng.sample(range(V), rng.choice([2, 2, min(3, V)])),
        "level": rng.choice(["site", *LEVELS]),
        "apart": rng.random() < 0.5,
        "required": rng.random() < 0.5,
        "penalty": rng.choice([0.0, 0.05, round(rng.uniform(0, 0.5), 9)]),
    }


def typical_path(rng: random.Random, document: dict[str, Any]) -> float:
    """Something between hopeless and easy: a fraction of the stages' mean times along the longest path."""
    mean = [sum(s["options"]["time"]) / len(s["options"]["time"]) for s in document["stages"]]
    finish = list(mean)
    for _ in mean:
        for edge in document["edges"]:
            finish[edge["to"]] = max(finish[edge["to"]], finish[edge["from"]] + mean[edge["to"]])
    return float(max(finish)) * rng.uniform(0.6, 1.6)


def extend(rng: random.Random, document: dict[str, Any]) -> None:
    stages, edges = document["stages"], document["edges"]
    names = rng.sample(["overlap", "finish_by", "budget", "weights", "parallel_shards"], rng.randint(1, 3))
    if "overlap" in names:
        for edge in edges:
            if rng.random() < 0.7:
                hidden = [round(t * rng.random(), 9) for t in stages[edge["from"]]["options"]["time"]]
                edge["overlap"] = {"chunk": rng.choice([1e6, 2.56e8, 1e10]), "hidden": hidden}
    if "finish_by" in names:
        stage = rng.choice(stages)
        stage["finish_by"] = round(typical_path(rng, document), 9)
    if "budget" in names:
        members = sorted(rng.sample(range(len(stages)), rng.randint(1, len(stages))))
        mean = sum(sum(stages[v]["options"]["time"]) / len(stages[v]["options"]["time"]) for v in members)
        document["budget"] = {"limit": round(mean * rng.uniform(0.6, 1.2), 9), "stages": members}
    if "weights" in names:
        size = {name: rng.choice([1, 2, 4]) * 10**9 for name in ("fp16", "int8")}
        for stage in stages:
            if rng.random() < 0.8:
                keys = [name if rng.random() < 0.8 else None for name in stage["options"]["variant"]]
                stage["options"]["weights"] = {"key": keys, "memory": [size[k] if k else 0 for k in keys]}
    document["extensions"] = sorted(names)
