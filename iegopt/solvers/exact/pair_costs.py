"""Costs between all pairs of some options, for edges that are stated as tables.

What a pair pays depends on the link where the two sites meet and on whether both are gangs of one width (plus, with
overlap, on the option of the source). So pairs of sites get a number each, once for all edges, and an edge looks its
ticks up by that number. Bit-equal to ``problem.transfer.edge_ticks``, which prices what has no tree: a matrix of
measured pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import cost_ticks, edge_ticks, time_ticks
from iegopt.solvers.exact.site_tree import SiteTree

__all__ = ["PairCosts"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]

_MOST_KEPT = 2048
"""Sites up to which the numbers of all pairs are kept."""


class PairCosts:
    """Tables between options of a problem.

    Parameters
    ----------
    part, tree
        The topology of the sites in use, and its tree; ``None`` under a matrix of measured pairs.
    devices (K, S), capacity (D + 1,)
        Devices of every site, padded with the last, which has no limit.
    """

    def __init__(self, problem: Problem, part: Topology, tree: SiteTree | None, devices: Ints, capacity: Ints) -> None:
        self.problem, self._topology, self._tree = problem, part, tree
        self._devices, self._capacity = devices, capacity
        self._all: tuple[Codes | None, Ints] | None = None
        if tree is not None:
            latency = np.concatenate([np.zeros(1), *(level.latency for level in tree.levels)])
            rate = np.concatenate([np.zeros(1), *(level.seconds_per_byte for level in tree.levels)])
            width = part.shard_width
            self._widths = np.unique(np.append(width, 1))
            self._class = np.searchsorted(self._widths, width)
            self._latency, self._rate = (np.repeat(x, len(self._widths)) for x in (latency, rate))
            self._k = np.tile(self._widths, len(latency))

    def ticks(self, edge: int, source: Ints, target: Ints, sites: tuple[Ints, Ints]) -> tuple[Ints, Ints]:
        """(a, b) ticks of time and of cost between options of an edge's source and target.

        Parameters
        ----------
        source, target, sites
            Indices into the O arrays; of both, places among the sites in use.
        """
        codes = self._pairs(*sites)[0]
        if codes is None:
            return edge_ticks(self.problem, edge, source[:, None], target[None, :])
        edges = self.problem.edges
        home = np.arange(len(self._k)) < len(self._widths)
        size = edges.bytes[edge] / self._k
        raw = np.where(home, 0.0, self._latency + size * self._rate)
        hidden = edges.hidden[edge]
        if hidden is None:
            return time_ticks(raw)[codes], cost_ticks(self.problem, edge, raw)[codes]
        least = np.where(home, 0.0, self._latency + np.minimum(edges.chunk[edge] / self._k, size) * self._rate)
        hides = hidden[source - self.problem.options.ptr[edges.source[edge]]]
        seconds = raw[codes]
        seconds = np.where(seconds > 0, np.maximum(seconds - hides[:, None], least[codes]), 0.0)
        return time_ticks(seconds), cost_ticks(self.problem, edge, seconds)

    def common(self, source: Ints, target: Ints) -> Ints:
        """(a, b) the least capacity among the devices that two sites in use share, else ``NO_LIMIT``."""
        return self._pairs(source, target)[1]

    def _pairs(self, a: Ints, b: Ints) -> tuple[Codes | None, Ints]:
        """Numbers of pairs, and ``common``."""
        S = self._topology.S
        if S > _MOST_KEPT:
            return self._codes(a, b), self._common(a, b)
        if self._all is None:
            every = np.arange(S)
            self._all = self._codes(every, every), self._common(every, every)
        codes, common = self._all
        at = np.ix_(a, b)
        return None if codes is None else codes[at], common[at]

    def _codes(self, a: Ints, b: Ints) -> Codes | None:
        if self._tree is None:
            return None
        codes = self._tree.meeting(self._tree.position[a][:, None], self._tree.position[b][None, :]).astype(np.int32)
        if len(self._widths) > 1:
            mine, theirs = self._class[a], self._class[b]
            codes = codes * len(self._widths) + np.where(mine[:, None] == theirs[None, :], mine[:, None], 0)
        return np.asarray(codes, dtype=np.int32)

    def _common(self, a: Ints, b: Ints) -> Ints:
        common = np.full((len(a), len(b)), NO_LIMIT)
        near, far = self._devices[:, a].ravel(), self._devices[:, b].ravel()
        order = np.argsort(far, kind="stable")
        first, stop = (np.searchsorted(far[order], near, side=side) for side in ("left", "right"))
        count = np.where(near < len(self._capacity) - 1, stop - first, 0)
        pair = np.repeat(np.arange(len(near)), count)
        within = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
        other = order[first[pair] + within]
        np.minimum.at(common, (pair % len(a), other % len(b)), self._capacity[near[pair]])
        return common
