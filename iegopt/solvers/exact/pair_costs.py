"""Costs between all pairs of some options, for edges that are stated as tables.

What a pair pays depends on the link where the two sites meet and on whether both are gangs of one width (plus, with
overlap, on the option of the source). So a pair of sites gets a number, and an edge looks its ticks up by that. Groups
are nested: the level at which two sites meet is the number of levels at which their groups differ. Bit-equal to
``problem.transfer.edge_ticks``, which prices what has no tree: a matrix of measured pairs.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.problem.transfer import cost_ticks, edge_ticks, time_ticks
from iegopt.solvers.exact.tree_index import tree_index

__all__ = ["PairCosts", "sharing"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MOST_NUMBERED = 250
"""Sites up to which the numbers of all their pairs are worked out once for all edges."""


class PairCosts:
    """Tables between options of a problem on some of its sites.

    Parameters
    ----------
    sites (m,)
        Sites in use, ascending.
    """

    def __init__(self, problem: Problem, sites: Ints) -> None:
        self.problem = problem
        topology = problem.topology
        self._measured = topology.pair_latency is not None
        if self._measured:
            return
        tree = tree_index(topology)
        self._group = [level.of_site[tree.position].astype(np.int32) for level in tree.levels[:-1]]
        """Per level but the widest, which joins all, the group (S,) of every site."""
        self._uniform = all(len(level.latency) == 1 for level in tree.levels)
        one = [np.zeros(topology.S, dtype=np.int64)]
        own = [level.of_site[tree.position] if len(level.latency) > 1 else one[0] for level in tree.levels]
        self._first = np.array([0, *(1 + offset for offset in tree.offsets[:-1])])
        self._own = np.stack(one + own)
        width = topology.shard_width
        self._widths = np.unique(np.append(width, 1))
        self._class = np.searchsorted(self._widths, width).astype(np.int8)
        latency, rate = (np.append(0.0, each) for each in (tree.latency, tree.seconds_per_byte))
        self._latency, self._rate = (np.repeat(x, len(self._widths)) for x in (latency, rate))
        self._k = np.tile(self._widths, len(latency))
        self._home = np.arange(len(self._k)) < len(self._widths)
        size = problem.edges.bytes[:, None] / self._k
        self._raw: Floats = np.where(self._home, 0.0, self._latency + size * self._rate)
        self._cost = np.rint(problem.edges.weight[:, None] * self._raw * TICKS_PER_SECOND).astype(np.int64)
        self._place: Ints | None = None
        if len(sites) <= _MOST_NUMBERED:
            self._place = np.zeros(topology.S, dtype=np.int64)
            self._place[sites] = np.arange(len(sites))
            self._numbers = self._codes(sites, sites)

    def ticks(self, edge: int, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """(a, b) ticks of time and of cost between options of an edge's source and target.

        Parameters
        ----------
        source, target
            Indices into the O arrays.
        """
        if self._measured:
            return edge_ticks(self.problem, edge, source[:, None], target[None, :])
        edges, site = self.problem.edges, self.problem.options.site
        codes = self._codes_of(site[source], site[target])
        raw, hidden = self._raw[edge], edges.hidden[edge]
        if hidden is None:
            cost = self._cost[edge].take(codes)
            return (time_ticks(raw).take(codes) if self.problem.has_path_limits else cost), cost
        size = edges.bytes[edge] / self._k
        least = np.where(self._home, 0.0, self._latency + np.minimum(edges.chunk[edge] / self._k, size) * self._rate)
        hides = hidden[source - self.problem.options.ptr[edges.source[edge]]]
        seconds = raw[codes]
        seconds = np.where(seconds > 0, np.maximum(seconds - hides[:, None], least[codes]), 0.0)
        return time_ticks(seconds), cost_ticks(self.problem, edge, seconds)

    def _codes_of(self, a: Ints, b: Ints) -> npt.NDArray[np.intp]:
        """As ``_codes``, looked up where all are known."""
        if self._place is None:
            return self._codes(a, b)
        return self._numbers[self._place[a][:, None], self._place[b]]

    def _codes(self, a: Ints, b: Ints) -> npt.NDArray[np.intp]:
        """(a, b) numbers of the links over which sites meet, 0 at home, and of the widths that both have in common."""
        level = (a[:, None] != b).view(np.int8)
        for group in self._group:
            level += group[a][:, None] != group[b]
        codes: npt.NDArray[np.intp] = level.astype(np.intp)
        if not self._uniform:
            codes = self._first[codes] + self._own[codes, a[:, None]]
        if len(self._widths) > 1:
            mine, theirs = self._class[a], self._class[b]
            codes *= len(self._widths)
            codes += np.where(mine[:, None] == theirs, mine[:, None], np.int8(0))
        return codes


def sharing(near: Ints, far: Ints, none: int) -> tuple[Ints, Ints, Ints]:
    """(P,) options of the near and of the far end, and a device that both use; again for every further device.

    Parameters
    ----------
    near, far
        (K, a) and (K, b) devices of options, padded with ``none``.
    """
    order = np.argsort(far, axis=None, kind="stable")
    users, devices = np.bincount(far.ravel(), minlength=none + 1), near.ravel()
    first = (np.cumsum(users) - users)[devices]
    count = np.where(devices < none, users[devices], 0)
    pair = np.repeat(np.arange(len(devices)), count)
    within = np.arange(len(pair)) - np.repeat(np.cumsum(count) - count, count)
    other = order[first[pair] + within]
    return pair % near.shape[1], other % far.shape[1], devices[pair]
