"""Transfer times and costs of an edge between options, vectorised (sections 3 of the placement model).

    raw(a, b)  = 0 where a = b, else latency + bytes/k/bandwidth of the link between a and b
    t          = raw, or with overlap  max(raw − hidden(option of the source), latency + min(chunk, bytes)/k/bandwidth)
    cost       = weight · t

k is the width of two equal gangs whose shards move in parallel, else 1. Seconds stay floats until they
are rounded, once, to ticks.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.problem.topology import WAN, Topology

__all__ = [
    "ChosenTransfers",
    "chosen_transfers",
    "cost_ticks",
    "edge_ticks",
    "keep_links",
    "kept_links",
    "links_among",
    "raw_seconds",
    "site_links",
    "time_ticks",
]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_kept: WeakKeyDictionary[Topology, Floats] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class ChosenTransfers:
    """What every edge takes under one choice: (E,) ticks of time and of cost, and raw seconds before overlap."""

    time: Ints
    cost: Ints
    raw: Floats


def time_ticks(seconds: Floats) -> Ints:
    """Seconds of transfer as ticks."""
    ticks: Ints = np.rint(seconds * TICKS_PER_SECOND).astype(np.int64)
    return ticks


def cost_ticks(problem: Problem, edge: int, seconds: Floats) -> Ints:
    """What seconds of transfer on this edge add to the objective, in ticks."""
    ticks: Ints = np.rint(problem.edges.weight[edge] * seconds * TICKS_PER_SECOND).astype(np.int64)
    return ticks


def edge_ticks(problem: Problem, edge: int, source: Ints, target: Ints) -> tuple[Ints, Ints]:
    """Ticks of time and of cost between options of an edge's two stages.

    Parameters
    ----------
    source, target
        Option indices (into the O arrays) of the edge's source and target; broadcast together.
    """
    source, target = np.broadcast_arrays(source, target)
    seconds, least = _raw_and_least(problem, edge, source, target)
    hidden = problem.edges.hidden[edge]
    if hidden is not None:
        start = problem.options.ptr[problem.edges.source[edge]]
        seconds = np.where(seconds > 0, np.maximum(seconds - hidden[source - start], least), 0.0)
    return time_ticks(seconds), cost_ticks(problem, edge, seconds)


def chosen_transfers(problem: Problem, choice: Ints) -> ChosenTransfers:
    """All edges at once for one choice (V,) of options; the same figures as edge by edge."""
    edges, options, topology = problem.edges, problem.options, problem.topology
    source, target = choice[edges.source], choice[edges.target]
    a, b = options.site[source], options.site[target]
    width = topology.shard_width
    k = np.where(width[a] == width[b], width[a], 1)
    latency, rate = _links(problem.topology, a, b)
    size = edges.bytes / k
    raw = np.where(a == b, 0.0, latency + size * rate)
    seconds = raw.copy()
    for e, hidden in enumerate(edges.hidden):
        if hidden is not None and raw[e] > 0:
            least = latency[e] + min(edges.chunk[e] / k[e], size[e]) * rate[e]
            seconds[e] = max(raw[e] - hidden[source[e] - options.ptr[edges.source[e]]], least)
    cost: Ints = np.rint(edges.weight * seconds * TICKS_PER_SECOND).astype(np.int64)
    return ChosenTransfers(time_ticks(seconds), cost, raw)


def raw_seconds(problem: Problem, edge: int, source: Ints, target: Ints) -> Floats:
    """Seconds of transfer between options before anything hides it; broadcast as in ``edge_ticks``."""
    source, target = np.broadcast_arrays(source, target)
    return _raw_and_least(problem, edge, source, target)[0]


def keep_links(topology: Topology) -> None:
    """Work the links of all pairs of a few sites out now, for ``kept_links``."""
    _kept[topology] = links_among(topology, np.arange(topology.S))


def kept_links(topology: Topology) -> Floats | None:
    """(S, 2, S) latency, and seconds per byte of the whole transfer, of all pairs; ``None`` where they are not kept."""
    return _kept.get(topology)


def links_among(topology: Topology, sites: Ints) -> Floats:
    """(m, 2, m) latency, and seconds per byte of the whole transfer, of all pairs of some sites; 0 within a site."""
    m = len(sites)
    found = np.empty((m, 2, m))
    if topology.parallel_shards or topology.pair_latency is not None:
        found[:, 0], found[:, 1] = site_links(topology, sites[:, None], sites[None, :])
        return found
    latency, rate = topology.all_links
    link = np.full((m, m), len(latency) - 1)
    group, offset = topology.group[:, sites], len(latency) - 1
    alone = -1 - np.arange(m)  # who has no group at a level shares none; from a site to itself is no link
    for level in reversed(range(WAN)):
        offset -= len(topology.latency[level])
        own = np.where(group[level] < 0, alone, group[level] + offset)
        np.copyto(link, own, where=own[:, None] == own)
    latency.take(link, out=found[:, 0], mode="clip")
    rate.take(link, out=found[:, 1], mode="clip")
    each = np.arange(m)
    found[each, :, each] = 0.0
    return found


def site_links(topology: Topology, a: Ints, b: Ints) -> tuple[Floats, Floats]:
    """Latency, and seconds per byte of the whole transfer, between sites; broadcast; 0 from a site to itself."""
    latency, rate = _links(topology, a, b)
    if topology.parallel_shards:
        width_a, width_b = topology.width[a], topology.width[b]
        rate = rate / np.where(width_a == width_b, width_a, 1)
    home = a == b
    return np.where(home, 0.0, latency), np.where(home, 0.0, rate)


def _raw_and_least(problem: Problem, edge: int, source: Ints, target: Ints) -> tuple[Floats, Floats]:
    options, topology = problem.options, problem.topology
    a, b = options.site[source], options.site[target]
    width = topology.shard_width
    k = np.where(width[a] == width[b], width[a], 1)
    latency, rate = _links(problem.topology, a, b)
    size = problem.edges.bytes[edge] / k
    raw = latency + size * rate
    least = latency + np.minimum(problem.edges.chunk[edge] / k, size) * rate
    return np.where(a == b, 0.0, raw), np.where(a == b, 0.0, least)


def _links(topology: Topology, a: Ints, b: Ints) -> tuple[Floats, Floats]:
    """Latency and seconds per byte between sites (a ≠ b assumed; the diagonal is the caller's)."""
    if topology.pair_latency is not None and topology.pair_seconds_per_byte is not None:
        return topology.pair_latency[a, b], topology.pair_seconds_per_byte[a, b]
    offset = sum(len(links) for links in topology.latency[:WAN])
    link = np.full(np.broadcast_shapes(a.shape, b.shape), offset)
    for level in reversed(range(WAN)):
        offset -= len(topology.latency[level])
        at_a, at_b = topology.group[level, a], topology.group[level, b]
        np.copyto(link, at_a + offset, where=(at_a == at_b) & (at_a >= 0))
    latency, rate = topology.all_links
    return latency[link], rate[link]
