"""Costs between all pairs of some options, for edges that are stated as tables.

What a pair pays depends on the link where the two sites meet and on whether both are gangs of one width (plus, with
overlap, on the option of the source). So a pair of sites gets a number, and an edge looks its ticks up by that. Groups
are nested: the level at which two sites meet is the number of levels at which their groups differ. Bit-equal to
``problem.transfer.edge_ticks``, which prices what has no tree: a matrix of measured pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import cost_ticks, edge_ticks, time_ticks
from iegopt.solvers.exact.tree_index import tree_index

__all__ = ["Numbers", "PairCosts", "sharing"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_kept: WeakKeyDictionary[Topology, Numbers] = WeakKeyDictionary()

_MOST_NUMBERED = 250
"""Sites up to which the numbers of all their pairs are worked out once for all edges."""


@dataclass(frozen=True, eq=False)
class Numbers:
    """Of the links of a topology at which two sites can meet, 0 at home, times every width that both may have.

    Attributes
    ----------
    group (levels − 1, S)
        Per level but the widest, which joins all, the group of every site.
    first (levels + 1,), own (levels + 1, S)
        Number of a level's first link, home being a level of its own; what it is more for a site's.
    kind (S,), widths
        Which of the widths a site has.
    latency, rate, width (N,)
        Seconds, seconds per byte, and shards of what every number stands for.
    uniform
        Whether all links of a level are alike.
    """

    group: Ints
    first: Ints
    own: Ints
    kind: Ints
    widths: Ints
    latency: Floats
    rate: Floats
    width: Ints
    uniform: bool

    @classmethod
    def of(cls, topology: Topology) -> Numbers:
        """Kept as long as the topology lives; it has no measured pairs."""
        known = _kept.get(topology)
        if known is None:
            known = _kept[topology] = cls._of(topology)
        return known

    @classmethod
    def _of(cls, topology: Topology) -> Numbers:
        tree, S = tree_index(topology), topology.S
        group = [level.of_site[tree.position] for level in tree.levels]
        none = np.zeros(S, dtype=np.int64)
        own = [none, *(g if len(level.latency) > 1 else none for g, level in zip(group, tree.levels, strict=True))]
        widths = np.unique(np.append(topology.shard_width, 1))
        latency, rate = (np.append(0.0, each) for each in (tree.latency, tree.seconds_per_byte))
        return cls(
            np.array(group[:-1], dtype=np.int64).reshape(-1, S),
            np.array([0, *(1 + offset for offset in tree.offsets[:-1])]),
            np.stack(own),
            np.searchsorted(widths, topology.shard_width),
            widths,
            np.repeat(latency, len(widths)),
            np.repeat(rate, len(widths)),
            np.tile(widths, len(latency)),
            all(len(level.latency) == 1 for level in tree.levels),
        )

    def between(self, a: Ints, b: Ints) -> npt.NDArray[np.intp]:
        """(a, b) numbers of pairs of sites."""
        level = (a[:, None] != b).view(np.int8)
        groups, kind = self._small
        for group in groups:
            level += group[a][:, None] != group[b]
        if self.uniform and len(self.width) <= np.iinfo(np.int8).max:
            if len(self.widths) > 1:
                own = kind[a][:, None]
                level *= np.int8(len(self.widths))
                level += own * (own == kind[b])
            return np.asarray(level, dtype=np.intp)
        numbers: npt.NDArray[np.intp] = level.astype(np.intp)
        if not self.uniform:
            numbers = self.first[numbers] + self.own[numbers, a[:, None]]
        if len(self.widths) > 1:
            mine, theirs = self.kind[a], self.kind[b]
            numbers *= len(self.widths)
            numbers += np.where(mine[:, None] == theirs, mine[:, None], 0)
        return numbers

    @cached_property
    def _small(self) -> tuple[npt.NDArray[Any], npt.NDArray[np.int8]]:
        """``group`` and ``kind`` in as few bytes as hold them: pairs are compared by the hundred thousand."""
        return self.group.astype(np.min_scalar_type(-1 - int(self.group.max(initial=0)))), self.kind.astype(np.int8)


class PairCosts:
    """Tables between options of a problem on some of its sites.

    Parameters
    ----------
    site (n,)
        Sites in use.
    """

    def __init__(self, problem: Problem, site: Ints) -> None:
        self.problem = problem
        self._site = site
        self._measured = problem.topology.pair_latency is not None

    def by_link(self, edge: int) -> bool:
        """Whether an edge costs by the number of a pair alone."""
        return not self._measured and self.problem.edges.hidden[edge] is None

    @cached_property
    def numbers(self) -> Numbers:
        return Numbers.of(self.problem.topology)

    @cached_property
    def _home(self) -> Bools:
        return np.arange(len(self.numbers.width)) < len(self.numbers.widths)

    @cached_property
    def _raw(self) -> Floats:
        """(E, N) seconds."""
        numbers = self.numbers
        size = self.problem.edges.bytes[:, None] / numbers.width
        return np.where(self._home, 0.0, numbers.latency + size * numbers.rate)

    @cached_property
    def time(self) -> Ints:
        """(E, N) ticks of time."""
        return time_ticks(self._raw)

    @cached_property
    def cost(self) -> Ints:
        """(E, N) ticks of cost."""
        return np.rint(self.problem.edges.weight[:, None] * self._raw * TICKS_PER_SECOND).astype(np.int64)

    @cached_property
    def _known(self) -> tuple[Ints, npt.NDArray[np.intp]] | None:
        """The place (S,) of every site in use, and the numbers of all their pairs, where these are few."""
        sites = np.unique(self._site)
        if len(sites) > _MOST_NUMBERED:
            return None
        place = np.zeros(self.problem.topology.S, dtype=np.int64)
        place[sites] = np.arange(len(sites))
        return place, self.numbers.between(sites, sites)

    def ticks(self, edge: int, source: Ints, target: Ints) -> tuple[Ints, Ints]:
        """(a, b) ticks of time and of cost between options of an edge's source and target.

        Parameters
        ----------
        source, target
            Indices into the O arrays.
        """
        if self._measured:
            return edge_ticks(self.problem, edge, source[:, None], target[None, :])
        edges, site, numbers = self.problem.edges, self.problem.options.site, self.numbers
        of_pairs = self._between(site[source], site[target])
        raw, hidden = self._raw[edge], edges.hidden[edge]
        if hidden is None:
            cost = self.cost[edge].take(of_pairs)
            return (self.time[edge].take(of_pairs) if self.problem.has_path_limits else cost), cost
        size = edges.bytes[edge] / numbers.width
        chunk = np.minimum(edges.chunk[edge] / numbers.width, size)
        least = np.where(self._home, 0.0, numbers.latency + chunk * numbers.rate)
        hides = hidden[source - self.problem.options.ptr[edges.source[edge]]]
        seconds = raw[of_pairs]
        seconds = np.where(seconds > 0, np.maximum(seconds - hides[:, None], least[of_pairs]), 0.0)
        return time_ticks(seconds), cost_ticks(self.problem, edge, seconds)

    def _between(self, a: Ints, b: Ints) -> npt.NDArray[np.intp]:
        if self._known is None:
            return self.numbers.between(a, b)
        place, numbers = self._known
        return numbers[place[a][:, None], place[b]]


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
