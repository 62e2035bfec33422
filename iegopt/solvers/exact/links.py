"""Min-plus messages of one edge for many nodes of a search at once: options × nodes in, options × nodes out.

The options are those that survived pruning. Two kinds of link send the same messages:

- ``TableLink`` states every pair of options: whatever the edge costs (overlap, gangs, measured pairs). A pair
  that does not fit on a device together costs ``UNREACHABLE``.
- ``LevelLink`` follows the topology tree (``messages.py``) where the table would be large. Two stages that do not fit
  on a site together may not share it, so the message from a site to itself is left out there, and every group
  takes the best of the *other* children: exact for any levels, monotone or not.

Nodes are the last axis, so that every operation runs over whole blocks of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.topology import Topology
from iegopt.problem.transfer import cost_ticks
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.tree_index import Level, tree_index

__all__ = ["LevelLink", "Link", "SiteTree", "TableLink"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_FEW_CHILDREN = 64
"""Children of a group up to which the best of the others goes by running minima."""
_MOST_KEPT = 2048
"""Sites up to which the meeting links of all pairs are kept, 16 MB."""


class Link(Protocol):
    """An edge between the options of two stages, ``forward`` from source to target."""

    def send(self, theta: Ints, forward: bool) -> Ints:
        """(m, B) min over the n options of the near end of θ (n, B) + cost, never above ``UNREACHABLE``."""

    def rows(self, chosen: Ints, forward: bool) -> Ints:
        """(B, m) cost between one option (B,) of the near end for every node and all of the far end."""

    def pairs(self, source: Ints, target: Ints) -> Ints:
        """(P,) cost between an option (P,) of the source and one of the target."""


class TableLink:
    """All pairs: ``table`` (options of the source, options of the target) ticks."""

    def __init__(self, table: Ints) -> None:
        self.table = table

    def send(self, theta: Ints, forward: bool) -> Ints:
        table = self.table if forward else self.table.T
        total = table[:, :, None] + theta[:, None, :]
        least: Ints = total.min(axis=0)
        return np.minimum(least, UNREACHABLE, out=least)

    def rows(self, chosen: Ints, forward: bool) -> Ints:
        return np.asarray(self.table[chosen] if forward else self.table.T[chosen])

    def pairs(self, source: Ints, target: Ints) -> Ints:
        return np.asarray(self.table[source, target])


class SiteTree:
    """A topology laid out for batched messages: children of every group as a padded table."""

    def __init__(self, topology: Topology) -> None:
        index = tree_index(topology)
        self.S = topology.S
        self.position = index.position
        self.levels = index.levels
        counts = [self.S, *(len(level.start) for level in index.levels)]
        self.children = [_padded(level, below) for level, below in zip(self.levels, counts, strict=False)]

    def meeting(self, near: Ints, far: Ints) -> npt.NDArray[np.int32]:
        """(a, b) number of the link over which positions meet, counted through the levels from 1; 0 at home."""
        if self.S <= _MOST_KEPT:
            return np.asarray(self._kept[near[:, None], far[None, :]])
        return self._meeting(near, far)

    @cached_property
    def _kept(self) -> npt.NDArray[np.int32]:
        """(S, S), filled from the widest level down: the sites of a group are a slice."""
        kept = np.zeros((self.S, self.S), dtype=np.int32)
        offset = 1 + sum(len(level.latency) for level in self.levels)
        for level in reversed(self.levels):
            offset -= len(level.latency)
            for group, (first, stop) in enumerate(pairwise(level.first.tolist())):
                kept[first:stop, first:stop] = offset + (group if len(level.latency) > 1 else 0)
        np.fill_diagonal(kept, 0)
        return kept

    def _meeting(self, near: Ints, far: Ints) -> npt.NDArray[np.int32]:
        links = sum(len(level.latency) for level in self.levels)
        meeting: npt.NDArray[np.int32] = np.zeros((len(near), len(far)), dtype=np.int32)
        offset = 1 + links
        for level in reversed(self.levels):
            offset -= len(level.latency)
            at_near, at_far = level.of_site[near], level.of_site[far]
            link = offset + (at_near if len(level.latency) > 1 else np.zeros_like(at_near))
            same = at_near[:, None] == at_far[None, :]
            meeting = np.where(same, link[:, None], meeting).astype(np.int32)
        meeting[near[:, None] == far[None, :]] = 0
        return meeting


@dataclass(frozen=True, eq=False)
class LevelLink:
    """An edge whose cost depends on the group where the two sites meet.

    Attributes
    ----------
    costs
        Per level (groups,) or (1,) ticks.
    source, target
        Positions of the options of both ends, ascending.
    apart (S,)
        Positions where the two stages do not fit together.
    """

    tree: SiteTree
    costs: tuple[Ints, ...]
    source: Ints
    target: Ints
    apart: Bools

    @classmethod
    def of(cls, tree: SiteTree, problem: Problem, edge: int, source: Ints, target: Ints, apart: Bools) -> LevelLink:
        size = problem.edges.bytes[edge]
        costs = [cost_ticks(problem, edge, level.latency + size * level.seconds_per_byte) for level in tree.levels]
        return cls(tree, tuple(costs), source, target, apart)

    def send(self, theta: Ints, forward: bool) -> Ints:
        near, far = (self.source, self.target) if forward else (self.target, self.source)
        home = np.full((self.tree.S, theta.shape[1]), UNREACHABLE)
        if self._alone[0 if forward else 1]:
            home[near] = theta
        else:
            np.minimum.at(home, near, theta)
        best, others = home, []
        for table, slot in self.tree.children:
            padded = np.concatenate([best, np.full((1, theta.shape[1]), UNREACHABLE)])[table]
            best, rest = _best_of_others(padded)
            others.append(rest.reshape(-1, theta.shape[1]).take(slot, axis=0))
        above: Ints | None = None
        for level, cost, rest in zip(self.tree.levels[::-1], self.costs[::-1], others[::-1], strict=True):
            rest += cost[0] if len(cost) == 1 else cost[level.parent][:, None]
            if above is not None:
                np.minimum(rest, above.take(level.parent, axis=0), out=rest)
            above = rest
        if self._some_apart:
            home = np.where(self.apart[:, None], UNREACHABLE, home)
        message = home if above is None else np.minimum(home, above)
        reached: Ints = np.minimum(message.take(far, axis=0), UNREACHABLE)
        return reached

    def rows(self, chosen: Ints, forward: bool) -> Ints:
        near, far = (self.source, self.target) if forward else (self.target, self.source)
        at = near[chosen]
        rows: Ints = self._by_link[self.tree.meeting(at, far)]
        if self._some_apart:
            rows[(at[:, None] == far[None, :]) & self.apart[at][:, None]] = UNREACHABLE
        return rows

    def pairs(self, source: Ints, target: Ints) -> Ints:
        return np.asarray(self.rows(source, True)[np.arange(len(source)), target])

    @cached_property
    def _some_apart(self) -> bool:
        return bool(self.apart.any())

    @cached_property
    def _alone(self) -> tuple[bool, bool]:
        """Whether the options of either end all stand on different sites."""
        return bool((np.diff(self.source) > 0).all()), bool((np.diff(self.target) > 0).all())

    @cached_property
    def _by_link(self) -> Ints:
        return np.concatenate([np.zeros(1, dtype=np.int64), *self.costs])


def _padded(level: Level, below: int) -> tuple[Ints, Ints]:
    """(fan-out, G) children of every group, padded with ``below``; (children,) the slot of each in the flat table."""
    count = np.diff(level.start, append=below)
    groups, fan_out = len(count), int(count.max())
    step = np.arange(below) - np.repeat(level.start, count)
    table = np.full((fan_out, groups), below)
    table[step, level.parent] = np.arange(below)
    return table, step * groups + level.parent


def _best_of_others(children: Ints) -> tuple[Ints, Ints]:
    """Least value (G, B) of every group, and (fan-out, G, B) the least among the other children of each child."""
    rest = np.full_like(children, UNREACHABLE)
    if len(children) <= _FEW_CHILDREN:
        before = np.minimum.accumulate(children, axis=0)
        behind = np.minimum.accumulate(children[::-1], axis=0)[::-1]
        rest[1:] = before[:-1]
        np.minimum(rest[:-1], behind[1:], out=rest[:-1])
        return before[-1], rest
    first = children.argmin(axis=0)[None]
    best = np.take_along_axis(children, first, axis=0)
    without = children.copy()
    np.put_along_axis(without, first, UNREACHABLE, axis=0)
    rest[:] = best
    np.put_along_axis(rest, first, without.min(axis=0)[None], axis=0)
    return best[0], rest
