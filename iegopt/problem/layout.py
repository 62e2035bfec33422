"""Places of a topology by what is inside them, so that equal hosts can be told (``classes.py``)."""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from iegopt.problem.topology import LEVEL_NAMES, Topology

__all__ = ["Layout", "has_layout", "layout_of", "place_inside"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_DOMAIN, _HOST = LEVEL_NAMES.index("domain"), LEVEL_NAMES.index("host")


@dataclass(frozen=True, eq=False)
class Layout:
    """What a topology says about its places, whatever the problem.

    Attributes
    ----------
    order (S,)
        Rank of every site by host and then by its place inside.
    inside (S,)
        Number of the place inside its host: equal ones have the same devices of their host, domain and link.
    single (S,)
        Whether a site is one device that is in no other site.
    odd
        Per level the groups that a site touches without lying inside one.
    """

    order: Ints
    inside: Ints
    single: Bools
    odd: tuple[Bools, ...]


_kept: WeakKeyDictionary[Topology, Layout] = WeakKeyDictionary()


def has_layout(topology: Topology) -> bool:
    """Whether the layout of a topology is at hand."""
    return topology in _kept


def layout_of(topology: Topology) -> Layout:
    """The layout of a topology, computed once per object."""
    layout = _kept.get(topology)
    if layout is None:
        layout = _kept[topology] = _lay_out(topology)
    return layout


def _lay_out(topology: Topology) -> Layout:
    S, D, width = topology.S, topology.D, topology.width
    site = np.repeat(np.arange(S), width)
    device = topology.device_index
    odd = []
    for level in range(len(LEVEL_NAMES)):
        group = topology.group[level]
        of_device = np.full(D, -1)
        lies = group[site] >= 0
        of_device[device[lies]] = group[site[lies]]
        touched = of_device[device[~lies]]
        odd.append(np.zeros(int(max(group.max(), 0)) + 1, dtype=np.bool_))
        odd[-1][touched[touched >= 0]] = True
        # What holds a site that spans groups below is like no other.
        for below in range(_HOST, level):
            odd[-1][group[(group >= 0) & (topology.group[below] < 0)]] = True
    host_of = np.full(D, -1)
    lies = topology.group[_HOST][site] >= 0
    host_of[device[lies]] = topology.group[_HOST][site[lies]]
    local = place_inside(host_of, np.arange(D))
    host, domain = topology.group[_HOST], topology.group[_DOMAIN]
    rows = np.full((S, 2 + int(width.max())), -1)
    names, label = np.unique(np.stack([host, domain]), axis=1, return_inverse=True)
    rank = place_inside(names[0], np.arange(names.shape[1]))[label.ravel()]
    rows[:, 0] = np.where(domain >= 0, rank, -1)
    links = np.stack([topology.latency[_DOMAIN][domain], topology.seconds_per_byte[_DOMAIN][domain]])
    rows[:, 1] = np.where(domain >= 0, np.unique(links, axis=1, return_inverse=True)[1].ravel(), -1)
    within = np.arange(len(site)) - np.repeat(topology.device_ptr[:-1], width)
    rows[site, 2 + within] = local[device]
    inside = np.unique(rows, axis=0, return_inverse=True)[1].ravel()
    order = np.empty(S, dtype=np.int64)
    order[np.lexsort([np.arange(S), inside, host])] = np.arange(S)
    uses = np.bincount(device, minlength=D)
    single = (width == 1) & (uses[device[topology.device_ptr[:-1]]] == 1)
    return Layout(order, inside, single, tuple(odd))


def place_inside(group: Ints, item: Ints) -> Ints:
    """(n,) rank of every item among those of its group."""
    order = np.lexsort([item, group])
    sorted_group = group[order]
    first = np.flatnonzero(np.append(True, sorted_group[1:] != sorted_group[:-1])) if len(order) else order
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order)) - np.repeat(first, np.diff(np.append(first, len(order))))
    return rank
