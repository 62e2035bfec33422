"""Interchangeable devices, counted instead of listed: one problem with as many of a kind as a plan can use.

Two hosts of a rack are interchangeable where they offer the same options on the same devices, with the same memory and
links: exchanging them turns any plan into one that is as good. A plan of V stages stands on at most V of them, so that
V of a kind (the first of each) are enough, and then so are V racks of a datacenter whose hosts are of the same kinds,
and V such datacenters. The same holds for devices of a domain that no gang uses. What is left out never holds a
plan that is better than all that is left, so optimum, bounds and infeasibility are those of the whole problem.

Kinds are found by a hash of what a place offers and then compared in full. What a gang across several groups touches
is of a kind of its own. Under a matrix of measured pairs no two sites are the same.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.hashing import hash_factors
from iegopt.problem.layout import Layout, layout_of, place_inside
from iegopt.problem.restrict import restrict
from iegopt.problem.topology import LEVEL_NAMES, Topology

__all__ = ["Folded", "fold"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_DOMAIN, _HOST, _RACK, _DATACENTER = range(len(LEVEL_NAMES))
_WORTH = 0.8
"""Share of the sites with options above which a fold does not pay."""
_DISTINCT = 0.5
"""Share of distinct costs among a stage's options from which on its sites are taken for all different."""
_SAMPLE = 512
_DENSE = 4
"""Greatest key of shared weights, in parts of the options, up to which keys index an array."""
_BITS = 62
"""Stages that fit into the bits of an integer."""


@dataclass(frozen=True, eq=False)
class Folded:
    """A problem with fewer sites: its option i is ``kept[i]`` of the whole; ``sites`` of ``of`` are left."""

    problem: Problem
    kept: Ints
    sites: int
    of: int


def fold(problem: Problem, hint: Ints | None = None) -> Folded | None:
    """The problem over the first sites of every kind, and those of a hint (V,); ``None`` where that does not pay."""
    topology = problem.topology
    if topology.pair_latency is not None or problem.V == 0 or topology.S < 2 or _all_different(problem):
        return None
    layout = layout_of(topology)
    mask = problem.allowed.copy()
    of = int(np.count_nonzero(np.bincount(problem.options.site[mask], minlength=topology.S)))
    if not of:
        return None
    pinned = np.zeros(topology.S, dtype=np.bool_)
    if hint is not None:
        pinned[problem.options.site[hint]] = True
    mask = _fold_devices(problem, layout, mask, pinned)
    mask = _fold_groups(problem, layout, mask, pinned)
    if not _covers(problem, mask):
        return None
    if hint is not None:
        mask[hint] = True
    sites = np.flatnonzero(np.bincount(problem.options.site[mask], minlength=topology.S))
    if len(sites) > _WORTH * of:
        return None
    small, kept = restrict(problem, mask)
    place = np.full(topology.S, -1)
    place[sites] = np.arange(len(sites))
    options = dataclasses.replace(small.options, site=place[small.options.site])
    return Folded(dataclasses.replace(small, options=options, topology=topology.part(sites)), kept, len(sites), of)


def _covers(problem: Problem, mask: Bools) -> bool:
    """Whether every stage has an option in a mask (O,): one without any is told by the whole problem."""
    return bool(np.bincount(problem.options.stage[mask], minlength=problem.V).all())


def _all_different(problem: Problem) -> bool:
    """Whether the first options of the stage with most of them look all different: a quick way out."""
    v = int(np.diff(problem.options.ptr).argmax())
    cost = problem.options.cost[problem.options.of(v)][:_SAMPLE]
    return len(np.unique(cost)) > _DISTINCT * len(cost)


