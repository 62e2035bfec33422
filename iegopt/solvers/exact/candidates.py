"""The options that survive pruning, with their edges and devices laid out for batched bounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.exact.links import LevelLink, Link, SiteTree, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.relaxation import Forest, spanning_forest

__all__ = ["Candidates", "above_any_plan", "candidates", "follows_tree", "table_cells"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_TABLE_CELLS = 8_000
"""Pairs of options up to which a table is quicker than the topology tree."""


@dataclass(frozen=True, eq=False)
class Candidates:
    """n options, stage-major; those of stage v are ``of[v]``.

    Attributes
    ----------
    option (n,)
        Indices into the problem's options, ascending in tree position within a stage.
    of
        Per stage its slice.
    cost, share (n,)
        Ticks; memory taken from each device of the site.
    devices (K, n)
        Devices of every option's site, as indices into ``capacity``, padded with the last.
    used (D,), capacity (D + 1,)
        The devices in use, ascending; the memory of each, and ``NO_LIMIT`` for the padding.
    links
        Per edge; ``None`` where it costs nothing.
    ends
        Per edge its source and target stage.
    """

    problem: Problem
    option: Ints
    of: tuple[slice, ...]
    cost: Ints
    share: Ints
    devices: Ints
    used: Ints
    capacity: Ints
    forest: Forest
    links: tuple[Link | None, ...]
    ends: tuple[tuple[int, int], ...]

    @property
    def V(self) -> int:
        return len(self.of)

    def cost_of(self, plans: Ints) -> Ints:
        """(P,) ticks of options and edges of plans (P, V), without penalties; ``UNREACHABLE`` where two clash."""
        total = self.cost[plans].sum(axis=1)
        local = plans - np.array([part.start for part in self.of])
        for link, (u, v) in zip(self.links, self.ends, strict=True):
            if link is not None:
                total = np.minimum(total + link.pairs(local[:, u], local[:, v]), UNREACHABLE)
        return np.asarray(total)

    def restrict(self, keep: Bools) -> Candidates:
        """The candidates in a mask (n,), with tables for the edges that have become small."""
        rows = np.flatnonzero(keep)
        count = [int(keep[part].sum()) for part in self.of]
        local = [np.flatnonzero(keep[part]) for part in self.of]
        links: list[Link | None] = []
        for link, (u, v) in zip(self.links, self.ends, strict=True):
            if isinstance(link, LevelLink) and count[u] * count[v] > _TABLE_CELLS:
                links.append(dataclasses.replace(link, source=link.source[local[u]], target=link.target[local[v]]))
            elif isinstance(link, LevelLink):
                part = dataclasses.replace(link, target=link.target[local[v]])
                links.append(TableLink(part.rows(local[u], True)))
            elif isinstance(link, TableLink):
                links.append(TableLink(np.ascontiguousarray(link.table[np.ix_(local[u], local[v])])))
            else:
                links.append(None)
        return dataclasses.replace(
            self,
            option=self.option[rows],
            of=_slices(count),
            cost=self.cost[rows],
            share=self.share[rows],
            devices=self.devices[:, rows],
            links=tuple(links),
        )


def candidates(problem: Problem, mask: Bools) -> Candidates:
    """Lay out the options in a mask (O,); every stage must have one."""
    options, topology = problem.options, problem.topology
    sites, site = np.unique(options.site[mask], return_inverse=True)
    part = _some_sites(topology, sites)
    tree = SiteTree(part) if topology.pair_latency is None else None
    position = site if tree is None else tree.position[site]
    option = np.flatnonzero(mask)
    order = np.lexsort((position, options.stage[option]))
    option, position, site = option[order], position[order], site[order]
    count = np.bincount(options.stage[option], minlength=problem.V).tolist()
    of = _slices(count)
    share = options.share[option]
    used, padded = _devices(part)
    forest = spanning_forest(problem)
    tightest = topology.tightest(problem.capacity)[sites]
    ends = tuple(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True))
    links: list[Link | None] = []
    for e, (u, v) in enumerate(ends):
        a, b = of[u], of[v]
        if problem.edges.weight[e] == 0:
            links.append(None)
        elif tree is not None and follows_tree(problem, e):
            apart = np.zeros(tree.S, dtype=np.bool_)
            together = _least_share(tree.S, position[a], share[a]) + _least_share(tree.S, position[b], share[b])
            apart[tree.position] = together[tree.position] > tightest
            level = LevelLink.of(tree, problem, e, position[a], position[b], apart)
            small = count[u] * count[v] <= _TABLE_CELLS
            links.append(TableLink(level.rows(np.arange(count[u]), True)) if small else level)
        else:
            table = edge_ticks(problem, e, option[a][:, None], option[b][None, :])[1]
            need = share[a][:, None] + share[b][None, :]
            clash = need > _common(padded, problem.capacity[used], site[a], site[b])
            links.append(TableLink(np.where(clash, UNREACHABLE, table)))
    capacity = np.append(problem.capacity[used], NO_LIMIT)
    return Candidates(
        problem, option, of, options.cost[option], share, padded[:, site], used, capacity, forest, tuple(links), ends
    )


def follows_tree(problem: Problem, edge: int | None = None) -> bool:
    """Whether the cost of an edge (``None``: of any) depends on the group where its ends meet alone."""
    topology = problem.topology
    if topology.pair_latency is not None or bool((topology.shard_width > 1).any()):
        return False
    return edge is None or problem.edges.hidden[edge] is None


def table_cells(problem: Problem) -> int:
    """Cells of the tables of the edges that do not follow the topology tree, over the allowed options."""
    count = np.bincount(problem.options.stage[problem.allowed], minlength=problem.V).tolist()
    ends = zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)
    return sum(count[u] * count[v] for e, (u, v) in enumerate(ends) if not follows_tree(problem, e))


def above_any_plan(problem: Problem, mask: Bools) -> int:
    """Ticks above the objective of any plan: the sum of what is dearest everywhere."""
    options, topology, edges = problem.options, problem.topology, problem.edges
    dear = np.zeros(problem.V, dtype=np.int64)
    np.maximum.at(dear, options.stage[mask], options.cost[mask])
    pair = topology.pair_latency
    latency = max(float(x.max(initial=0)) for x in ((pair,) if pair is not None else topology.latency))
    rates = topology.pair_seconds_per_byte
    rate = max(float(x.max(initial=0)) for x in ((rates,) if rates is not None else topology.seconds_per_byte))
    seconds = float((edges.weight * (latency + edges.bytes * rate)).sum())
    penalties = sum(max(0, rule.penalty) for rule in problem.affinities)
    return int(dear.sum()) + math.ceil(seconds * TICKS_PER_SECOND) + penalties + problem.E + 1


def _slices(count: Sequence[int]) -> tuple[slice, ...]:
    stops = np.cumsum(np.asarray(count, dtype=np.int64)).tolist()
    return tuple(slice(stop - n, stop) for stop, n in zip(stops, count, strict=True))


def _some_sites(topology: Topology, sites: Ints) -> Topology:
    """The topology of some sites; devices keep their numbers."""
    width = topology.width[sites]
    starts = np.repeat(topology.device_ptr[sites] - np.cumsum(width) + width, width)
    pairs = np.ix_(sites, sites)
    latency, rate = topology.pair_latency, topology.pair_seconds_per_byte
    return dataclasses.replace(
        topology,
        sites=tuple(topology.sites[s] for s in sites.tolist()),
        device_ptr=np.concatenate([[0], np.cumsum(width)]),
        device_index=topology.device_index[starts + np.arange(int(width.sum()))],
        group=topology.group[:, sites],
        pair_latency=None if latency is None else latency[pairs],
        pair_seconds_per_byte=None if rate is None else rate[pairs],
    )


def _devices(topology: Topology) -> tuple[Ints, Ints]:
    """Devices in use, and (K, S) their places among these, padded with their number, for every site."""
    used, place = np.unique(topology.device_index, return_inverse=True)
    width = topology.width
    padded = np.full((int(width.max()), topology.S), len(used))
    site = np.repeat(np.arange(topology.S), width)
    padded[np.arange(len(site)) - topology.device_ptr[site], site] = place
    return used, padded


def _least_share(sites: int, position: Ints, share: Ints) -> Ints:
    """(S,) the least share of an option on every position, 0 where there is none."""
    least = np.full(sites, NO_LIMIT)
    np.minimum.at(least, position, share)
    return np.where(least < NO_LIMIT, least, 0)


def _common(devices: Ints, capacity: Ints, a: Ints, b: Ints) -> Ints:
    """(a, b) the smallest capacity among the devices that two sites share, ``NO_LIMIT`` where they share none."""
    common = np.full((len(a), len(b)), NO_LIMIT)
    limit = np.append(capacity, NO_LIMIT)
    for mine in devices[:, a]:
        for theirs in devices[:, b]:
            shared = (mine[:, None] == theirs[None, :]) & (mine[:, None] < len(capacity))
            common = np.where(shared, np.minimum(common, limit[mine][:, None]), common)
    return common
