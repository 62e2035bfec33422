"""The options that survive pruning, with their edges and devices laid out for batched bounds."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.topology import Topology
from iegopt.solvers.exact.coupled_links import (
    Ends,
    TreePart,
    costs_nothing,
    follows_tree,
    ruled,
    tree_link,
    tree_shaped,
)
from iegopt.solvers.exact.couplings import coupling_forest, couplings, pairs_of_rules
from iegopt.solvers.exact.links import LevelLink, Link, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pair_tables import pair_tables
from iegopt.solvers.exact.reduction import Reduction, reduction
from iegopt.solvers.exact.relaxation import Forest
from iegopt.solvers.exact.single import SingleNode
from iegopt.solvers.exact.site_tree import SiteTree
from iegopt.solvers.exact.table_passes import TablePasses
from iegopt.solvers.exact.time_rows import TimeRows
from iegopt.solvers.exact.tree_index import tree_index

__all__ = ["Candidates", "above_any_plan", "candidates", "table_cells"]

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
    cost, time, share (n,)
        Ticks; memory taken from each device of the site.
    weight_key, weight_share (n,)
        As in ``Options``.
    devices (K, n)
        Devices of every option's site, as indices into ``capacity``, padded with the last.
    used (D,), capacity (D + 1,)
        The devices in use, ascending; the memory of each, and ``NO_LIMIT`` for the padding.
    links, ends
        Of ``couplings``, the edges first: its link, ``None`` where it costs nothing; its source and target stage.
    forest, reduction
        A spanning forest of the couplings; the order in which messages take the stages.
    rows
        Limits in time; shared by all candidates cut from the same, as paths are added.
    """

    problem: Problem
    option: Ints
    of: tuple[slice, ...]
    cost: Ints
    time: Ints
    share: Ints
    weight_key: Ints
    weight_share: Ints
    devices: Ints
    used: Ints
    capacity: Ints
    forest: Forest
    reduction: Reduction
    links: tuple[Link | None, ...]
    ends: tuple[tuple[int, int], ...]
    rows: TimeRows

    @property
    def V(self) -> int:
        return len(self.of)

    @cached_property
    def stage(self) -> Ints:
        """(n,) the stage of every option."""
        return np.repeat(np.arange(self.V), [part.stop - part.start for part in self.of])

    @cached_property
    def starts(self) -> Ints:
        """(V,) the first option of every stage."""
        return np.array([part.start for part in self.of], dtype=np.int64)

    @cached_property
    def packed(self) -> tuple[tuple[Ints, ...], int, Ints]:
        """What kernels take: first options of stages, share, number of shared weights (−1: none) and their memory,
        capacity, stage; how many shared weights there are; devices.
        """
        keys, number = 0, self.weight_key
        if (number >= 0).any():
            known, number = np.unique(np.append(number, -1), return_inverse=True)
            keys, number = len(known) - 1, number[:-1] - 1
        options = np.append(self.starts, len(self.option)), self.share, number, self.weight_share, self.capacity
        return (*options, self.stage), keys, np.ascontiguousarray(self.devices)

    @cached_property
    def required(self) -> tuple[Ints, Bools, Bools]:
        """Required affinities: where options stand (R, n), equal where together; stages (R, V); which are apart."""
        rules = [rule for rule in self.problem.affinities if rule.required]
        site, topology = self.problem.options.site[self.option], self.problem.topology
        label, member = (
            np.empty((len(rules), len(site)), dtype=np.int64),
            np.zeros((len(rules), self.V), dtype=np.bool_),
        )
        for r, rule in enumerate(rules):
            group = topology.group[rule.level, site] if rule.level >= 0 else np.full(len(site), -1)
            label[r] = np.where(group >= 0, group, -1 - site)
            member[r, list(rule.stages)] = True
        return label, member, np.array([rule.apart for rule in rules], dtype=np.bool_)

    @cached_property
    def passes(self) -> TablePasses | None:
        """What kernels take; ``None`` where messages need more than tables, or a cost is negative."""
        if not SingleNode.fits(self.links, self.reduction) or self.cost.min(initial=0) < 0:
            return None
        passes = TablePasses(self.reduction, self.of, self.links, self.ends)
        return passes if passes.tables[0].min(initial=0) >= 0 else None

    @cached_property
    def single(self) -> SingleNode | None:
        """Messages for one node at a time; ``None`` where these need more than tables."""
        if not SingleNode.fits(self.links, self.reduction):
            return None
        return SingleNode(self.reduction, self.of, self.links, self.ends)

    def cost_of(self, plans: Ints) -> Ints:
        """(P,) ticks of options and couplings of plans (P, V), at most the objective.

        ``UNREACHABLE`` where two options do not fit together or break a required affinity.
        """
        total = self.cost[plans].sum(axis=1)
        local = plans - self.starts
        for link, (u, v) in zip(self.links, self.ends, strict=True):
            if link is not None:
                total = np.minimum(total + link.pairs(local[:, u], local[:, v]), UNREACHABLE)
        return np.asarray(total)

    def moved(self, plans: Ints) -> Ints:
        """(couplings, P) ticks of transfer of plans (V, P), 0 without path limits."""
        local = plans - self.starts[:, None]
        moved = np.zeros((len(self.links), plans.shape[1]), dtype=np.int64)
        if self.problem.has_path_limits:
            for e, (link, (u, v)) in enumerate(zip(self.links, self.ends, strict=True)):
                if link is not None:
                    moved[e] = link.pair_times(local[u], local[v])
        return moved

    def restrict(self, keep: Bools, reorder: bool = False) -> Candidates:
        """The candidates in a mask (n,), with tables for the edges that have become small.

        Parameters
        ----------
        reorder
            Whether fewer options may give another order of the stages, which drops fewer edges.
        """
        rows = np.flatnonzero(keep)
        count = [int(keep[part].sum()) for part in self.of]
        local = [np.flatnonzero(keep[part]) for part in self.of]
        order = reduction(self.forest, self.ends, count) if reorder else self.reduction
        links: list[Link | None] = []
        for e, (link, (u, v)) in enumerate(zip(self.links, self.ends, strict=True)):
            if isinstance(link, LevelLink) and not _as_table(order, e, count[u] * count[v]):
                links.append(dataclasses.replace(link, source=link.source[local[u]], target=link.target[local[v]]))
            elif isinstance(link, LevelLink | TableLink):
                links.append(link.part(local[u], local[v]))
            else:
                links.append(None)
        return dataclasses.replace(
            self,
            option=self.option[rows],
            of=_slices(count),
            cost=self.cost[rows],
            time=self.time[rows],
            share=self.share[rows],
            weight_key=self.weight_key[rows],
            weight_share=self.weight_share[rows],
            devices=self.devices[:, rows],
            reduction=order,
            links=tuple(links),
        )