def _fold_devices(problem: Problem, layout: Layout, mask: Bools, pinned: Bools) -> Bools:
    """A mask without the devices beyond the first V of a kind in their domain."""
    topology, site = problem.topology, problem.options.site
    domain = topology.group[_DOMAIN]
    if np.bincount(domain[layout.single]).max(initial=0) <= problem.V:
        return mask
    mine = np.flatnonzero(mask & layout.single[site])
    if not mine.size:
        return mask
    rows = mine[np.argsort(layout.order[site[mine]], kind="stable")]
    blocks = _Blocks(problem, layout, rows, site[rows], False)
    first = topology.device_index[topology.device_ptr[blocks.block]]
    memory = problem.capacity[first]
    kind = _numbers(np.stack([blocks.kind, memory, domain[blocks.block]]))
    keep = (place_inside(kind, blocks.block) < _most(blocks.stages, problem.V)) | pinned[blocks.block]
    gone = np.zeros(topology.S, dtype=np.bool_)
    gone[blocks.block[~keep]] = True
    return mask & ~gone[site]


def _fold_groups(problem: Problem, layout: Layout, mask: Bools, pinned: Bools) -> Bools:
    """A mask without the hosts, racks and datacenters beyond the first V of a kind in what holds them."""
    topology, site = problem.topology, problem.options.site
    group = topology.group
    rows = np.flatnonzero(mask & (group[_HOST][site] >= 0))
    if not rows.size:
        return mask
    rows = rows[np.argsort(layout.order[site[rows]], kind="stable")]
    blocks = _Blocks(problem, layout, rows, group[_HOST][site[rows]], True)
    member, kind, stages = blocks.block, blocks.kind, blocks.stages
    above = {level: _parents(topology, level) for level in (_HOST, _RACK, _DATACENTER)}
    gone = np.zeros(len(group[_HOST]), dtype=np.bool_)
    for level in (_HOST, _RACK, _DATACENTER):
        odd = layout.odd[level][member]
        links = np.stack([topology.latency[level][member], topology.seconds_per_byte[level][member]])
        kind = _numbers(np.stack([kind, links[0].view(np.int64), links[1].view(np.int64), np.where(odd, member, -1)]))
        held = np.unique(group[level][pinned & (group[level] >= 0)])
        parent = above[level][member]
        rank = place_inside(_numbers(np.stack([parent, kind])), member)
        enough = rank < _most(stages, problem.V)
        keep = enough | odd | np.isin(member, held)
        gone |= np.isin(group[level], member[~keep])
        if level == _DATACENTER:
            break
        # A group above is of the kind of what it is enough to keep of it.
        counted = enough | odd
        member, kind, stages = _multisets(parent[counted], kind[counted], stages[counted])
    return mask & ~(gone & ~pinned)[site]


def _parents(topology: Topology, level: int) -> Ints:
    """(groups of a level,) the group above each, −1 for none."""
    inner = topology.group[level]
    parent = np.full(int(inner.max()) + 1, -1)
    if level + 1 < len(LEVEL_NAMES):
        lies = inner >= 0
        parent[inner[lies]] = topology.group[level + 1][lies]
    return parent


def _most(stages: Ints, V: int) -> Ints:
    """(n,) how many places of a kind a plan can use, from the stages that have options there, as bits."""
    return np.asarray(np.bitwise_count(stages), dtype=np.int64) if V <= _BITS else np.full(len(stages), V)


def _multisets(owner: Ints, kind: Ints, stages: Ints) -> tuple[Ints, Ints, Ints]:
    """Owners; numbers that are equal where the multisets of kinds they own are; and the stages of all they own."""
    order = np.lexsort([kind, owner])
    owners, first = np.unique(owner[order], return_index=True)
    numbers: dict[bytes, int] = {}
    parts = np.split(kind[order], first[1:])
    kinds = np.array([numbers.setdefault(part.tobytes(), len(numbers)) for part in parts], dtype=np.int64)
    return owners, kinds, np.bitwise_or.reduceat(stages[order], first)


def _numbers(columns: Ints) -> Ints:
    """(n,) numbers of the columns of a table (k, n): equal for equal ones."""
    return np.asarray(np.unique(columns, axis=1, return_inverse=True)[1].ravel(), dtype=np.int64)


