"""From the compiled ``Problem`` back to an ``iegopt-instance/1`` document.

Equal gangs that move shards in parallel are written as measured pairs where there are at most 2,048 sites, so
that the file needs no extension; above, as the extension ``parallel_shards``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.instance_check import FORMAT
from iegopt.problem.topology import LEVEL_NAMES, WAN, Topology

__all__ = ["LARGEST_PAIRS", "to_document"]

LARGEST_PAIRS = 2048
"""Most sites for which parallel shards are written as dense matrices."""
_FREE = 1e300
"""Bandwidth, byte/s, that stands for a link on which bytes cost nothing."""


def to_document(problem: Problem) -> dict[str, Any]:
    """The document of a problem; reading it gives an equal problem (times to the tick, memory to the byte)."""
    extensions: set[str] = set()
    topology = problem.topology
    document: dict[str, Any] = {
        "format": FORMAT,
        "name": problem.name,
        "devices": {"id": list(topology.devices), "memory": _bytes(problem.capacity, problem.memory_scale)},
        "sites": {
            "id": list(topology.sites),
            "devices": [topology.devices_of(s).tolist() for s in range(topology.S)],
            **{name: topology.group[level].tolist() for level, name in enumerate(LEVEL_NAMES)},
        },
        "links": _links(topology, extensions),
        "stages": [_stage(problem, v, extensions) for v in range(problem.V)],
        "edges": [_edge(problem, e, extensions) for e in range(problem.E)],
    }
    if problem.affinities:
        document["affinity"] = [
            {
                "stages": list(rule.stages),
                "level": "site" if rule.level < 0 else LEVEL_NAMES[rule.level],
                "apart": rule.apart,
                "required": rule.required,
                "penalty": rule.penalty / TICKS_PER_SECOND,
            }
            for rule in problem.affinities
        ]
    if problem.deadline < NO_LIMIT:
        document["deadline"] = problem.deadline / TICKS_PER_SECOND
    if problem.budget < NO_LIMIT:
        extensions.add("budget")
        document["budget"] = {"limit": problem.budget / TICKS_PER_SECOND, "stages": list(problem.budget_stages)}
    if problem.makespan_weight > 0:
        extensions.add("makespan_weight")
        document["makespan_weight"] = problem.makespan_millionths / 10**6
    if problem.no_overlap:
        extensions.add("no_overlap")
    if problem.peak_memory:
        extensions.add("peak_memory")
    if extensions:
        document["extensions"] = sorted(extensions)
    return document


def _links(topology: Topology, extensions: set[str]) -> dict[str, Any]:
    links: dict[str, Any] = {}
    for level, name in enumerate((*LEVEL_NAMES, "wan")):
        each = [_link(*pair) for pair in zip(topology.latency[level], topology.seconds_per_byte[level], strict=True)]
        present = [] if level == WAN else np.unique(topology.group[level][topology.group[level] >= 0]).tolist()
        links[name] = dict(each[0])
        groups = {str(g): each[g] for g in present if each[g] != each[0]}
        if groups:
            links[name]["groups"] = groups
    latency, rate = topology.pair_latency, topology.pair_seconds_per_byte
    if topology.parallel_shards and (topology.width > 1).any():
        if topology.S > LARGEST_PAIRS:
            extensions.add("parallel_shards")
        else:
            if latency is None or rate is None:
                latency, rate = _tree_pairs(topology)
            width = topology.width
            rate = rate / np.where(width[:, None] == width[None, :], width[:, None], 1)
    if latency is not None and rate is not None:
        links["pairs"] = {"latency": latency.tolist(), "seconds_per_byte": rate.tolist()}
    return links


def _tree_pairs(topology: Topology) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """(S, S) latency and seconds per byte of the link at which two sites meet; the diagonal is never read."""
    latency = np.full((topology.S, topology.S), topology.latency[WAN][0])
    rate = np.full((topology.S, topology.S), topology.seconds_per_byte[WAN][0])
    for level in reversed(range(WAN)):
        group = topology.group[level]
        for g in np.unique(group[group >= 0]).tolist():
            members = np.ix_(group == g, group == g)
            latency[members], rate[members] = topology.latency[level][g], topology.seconds_per_byte[level][g]
    np.fill_diagonal(latency, 0.0)
    np.fill_diagonal(rate, 0.0)
    return latency, rate


def _link(latency: float, seconds_per_byte: float) -> dict[str, float]:
    return {"latency": float(latency), "bandwidth": float(1 / seconds_per_byte) if seconds_per_byte > 0 else _FREE}


def _stage(problem: Problem, v: int, extensions: set[str]) -> dict[str, Any]:
    options, of = problem.options, problem.options.of(v)
    width = problem.topology.width[options.site[of]]
    stage: dict[str, Any] = {
        "id": problem.stages[v],
        "options": {
            "site": options.site[of].tolist(),
            "variant": [problem.variants[m] for m in options.variant[of].tolist()],
            "cost": (options.cost[of] / TICKS_PER_SECOND).tolist(),
            "time": (options.time[of] / TICKS_PER_SECOND).tolist(),
            "memory": _bytes(options.share[of] * width, problem.memory_scale),
        },
    }
    if problem.sla[v] < NO_LIMIT:
        stage["sla"] = int(problem.sla[v]) / TICKS_PER_SECOND
    if problem.finish_by[v] < NO_LIMIT:
        extensions.add("finish_by")
        stage["finish_by"] = int(problem.finish_by[v]) / TICKS_PER_SECOND
    if problem.peak_memory and options.kv_share is not None:
        stage["options"]["kv"] = _bytes(options.kv_share[of] * width, problem.memory_scale)
    keys = options.weight_key[of].tolist()
    if max(keys, default=-1) >= 0:
        extensions.add("weights")
        stage["options"]["weights"] = {
            "key": [f"w{key}" if key >= 0 else None for key in keys],
            "memory": _bytes(options.weight_share[of] * width, problem.memory_scale),
        }
    return stage


def _edge(problem: Problem, e: int, extensions: set[str]) -> dict[str, Any]:
    edges = problem.edges
    edge: dict[str, Any] = {
        "from": int(edges.source[e]),
        "to": int(edges.target[e]),
        "kind": edges.kind[e] if edges.kind else "data",
        "bytes": float(edges.bytes[e]),
        "weight": float(edges.weight[e]),
    }
    if problem.peak_memory and edges.hands_on is not None and edges.hands_on[e]:
        edge["hands_on"] = True
    hidden = edges.hidden[e]
    if hidden is not None:
        extensions.add("overlap")
        edge["overlap"] = {"chunk": float(edges.chunk[e]), "hidden": hidden.tolist()}
    return edge


def _bytes(amount: npt.NDArray[np.int64], scale: int) -> list[int | float]:
    """Bytes, whole numbers where they are whole."""
    return [a // scale if a % scale == 0 else a / scale for a in amount.tolist()]
