"""The promising sites of a cluster with what first plans need of them, and what a request's stages take there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.cost.rows import KindRates
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.sites import SiteTable
from iegopt.problem.stage_options import Block
from iegopt.problem.transfer import kept_links
from iegopt.solvers.search.best_fit import Board

__all__ = ["Facts", "Promising"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Promising:
    """The m sites of a table, as long as the cluster finds these the promising ones.

    Attributes
    ----------
    kind (m,), price (m,)
        Index into ``table.kinds``, and $/h.
    members
        Per site the ids of its devices.
    """

    cluster: CompiledCluster
    table: SiteTable
    board: Board
    rates: KindRates
    kind: Ints
    price: Floats
    members: tuple[tuple[str, ...], ...]

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
        board = Board(links, topology.device_ptr[:-1], topology.device_index, topology.width)
        members = tuple(tuple(topology.devices[d] for d in topology.devices_of(s)) for s in range(topology.S))
        return cls(cluster, table, board, rates, kind, cluster.state.site_price(topology), members)


@dataclass(frozen=True, eq=False)
class Facts:
    """Stages on kinds of sites, and edges.

    Attributes
    ----------
    seconds (V, K), terms (4, V, K), held (V, K)
        As in ``cost.rows``; load times of weights are part of the seconds, and transfer buffers of what is held.
    weights (V, K)
        Bytes of weights over the whole site.
    blocks
        (stage, kind) -> what a stage with a model is there.
    ends (E, 2), sizes (E,)
        Stages of every edge, and its bytes on the wire.
    """

    seconds: Floats
    terms: Floats
    held: Floats
    weights: Floats
    blocks: Mapping[tuple[int, int], Block]
    ends: Ints
    sizes: Floats
