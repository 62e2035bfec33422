"""From an instance document to the compiled ``Problem``: rounding happens here, once.

Seconds become rint(s · 10⁹) ticks. Memory becomes whole ``1/memory_scale`` bytes, ``memory_scale`` being the
least common multiple of the gang sizes, times up to 10⁶ where some memory is not a whole number of bytes. A sum
that could leave int64 is refused.
"""

from __future__ import annotations

import math
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.errors import SpecError
from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Affinity, Edges, Options, Problem
from iegopt.problem.order import topological_order
from iegopt.problem.segments import per_stage
from iegopt.problem.topology import LEVEL_NAMES, Topology
from iegopt.problem.transfer import time_ticks

__all__ = ["to_problem"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_LIMIT = float(2**62)


def to_problem(document: dict[str, Any], file: str) -> Problem:
    """Compile a checked document.

    Raises
    ------
    SpecError
        A sum of times, costs or memory could reach 2⁶², or one key of ``weights`` has two sizes on one site.
    """
    # Sums that overflow become infinite or nan, and are refused as such.
    with np.errstate(over="ignore", invalid="ignore"):
        return _compiled(document, file)


def _compiled(document: dict[str, Any], file: str) -> Problem:
    topology = _topology(document)
    stages, edges = document["stages"], document["edges"]
    options, variants, capacity, scale = _options(document, topology, file)
    _refuse_overflow(document, topology, file)
    budget = document.get("budget", {"limit": None, "stages": []})
    order = topological_order(len(stages), [(e["from"], e["to"]) for e in edges])
    return Problem(
        name=document.get("name", ""),
        stages=tuple(s["id"] for s in stages),
        variants=variants,
        topology=topology,
        options=options,
        edges=_edges(edges),
        affinities=tuple(_affinity(rule) for rule in document.get("affinity", [])),
        capacity=capacity,
        memory_scale=scale,
        sla=np.array([_limit(s.get("sla")) for s in stages], dtype=np.int64),
        finish_by=np.array([_limit(s.get("finish_by")) for s in stages], dtype=np.int64),
        deadline=_limit(document.get("deadline")),
        budget=_limit(budget["limit"]),
        budget_stages=tuple(budget["stages"]),
        order=np.array(order, dtype=np.int64),
        makespan_weight=float(document.get("makespan_weight", 0.0)),
        no_overlap="no_overlap" in document.get("extensions", []),
        peak_memory="peak_memory" in document.get("extensions", []),
    )


def _topology(document: dict[str, Any]) -> Topology:
    sites, links = document["sites"], document["links"]
    group = np.full((len(LEVEL_NAMES), len(sites["id"])), -1, dtype=np.int64)
    latency, rate = [], []
    for level, name in enumerate(LEVEL_NAMES):
        numbers = np.array(sites[name], dtype=np.int64)
        inside = numbers >= 0
        present, group[level, inside] = np.unique(numbers[inside], return_inverse=True)
        # A level that `pairs` leaves out is never read; its link is written as free.
        link = links.get(name, {"latency": 0.0, "bandwidth": math.inf})
        own = [link.get("groups", {}).get(str(g), {}) for g in present.tolist()] or [{}]
        latency.append(np.array([o.get("latency", link["latency"]) for o in own], dtype=np.float64))
        rate.append(1 / np.array([o.get("bandwidth", link["bandwidth"]) for o in own], dtype=np.float64))
    wan = links.get("wan", {"latency": 0.0, "bandwidth": math.inf})
    latency.append(np.array([wan["latency"]], dtype=np.float64))
    rate.append(1 / np.array([wan["bandwidth"]], dtype=np.float64))
    pairs = links.get("pairs")
    return Topology(
        sites=tuple(sites["id"]),
        devices=tuple(document["devices"]["id"]),
        device_ptr=np.cumsum([0, *map(len, sites["devices"])], dtype=np.int64),
        device_index=np.array(list(chain.from_iterable(sites["devices"])), dtype=np.int64),
        group=group,
        latency=tuple(latency),
        seconds_per_byte=tuple(rate),
        pair_latency=None if pairs is None else np.array(pairs["latency"], dtype=np.float64),
        pair_seconds_per_byte=None if pairs is None else np.array(pairs["seconds_per_byte"], dtype=np.float64),
        parallel_shards="parallel_shards" in document.get("extensions", []),
    )


def _options(document: dict[str, Any], topology: Topology, file: str) -> tuple[Options, tuple[str, ...], Ints, int]:
    """Options, names of variants, (D,) capacity, and the memory scale of both."""
    each = [stage["options"] for stage in document["stages"]]
    site = _joined(each, "site", np.int64)
    cost, time = _joined(each, "cost", np.float64), _joined(each, "time", np.float64)
    ptr = np.cumsum([0, *(len(o["site"]) for o in each)], dtype=np.int64)
    for name, values in (("cost", np.abs(cost)), ("time", time)):
        if not per_stage(np.maximum, values, ptr, 0).sum() * TICKS_PER_SECOND < _LIMIT:
            raise SpecError(file, "stages", f"the sum of the largest {name} of every stage reaches 2^62 ns")
    variants: dict[str, int] = {}
    variant = [variants.setdefault(name, len(variants)) for o in each for name in o["variant"]]
    keys = [key for o in each for key in o.get("weights", {"key": [None] * len(o["site"])})["key"]]
    weight_memory = np.concatenate(
        [np.array(o["weights"]["memory"] if "weights" in o else [0] * len(o["site"]), dtype=np.float64) for o in each]
    )
    memory, capacity = _joined(each, "memory", np.float64), np.array(document["devices"]["memory"], dtype=np.float64)
    kv = np.concatenate([np.array(o.get("kv", [0] * len(o["site"])), dtype=np.float64) for o in each])
    factor, gang = _memory_scale(memory, (weight_memory, kv), capacity, ptr, topology.width[site], file)
    per_device = gang // topology.width[site]
    weight_share = np.rint(weight_memory * factor).astype(np.int64) * per_device
    options = Options(
        ptr=ptr,
        site=site,
        variant=np.array(variant, dtype=np.int64),
        cost=time_ticks(cost),
        time=time_ticks(time),
        share=np.rint(memory * factor).astype(np.int64) * per_device,
        weight_key=_weight_keys(keys, site, weight_share, topology, file),
        weight_share=np.where([key is not None for key in keys], weight_share, 0),
        kv_share=np.rint(kv * factor).astype(np.int64) * per_device if any("kv" in o for o in each) else None,
    )
    return options, tuple(variants), np.rint(capacity * factor).astype(np.int64) * gang, factor * gang


def _memory_scale(
    memory: Floats, others: tuple[Floats, Floats], capacity: Floats, ptr: Ints, width: Ints, file: str
) -> tuple[int, int]:
    """(units per byte, least common multiple of the gang sizes), such that no sum reaches 2⁶²."""
    gang = math.lcm(*np.unique(width).tolist())
    weights, kv = others
    largest = max(float(per_stage(np.maximum, memory + weights, ptr, 0).sum()), float(capacity.max(initial=0.0)))
    if not largest * gang < _LIMIT:
        raise SpecError(file, "stages", f"memory of {largest:g} bytes over gangs of 1/{gang} reaches 2^62")
    whole = all((values == np.rint(values)).all() for values in (memory, weights, kv, capacity))
    factor = 1 if whole else 10**6
    while largest * gang * factor >= _LIMIT:
        factor //= 10
    return factor, gang


def _weight_keys(keys: list[str | None], site: Ints, share: Ints, topology: Topology, file: str) -> Ints:
    """(O,) number of every (key, site), −1 for none."""
    number: dict[tuple[str, int], tuple[int, int]] = {}
    result = np.full(len(keys), -1, dtype=np.int64)
    for o, key in enumerate(keys):
        if key is None:
            continue
        at, size = int(site[o]), int(share[o])
        result[o], known = number.setdefault((key, at), (len(number), size))
        if known != size:
            raise SpecError(file, "stages", f"weights {key!r} have two sizes on site {topology.sites[at]!r}")
    return result


def _edges(edges: list[dict[str, Any]]) -> Edges:
    overlaps = [e.get("overlap") for e in edges]
    return Edges(
        source=np.array([e["from"] for e in edges], dtype=np.int64),
        target=np.array([e["to"] for e in edges], dtype=np.int64),
        bytes=np.array([e.get("bytes", 0) for e in edges], dtype=np.float64),
        weight=np.array([e.get("weight", 1) for e in edges], dtype=np.float64),
        chunk=np.array([o["chunk"] if o else 0 for o in overlaps], dtype=np.float64),
        hidden=tuple(np.array(o["hidden"], dtype=np.float64) if o else None for o in overlaps),
        kind=tuple(e.get("kind", "data") for e in edges),
        hands_on=np.array([e.get("hands_on", False) for e in edges], dtype=np.bool_)
        if any("hands_on" in e for e in edges)
        else None,
    )


def _affinity(rule: dict[str, Any]) -> Affinity:
    return Affinity(
        stages=tuple(rule["stages"]),
        level=-1 if rule["level"] == "site" else LEVEL_NAMES.index(rule["level"]),
        apart=rule.get("apart", False),
        required=rule.get("required", True),
        penalty=round(rule.get("penalty", 0) * TICKS_PER_SECOND),
    )


def _refuse_overflow(document: dict[str, Any], topology: Topology, file: str) -> None:
    """Σ of the longest transfer of every edge, and of the dearest, and of the penalties, below 2⁶² ticks."""
    if topology.pair_latency is not None and topology.pair_seconds_per_byte is not None:
        latency, rate = float(topology.pair_latency.max()), float(topology.pair_seconds_per_byte.max())
    else:
        latency = max(float(x.max()) for x in topology.latency)
        rate = max(float(x.max()) for x in topology.seconds_per_byte)
    transfers = [(latency + e.get("bytes", 0) * rate, e.get("weight", 1)) for e in document["edges"]]
    penalties = sum(float(rule.get("penalty", 0)) for rule in document.get("affinity", []))
    if not sum(t for t, _ in transfers) * TICKS_PER_SECOND < _LIMIT:
        raise SpecError(file, "edges", "the sum of the longest transfers reaches 2^62 ns")
    if not (sum(w * t for t, w in transfers) + penalties) * TICKS_PER_SECOND < _LIMIT:
        raise SpecError(file, "edges", "the sum of the dearest transfers and penalties reaches 2^62 ns")
    longest = sum(max(s["options"]["time"], default=0) for s in document["stages"]) + sum(t for t, _ in transfers)
    if not document.get("makespan_weight", 0) * longest * TICKS_PER_SECOND < _LIMIT:
        raise SpecError(file, "makespan_weight", "the weighted sum of the longest times and transfers reaches 2^62 ns")


def _joined(each: list[dict[str, Any]], key: str, dtype: type[Any]) -> npt.NDArray[Any]:
    return np.concatenate([np.array(o[key], dtype=dtype) for o in each])


def _limit(seconds: float | None) -> int:
    """A limit in ticks; one that no sum can reach is none."""
    return NO_LIMIT if seconds is None or seconds * TICKS_PER_SECOND >= _LIMIT else round(seconds * TICKS_PER_SECOND)
