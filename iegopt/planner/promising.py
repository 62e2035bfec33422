"""The promising sites of a cluster with what first plans need of them, and what a request's stages take there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from iegopt.cost.rows import KindRates
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.decode import SAME_SITE
from iegopt.problem.sites import SiteTable
from iegopt.problem.topology import WAN, Topology
from iegopt.problem.transfer import kept_links
from iegopt.solvers.cells import cells
from iegopt.solvers.search.best_fit import Board
from iegopt.spec.cluster import LEVELS

__all__ = ["Promising"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Promising:
    """The m sites of a table, as long as the cluster finds these the promising ones.

    Attributes
    ----------
    links (m, 2, m), latency, rate, path (m, m)
        Of every two sites: seconds, and seconds per byte of the whole transfer, 0 within a site, as an array and as
        lists; level of the link.
    kind, kinds (m,), worth (m,)
        Index into ``table.kinds``, as an array and as a list, and $/h in parts of the reference price.
    degree (K,), spans
        Per kind the devices of a site, and where its sites begin and end among all of them, kind after kind.
    device (n,), devices
        The cluster's devices that these sites have, and per site its own by their number among these.
    members
        Per site the ids of its devices.
    """

    cluster: CompiledCluster
    table: SiteTable
    rates: KindRates
    links: Floats
    latency: Sequence[Sequence[float]]
    rate: Sequence[Sequence[float]]
    path: Sequence[Sequence[str]]
    kind: Ints
    kinds: Sequence[int]
    worth: Floats
    degree: Ints
    spans: Sequence[tuple[int, int]]
    device: Ints
    devices: Sequence[Sequence[int]]
    members: tuple[tuple[str, ...], ...]
    _cells: dict[int, Sequence[int]] = field(default_factory=dict)

    @classmethod
    def of(cls, cluster: CompiledCluster, table: SiteTable, rates: KindRates) -> Promising | None:
        """``None`` where the links of all pairs are not kept."""
        topology = table.topology
        links = kept_links(topology)
        if links is None:
            return None
        kind = np.empty(topology.S, dtype=np.int64)
        for k, sites in enumerate(table.of_kind):
            kind[sites] = k
        price = cluster.state.site_price(topology)
        device, number = np.unique(topology.device_index, return_inverse=True)
        return cls(
            cluster=cluster,
            table=table,
            rates=rates,
            links=links,
            latency=links[:, 0].tolist(),
            rate=links[:, 1].tolist(),
            path=_paths(topology),
            kind=kind,
            kinds=kind.tolist(),
            worth=price / cluster.reference_price,
            degree=np.array([size for _, size, _ in table.kinds]),
            spans=tuple(pairwise([0, *np.cumsum([len(sites) for sites in table.of_kind]).tolist()])),
            device=device,
            devices=tuple(tuple(number[a:b].tolist()) for a, b in pairwise(topology.device_ptr.tolist())),
            members=tuple(tuple(topology.devices[d] for d in topology.devices_of(s)) for s in range(topology.S)),
        )

    @property
    def layout(self) -> tuple[Ints, Ints, Ints, Ints]:
        """For kernels: kind (m,), degree (K,), start (m + 1,) and devices of every site, by their number in all."""
        topology = self.table.topology
        return self.kind, self.degree, topology.device_ptr, topology.device_index

    def cells(self, level: int) -> Sequence[int]:
        """(m,) labels, equal for sites that meet at a level (−1: the site itself)."""
        if level not in self._cells:
            self._cells[level] = cells(self.table.topology, level).tolist()
        return self._cells[level]

    def free(self) -> list[float]:
        """(n,) bytes that are free on every device of these sites now."""
        found: list[float] = self.cluster.state.free[self.device].tolist()
        return found

    def room(self) -> Ints:
        """(m,) bytes that are free on every site now, where a stage takes the same of each of its devices."""
        topology = self.table.topology
        return np.asarray(topology.tightest(self.cluster.state.free) * topology.width)

    def board(self, load: Floats, factor: Floats) -> Board:
        """The sites under a load (m,), priced by a factor (m,)."""
        order: list[int] = np.lexsort((factor, self.kind)).tolist()
        ranked = [order[begin:end] for begin, end in self.spans]
        return Board(self.latency, self.rate, self.devices, self.kinds, ranked, factor.tolist(), load.tolist())


def _paths(topology: Topology) -> list[list[str]]:
    """(m, m) the lowest level at which two sites meet, in the words of a plan."""
    group, names = topology.group, np.array([*LEVELS, SAME_SITE])
    level = np.full((topology.S, topology.S), WAN)
    for above in range(WAN - 1, -1, -1):
        level[(group[above][:, None] == group[above]) & (group[above] >= 0)] = above
    np.fill_diagonal(level, len(LEVELS))
    found: list[list[str]] = names[level].tolist()
    return found
