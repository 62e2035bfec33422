"""Ticks of transfer one edge and one source at a time, each computed once: what list scheduling asks for.

The figures are those of ``iegopt.problem.transfer``, in the same order of operations.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.problem.topology import WAN

__all__ = ["Transfers"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


class Transfers:
    """Transfers from an option of an edge's source, to all allowed options of its target or to one of any."""

    def __init__(self, problem: Problem, own: list[Ints]) -> None:
        """``own`` (V, allowed options): indices into the O arrays."""
        topology, edges, options = problem.topology, problem.edges, problem.options
        self._problem = problem
        self._own_site = [options.site[each] for each in own]
        self._bytes: list[float] = edges.bytes.tolist()
        self._weight: list[float] = edges.weight.tolist()
        self._chunk: list[float] = edges.chunk.tolist()
        self._source: list[int] = edges.source.tolist()
        self._target: list[int] = edges.target.tolist()
        self._ptr: list[int] = options.ptr.tolist()
        self._width: Ints = topology.shard_width
        self._sharded = bool((self._width != 1).any())
        self._links: dict[int, tuple[Floats, Floats]] = {}
        self._rows: dict[tuple[int, int], tuple[Ints, Ints | None]] = {}
        self._pairs: dict[tuple[int, int, int], tuple[int, int]] = {}

    def row(self, e: int, option: int) -> tuple[Ints, Ints | None]:
        """(allowed options of the target,) ticks of time and of cost; ``None`` where an edge costs nothing."""
        found = self._rows.get((e, option))
        if found is None:
            found = self._rows[e, option] = self._row(e, option)
        return found

    def between(self, e: int, a: int, b: int) -> tuple[int, int]:
        """Ticks of time and of cost between option ``a`` of the source and option ``b`` of the target."""
        found = self._pairs.get((e, a, b))
        if found is None:
            found = self._pairs[e, a, b] = self._between(e, a, b)
        return found

    def _row(self, e: int, option: int) -> tuple[Ints, Ints | None]:
        here = int(self._problem.options.site[option])
        latency, rate = self.links(here)
        there = self._own_site[self._target[e]]
        size: float | Floats = self._bytes[e]
        chunk: float | Floats = self._chunk[e]
        if self._sharded:
            k = np.where(self._width == self._width[here], self._width[here], 1)
            size, chunk = size / k, chunk / k
        seconds = latency + size * rate
        hidden = self._hidden(e, option)
        if hidden is not None:
            seconds = np.maximum(seconds - hidden, latency + np.minimum(chunk, size) * rate)
        seconds[here] = 0.0
        weight = self._weight[e]
        time = np.rint(seconds * TICKS_PER_SECOND).astype(np.int64)[there]
        return time, np.rint(weight * seconds * TICKS_PER_SECOND).astype(np.int64)[there] if weight else None

    def _between(self, e: int, a: int, b: int) -> tuple[int, int]:
        site = self._problem.options.site
        here, there = int(site[a]), int(site[b])
        if here == there:
            return 0, 0
        latencies, rates = self.links(here)
        latency, rate = float(latencies[there]), float(rates[there])
        size, chunk = self._bytes[e], self._chunk[e]
        if self._sharded and self._width[here] == self._width[there]:
            size, chunk = size / int(self._width[here]), chunk / int(self._width[here])
        seconds = latency + size * rate
        hidden = self._hidden(e, a)
        if hidden is not None:
            seconds = max(seconds - hidden, latency + min(chunk, size) * rate)
        return round(seconds * TICKS_PER_SECOND), round(self._weight[e] * seconds * TICKS_PER_SECOND)

    def _hidden(self, e: int, option: int) -> float | None:
        hidden = self._problem.edges.hidden[e]
        return None if hidden is None else float(hidden[option - self._ptr[self._source[e]]])

    def links(self, here: int) -> tuple[Floats, Floats]:
        """(S,) latency and seconds per byte from a site to all others."""
        found = self._links.get(here)
        if found is not None:
            return found
        topology = self._problem.topology
        if topology.pair_latency is not None and topology.pair_seconds_per_byte is not None:
            found = topology.pair_latency[here], topology.pair_seconds_per_byte[here]
        else:
            latency = np.full(topology.S, topology.latency[WAN][0])
            rate = np.full(topology.S, topology.seconds_per_byte[WAN][0])
            for level in reversed(range(WAN)):
                group = int(topology.group[level, here])
                if group >= 0:
                    inside = topology.group[level] == group
                    latency[inside] = topology.latency[level][group]
                    rate[inside] = topology.seconds_per_byte[level][group]
            found = latency, rate
        self._links[here] = found
        return found