class _Blocks:
    """Kinds of blocks of options.

    Attributes
    ----------
    block, kind, stages (B,)
        Owner of every block, by its first row; a number that is equal for equal blocks; a bit per stage with options.

    Parameters
    ----------
    rows (R,), owner (R,)
        Options, those of a block in a row, and the block of each.
    hosts
        Whether blocks are hosts, whose sites and devices are told apart by their place inside, or single devices.
    """

    def __init__(self, problem: Problem, layout: Layout, rows: Ints, owner: Ints, hosts: bool) -> None:
        self._problem = problem
        self._start = np.flatnonzero(np.append(True, owner[1:] != owner[:-1]))
        self._count = np.diff(np.append(self._start, len(rows)))
        self.block = owner[self._start]
        self.stages = np.bitwise_or.reduceat(1 << (problem.options.stage[rows] % _BITS), self._start)
        table = self._table(rows)
        if hosts:
            table.append(layout.inside[problem.options.site[rows]])
            table.extend(self._memory(layout, rows))
        self.kind = self._kinds(table)

    def _table(self, rows: Ints) -> list[Ints]:
        """(R,) columns that say all about an option but where it is."""
        options, edges = self._problem.options, self._problem.edges
        stage = options.stage[rows]
        columns = [stage, options.variant[rows], options.cost[rows], options.time[rows], options.share[rows]]
        key = options.weight_key[rows]
        if (key >= 0).any():
            # Equal keys become the place of the first row that has them.
            if int(key.max()) > _DENSE * len(options.weight_key):
                key = np.unique(key, return_inverse=True)[1].ravel() - int((key < 0).any())
            first = np.empty(int(key.max()) + 2, dtype=np.int64)
            first[key[::-1]] = np.arange(len(rows))[::-1]
            columns.append(np.where(key >= 0, first[key] - np.repeat(self._start, self._count), -1))
            columns.append(np.where(key >= 0, options.weight_share[rows], 0))
        if options.kv_share is not None:
            columns.append(options.kv_share[rows])
        for source, hidden in zip(edges.source.tolist(), edges.hidden, strict=True):
            if hidden is not None:
                column = np.zeros(len(rows))
                mine = stage == source
                column[mine] = hidden[rows[mine] - options.ptr[source]]
                columns.append(column.view(np.int64))
        return columns

    def _memory(self, layout: Layout, rows: Ints) -> list[Ints]:
        """(R,) per device of the widest site a column of the memory there; −1 beyond the devices of a site."""
        topology = self._problem.topology
        site = self._problem.options.site[rows]
        width = topology.width
        columns = []
        for k in range(int(width[site].max())):
            at = np.minimum(topology.device_ptr[:-1] + k, len(topology.device_index) - 1)
            capacity = np.where(k < width, self._problem.capacity[topology.device_index[at]], -1)
            columns.append(capacity[site])
        return columns

    def _kinds(self, table: list[Ints]) -> Ints:
        """Equal numbers for blocks with equal columns of the table: by hash, then compared to the first of the hash.

        Column by column: in one piece, the table is of a size for which the system has to find pages first.
        """
        rows = len(table[0])
        mixed = np.zeros(rows, dtype=np.int64)
        with np.errstate(over="ignore"):
            for column, factor in zip(table, hash_factors(len(table)), strict=True):
                mixed += column * factor
            place = np.arange(rows) - np.repeat(self._start, self._count) + 1
            mixed = (mixed ^ (mixed >> 29)) * (place * 2 + 1)
            hashes = np.add.reduceat(mixed, self._start)
        _, first, kind = np.unique(np.stack([hashes, self._count]), axis=1, return_index=True, return_inverse=True)
        kind = np.asarray(kind.ravel(), dtype=np.int64)
        like = np.arange(rows) + np.repeat(self._start[first[kind]] - self._start, self._count)
        same = np.ones(rows, dtype=np.bool_)
        for column in table:
            same &= column == column[like]
        true = np.logical_and.reduceat(same, self._start)
        # A block that only shares the hash is of a kind of its own.
        return np.where(true, kind, len(first) + np.arange(len(kind)))
