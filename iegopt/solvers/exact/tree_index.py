"""The topology tree laid out for messages: sites in tree order, every group a slice of them.

Sorted by (datacenter, rack, host, domain), the sites of any group stand next to each other, so the best of
every group is one ``np.minimum.reduceat``, and the sites that a site meets at a level are a slice.
A gang that bears −1 at a level becomes a group of its own there: it meets nobody but itself, and itself
costs nothing, so that group's link is never used. Levels whose groups are those of the level below (or
single sites) are left out: no two sites meet there for the first time.

Everything here depends on the ``Topology`` alone and is kept as long as it lives.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from weakref import WeakKeyDictionary

import numpy as np
import numpy.ma  # np.unique loads it when first called: 20 ms of the first deadline
import numpy.typing as npt

from iegopt.problem.topology import WAN, Topology

__all__ = ["FlatTree", "Level", "TreeIndex", "has_tree_index", "tree_index"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_MOST_ODD, _FEW_GROUPS = 9, 64

_kept: WeakKeyDictionary[Topology, TreeIndex] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class Level:
    """One level that joins something; its children are the groups of the kept level below, or the sites.

    Attributes
    ----------
    start (G,), parent (children,)
        First child of every group; group of every child.
    fan_out
        Children of every group where all have as many and strides are quicker than ``reduceat``; else 0.
    first (G + 1,), of_site (S,)
        First site (in tree order) of every group, closed by S; group of every site in tree order.
    latency, seconds_per_byte (G,) or (1,)
        One value where all groups of the level have the same link.
    """

    start: Ints
    parent: Ints
    fan_out: int
    first: Ints
    of_site: Ints
    latency: Floats
    seconds_per_byte: Floats

    def least(self, children: Ints) -> Ints:
        """(G,) the least value of every group: in strides where all groups are alike (quicker than ``reduceat``)."""
        fan_out = self.fan_out
        if not fan_out:
            return np.asarray(np.minimum.reduceat(children, self.start))
        while fan_out % 2 == 0:
            children = np.minimum(children[::2], children[1::2])
            fan_out //= 2
        least = children[::fan_out]
        for i in range(1, fan_out):
            least = np.minimum(least, children[i::fan_out])
        return least


@dataclass(frozen=True, eq=False)
class FlatTree:
    """The N nodes of the tree as one sequence: the sites in tree order, then the groups of every kept level.

    Attributes
    ----------
    child (N + 1,)
        First child of every group, the children of group g being the nodes ``child[g]:child[g + 1]``; 0 for sites.
    up, link (N,)
        Group of every node (the root's own for the root); number of a group's link through all levels, 0 for sites.
    first, last (N,)
        The sites below every node, as a slice.
    base (levels + 2,)
        Where the nodes of every level start, the sites being the first, closed by N.
    """

    child: Ints
    up: Ints
    link: Ints
    first: Ints
    last: Ints
    base: Ints


@dataclass(frozen=True, eq=False)
class TreeIndex:
    """The layout of a topology.

    Attributes
    ----------
    position (S,)
        Of every site, in tree order; ``in_order``: its own number.
    levels
        From the lowest up.
    offsets
        Where the links of every level start when all levels are counted through, closed by their number R.
    latency, seconds_per_byte (R,)
        Of those links.
    widths
        Widths above 1 of gangs whose shards move in parallel.
    """

    position: Ints
    in_order: bool
    levels: tuple[Level, ...]
    offsets: tuple[int, ...]
    latency: Floats
    seconds_per_byte: Floats
    widths: tuple[int, ...]

    @cached_property
    def flat(self) -> FlatTree:
        sites = len(self.position)
        counts = [sites, *(len(level.start) for level in self.levels)]
        base = np.concatenate([[0], np.cumsum(counts)])
        nodes = int(base[-1])
        own = np.arange(sites)
        child, link = np.zeros(nodes + 1, dtype=np.int64), np.zeros(nodes, dtype=np.int64)
        up = np.full(nodes, nodes - 1)
        first, last = [own], [own + 1]
        for i, level in enumerate(self.levels):
            here, below = slice(base[i + 1], base[i + 2]), slice(base[i], base[i + 1])
            child[here] = base[i] + level.start
            up[below] = base[i + 1] + level.parent
            link[here] = self.offsets[i] + (np.arange(len(level.start)) if len(level.latency) > 1 else 0)
            first.append(level.first[:-1])
            last.append(level.first[1:])
        child[nodes] = nodes - 1
        return FlatTree(child, up, link, np.concatenate(first), np.concatenate(last), base)


def has_tree_index(topology: Topology) -> bool:
    """Whether the layout of a topology is at hand."""
    return topology in _kept


def tree_index(topology: Topology) -> TreeIndex:
    """The layout of a topology, computed once per object.

    Raises
    ------
    ValueError
        If a group of a level does not lie inside one group of the next.
    """
    index = _kept.get(topology)
    if index is None:
        index = _kept[topology] = _build(topology)
    return index


def _build(topology: Topology) -> TreeIndex:
    sites = np.arange(topology.S)
    labels = [np.where(topology.group[level] >= 0, topology.group[level], -1 - sites) for level in range(WAN)]
    order = np.lexsort(labels) if topology.S else sites
    position = np.empty_like(order)
    position[order] = sites
    levels: list[Level] = []
    below = sites  # group of every site, in tree order, at the last kept level
    count = topology.S
    for level in (*range(WAN), WAN):
        label = labels[level][order] if level < WAN else np.zeros(topology.S, dtype=np.int64)
        change = np.concatenate([[True], label[1:] != label[:-1]])
        of_site = np.cumsum(change) - 1
        groups = int(of_site[-1]) + 1
        first = np.flatnonzero(change)
        nested = np.array_equal(np.flatnonzero(np.diff(below, prepend=-1))[below[first]], first)
        if len(np.unique(label)) != groups or not nested:
            raise ValueError(f"topology level {level}: a group is not inside one group of the next level")
        if groups == count:
            continue
        start = below[first]
        latency, rate = _links(topology, level, label[first])
        children = np.diff(start, append=count)
        levels.append(
            Level(
                start=start,
                parent=np.repeat(np.arange(groups), children),
                fan_out=_regular(children),
                first=np.append(first, topology.S),
                of_site=of_site,
                latency=latency,
                seconds_per_byte=rate,
            )
        )
        below, count = of_site, groups
    width = topology.shard_width
    return TreeIndex(
        position=position,
        in_order=bool((position == sites).all()),
        levels=tuple(levels),
        offsets=tuple(np.cumsum([0] + [len(level.latency) for level in levels]).tolist()),
        latency=np.concatenate([level.latency for level in levels] or [np.zeros(0)]),
        seconds_per_byte=np.concatenate([level.seconds_per_byte for level in levels] or [np.zeros(0)]),
        widths=tuple(np.unique(width[width > 1]).tolist()),
    )


def _regular(children: Ints) -> int:
    """The common number of children, where strides by it are quicker than ``reduceat``; else 0."""
    count = int(children[0])
    odd = count // (count & -count)
    many = len(children) >= _FEW_GROUPS
    return count if many and odd <= _MOST_ODD and bool((children == count).all()) else 0


def _links(topology: Topology, level: int, label: Ints) -> tuple[Floats, Floats]:
    """Links of the groups of a level; a gang's own group (label < 0) never moves anything: free."""
    real = label >= 0
    group = label[real]
    latency, rate = topology.latency[level][group], topology.seconds_per_byte[level][group]
    if (latency == latency[:1]).all() and (rate == rate[:1]).all():
        return latency[:1], rate[:1]
    all_latency, all_rate = np.zeros(len(label)), np.zeros(len(label))
    all_latency[real], all_rate[real] = latency, rate
    return all_latency, all_rate