def candidates(problem: Problem, mask: Bools, rows: TimeRows | None = None) -> Candidates:
    """Lay out the options in a mask (O,); every stage must have one. ``rows``: limits in time found before."""
    options, topology = problem.options, problem.topology
    option = np.flatnonzero(mask)
    part: TreePart | None = None
    site = options.site[option]
    position = site
    if tree_shaped(topology):
        sites, site = np.unique(site, return_inverse=True)
        of_sites = topology.part(sites)
        part = TreePart(of_sites, SiteTree(of_sites), topology.tightest(problem.capacity)[sites])
        position = part.tree.position[site]
    elif topology.pair_latency is None:
        position = tree_index(topology).position[site]
    order = np.lexsort((position, options.stage[option]))
    option, position = option[order], position[order]
    count = np.bincount(options.stage[option], minlength=problem.V).tolist()
    of = _slices(count)
    used, devices = _devices(topology, options.site[option])
    capacity = np.append(problem.capacity[used], NO_LIMIT)
    coupled = couplings(problem)
    forest, between = coupling_forest(problem, coupled), tuple((each.source, each.target) for each in coupled)
    way = reduction(forest, between, count)
    whole = Ends.of(problem, option, position, devices)
    ends = [whole.part(p) for p in of]
    costly = {e: each for e, each in enumerate(coupled) if not costs_nothing(problem, each)}
    tabled = {e: each for e, each in costly.items() if part is None or not follows_tree(problem, each)}
    tables = dict(zip(tabled, pair_tables(problem, whole, of, list(tabled.values()), capacity), strict=True))
    links: list[Link | None] = [None] * len(coupled)
    for e, each in costly.items():
        source, target = ends[each.source], ends[each.target]
        if part is None or e in tabled:
            links[e] = ruled(problem, each, tables[e], source, target)
            continue
        link = tree_link(problem, each, part, source, target)
        small = _as_table(way, e, count[each.source] * count[each.target])
        links[e] = link.part(np.arange(count[each.source]), np.arange(count[each.target])) if small else link
    return Candidates(
        problem, option, of, options.cost[option], options.time[option], options.share[option],
        options.weight_key[option], options.weight_share[option], devices, used, capacity,
        forest, way, tuple(links), between,
        TimeRows(problem, coupled) if rows is None else rows,
    )  # fmt: skip


def _as_table(order: Reduction, coupling: int, cells: int) -> bool:
    return cells <= _TABLE_CELLS or coupling in order.tabled


def table_cells(problem: Problem, mask: Bools | None = None) -> int:
    """Cells of the tables of the couplings that do not follow the topology tree, over a mask (O,), else the allowed."""
    by_tree = tree_shaped(problem.topology)
    if by_tree and all(hidden is None for hidden in problem.edges.hidden):
        return 0
    mask = problem.allowed if mask is None else mask
    count = np.bincount(problem.options.stage[mask], minlength=problem.V)
    source, target = problem.edges.source, problem.edges.target
    if by_tree:
        tabled = [e for e, hidden in enumerate(problem.edges.hidden) if hidden is not None]
        return int((count[source[tabled]] * count[target[tabled]]).sum())
    u, v = pairs_of_rules(problem)
    return int((count[source] * count[target]).sum() + (count[u] * count[v]).sum())


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


def _devices(topology: Topology, site: Ints) -> tuple[Ints, Ints]:
    """Devices in use on sites (n,), and (K, n) the places of each site's among these, padded with their number."""
    width = topology.width[site]
    padded = np.full((int(width.max(initial=0)), len(site)), topology.D)
    for k in range(len(padded)):
        wide = np.flatnonzero(width > k)
        padded[k, wide] = topology.device_index[topology.device_ptr[site[wide]] + k]
    taken = np.zeros(topology.D + 1, dtype=np.bool_)
    taken[padded] = True
    used = np.flatnonzero(taken[:-1])
    place = np.full(topology.D + 1, len(used))
    place[used] = np.arange(len(used))
    return used, place[padded]
