"""A few promising sites of every kind: what a plan looks at where the time does not suffice for the whole cluster.

Near each other, lightly loaded and with room, in this order: around the rack that has usable sites of most kinds, half
of a kind's sites are the nearest and half the least loaded anywhere. The choice is the cluster's and its state's alone,
so that its topology is laid out once and serves many plans.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.sites import SiteTable
from iegopt.problem.state import ClusterState
from iegopt.problem.transfer import keep_links

__all__ = ["FOCUS_SITES", "focused"]

Ints = npt.NDArray[np.int64]

FOCUS_SITES = 96
"""Sites in all, where every kind gets at least ``_LEAST``; clusters of up to twice as many are taken whole."""
_LEAST = 4
_RACK, _DATACENTER = 2, 3


def focused(table: SiteTable, state: ClusterState) -> SiteTable:
    """The table cut to its promising sites; as it is, where it is small."""
    topology = table.topology
    if topology.S <= 2 * FOCUS_SITES:
        keep_links(topology)
        return table
    load, free = state.site_load(topology), topology.tightest(state.free)
    usable = np.isfinite(load) & (free > 0)
    near = _distance(table, usable)
    each = max(_LEAST, FOCUS_SITES // len(table.kinds))
    chosen = []
    for sites in table.of_kind:
        worse = ~usable[sites]
        by_place = np.lexsort((-free[sites], load[sites], near[sites], worse))
        by_load = np.lexsort((near[sites], -free[sites], load[sites], worse))
        order = np.concatenate([by_place[: each - each // 2], by_load[:each]])
        chosen.append(sites[order[np.sort(np.unique(order, return_index=True)[1])][:each]])
    sites = np.sort(np.concatenate(chosen))
    part = topology.part(sites)
    keep_links(part)
    return SiteTable(
        topology=part,
        kinds=table.kinds,
        of_kind=tuple(np.searchsorted(sites, np.sort(own)) for own in chosen),
        whole=sites,
    )


def _distance(table: SiteTable, usable: npt.NDArray[np.bool_]) -> Ints:
    """(S,) 0 in the rack with usable sites of most kinds, 1 in its datacenter, 2 elsewhere."""
    rack, datacenter = table.topology.group[_RACK], table.topology.group[_DATACENTER]
    kinds = np.zeros(int(rack.max(initial=0)) + 1, dtype=np.int64)
    for sites in table.of_kind:
        kinds[np.unique(rack[sites[usable[sites] & (rack[sites] >= 0)]])] += 1
    home = int(kinds.argmax())
    inside = np.flatnonzero(rack == home)
    own = datacenter[inside[0]] if inside.size else -1
    return np.where(rack == home, 0, np.where((datacenter == own) & (own >= 0), 1, 2))
