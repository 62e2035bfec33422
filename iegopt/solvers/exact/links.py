"""Min-plus messages of one edge for many nodes of a search at once: options × nodes in, options × nodes out.

The options are those that survived pruning. Two kinds of link send the same messages:

- ``TableLink`` states every pair of options: whatever the edge costs (overlap, gangs, measured pairs). A pair
  that does not fit on a device together costs ``UNREACHABLE``.
- ``LevelLink`` follows the topology tree (``messages.py``) where the table would be large. Two stages that do not fit
  on a site together may not share it, so the message from a site to itself is left out there, and every group
  takes the best of the *other* children: exact for any levels, monotone or not.

Limits in time put a price on the time of an edge too: ``at`` gives the link whose every pair of options costs
⌊rate · time⌋ more, at another rate for every node.

Nodes are the last axis, so that every operation runs over whole blocks of memory.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.compiled import as_ints, kernels
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.site_tree import SiteTree

__all__ = ["LevelLink", "Link", "TableLink"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_MOST_RATED = 1 << 18
"""Cells · nodes up to which a table with a price on time is kept, 2 MB."""
_FEW_CHILDREN = 64
"""Children of a group up to which the best of the others goes by running minima."""


class Link(Protocol):
    """An edge between the options of two stages, ``forward`` from source to target."""

    def send(self, theta: Ints, forward: bool) -> Ints:
        """(m, B) min over the n options of the near end of θ (n, B) + cost, never above ``UNREACHABLE``."""

    def rows(self, chosen: Ints, forward: bool) -> Ints:
        """(B, m) cost between one option (B,) of the near end for every node and all of the far end."""

    def pairs(self, source: Ints, target: Ints) -> Ints:
        """(P,) cost between an option (P,) of the source and one of the target, without a price on time."""

    def pair_times(self, source: Ints, target: Ints) -> Ints:
        """(P,) ticks of time of pairs, 0 where no limit in time asks for it."""

    @property
    def moving(self) -> Link:
        """The link with its time in place of its cost, pairs that clash as before."""

    def at(self, rate: Floats) -> Link:
        """The link that costs ⌊rate · time⌋ more; ``rate`` (B,) ticks of cost per tick of time, per node."""

    def of_node(self, node: int) -> Link:
        """The link at the rate of one node, for ``rows`` of many options at once."""

    def whole(self) -> Ints:
        """(options of the source, options of the target, B or 1) what every pair costs."""


class TableLink:
    """All pairs: ``table`` (options of the source, options of the target) ticks of cost, ``time`` of time.

    ``time`` is ``None`` where no limit in time asks for it, and 0 where two options clash.
    """

    def __init__(self, table: Ints, time: Ints | None = None) -> None:
        self.table = table
        self.time = time

    def send(self, theta: Ints, forward: bool) -> Ints:
        ready = kernels()
        least: Ints
        if ready is not None:
            least = np.empty((self.table.shape[1 if forward else 0], theta.shape[1]), dtype=np.int64)
            ready.send_table(as_ints(self.table), as_ints(theta), forward, self._gains, least)
            return least
        if theta.shape[1] == 1:  # along whole blocks of memory
            least = (self.table + (theta if forward else theta.T)).min(axis=0 if forward else 1)[:, None]
        else:
            table = np.ascontiguousarray(self.table if forward else self.table.T)
            nodes = np.ascontiguousarray(theta.T)
            # Minima over blocks of all options at the far end: along a few nodes they take up to ten times as long.
            least = np.ascontiguousarray((table + nodes[:, :, None]).min(axis=1).T)
        return np.minimum(least, UNREACHABLE, out=least)

    @cached_property
    def _gains(self) -> bool:
        """Whether a pair costs less than nothing."""
        return bool(self.table.min(initial=0) < 0)

    def rows(self, chosen: Ints, forward: bool) -> Ints:
        return np.asarray(self.table[chosen] if forward else self.table.T[chosen])

    def pairs(self, source: Ints, target: Ints) -> Ints:
        return np.asarray(self.table[source, target])

    def part(self, source: Ints, target: Ints) -> TableLink:
        """The table of some options of either end."""
        time = None if self.time is None else self.time.take(source, 0).take(target, 1)
        return TableLink(self.table.take(source, 0).take(target, 1), time)

    def pair_times(self, source: Ints, target: Ints) -> Ints:
        return np.zeros(len(source), dtype=np.int64) if self.time is None else self.time[source, target]

    @cached_property
    def moving(self) -> TableLink:
        time = np.zeros_like(self.table) if self.time is None else self.time
        return TableLink(np.where(self.table < UNREACHABLE, time, UNREACHABLE))

    def at(self, rate: Floats) -> Link:
        if self.time is None or not rate.any():
            return self
        return _RatedTable(self, rate)

    def of_node(self, node: int) -> Link:
        return self

    def whole(self) -> Ints:
        return self.table[:, :, None]


class _RatedTable:
    """A table with a price on time, (B,) per node; worked out for every use where it would be large."""

    def __init__(self, plain: TableLink, rate: Floats) -> None:
        self.plain = plain
        self.rate = rate
        self._nodes = np.arange(len(rate))
        self._kept = self._priced(rate) if plain.table.size * len(rate) <= _MOST_RATED else None

    @property
    def priced(self) -> Ints:
        """(options of the source, options of the target, B) ticks."""
        return self._priced(self.rate) if self._kept is None else self._kept

    def _priced(self, rate: Floats) -> Ints:
        assert self.plain.time is not None
        paid: Ints = (self.plain.time[:, :, None] * rate).astype(np.int64)
        paid += self.plain.table[:, :, None]
        return paid

    def send(self, theta: Ints, forward: bool) -> Ints:
        total = self.priced + theta[:, None, :] if forward else self.priced + theta[None, :, :]
        least: Ints = total.min(axis=0 if forward else 1)
        return np.minimum(least, UNREACHABLE, out=least)

    def rows(self, chosen: Ints, forward: bool) -> Ints:
        return np.asarray(self.priced[chosen, :, self._nodes] if forward else self.priced[:, chosen, self._nodes].T)

    def pairs(self, source: Ints, target: Ints) -> Ints:
        return self.plain.pairs(source, target)

    def pair_times(self, source: Ints, target: Ints) -> Ints:
        return self.plain.pair_times(source, target)

    @property
    def moving(self) -> TableLink:
        return self.plain.moving

    def at(self, rate: Floats) -> Link:
        return self.plain.at(rate)

    def of_node(self, node: int) -> Link:
        return TableLink(self._priced(self.rate[node : node + 1])[:, :, 0])

    def whole(self) -> Ints:
        return self.priced


@dataclass(frozen=True, eq=False)
class LevelLink:
    """An edge whose cost depends on the group where the two sites meet.

    Attributes
    ----------
    costs
        Per level (groups or 1,) ticks, or (groups or 1, B) where the nodes pay for time at different rates.
    source, target
        Positions of the options of both ends, ascending.
    apart (S,)
        Positions where the two stages do not fit together.
    times
        Per level (groups or 1,) ticks of time; ``None`` where no limit in time asks for it.
    home
        Ticks where both stand on one site.
    """

    tree: SiteTree
    costs: tuple[Ints, ...]
    source: Ints
    target: Ints
    apart: Bools
    times: tuple[Ints, ...] | None = None
    home: int = 0

    def send(self, theta: Ints, forward: bool) -> Ints:
        near, far = (self.source, self.target) if forward else (self.target, self.source)
        core = kernels()
        if core is not None:
            compiled: Ints = np.empty((len(far), theta.shape[1]), dtype=np.int64)
            core.send_columns(as_ints(theta), *self._packed[:: 1 if forward else -1], *self._shared, compiled)
            return compiled
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
            each = cost[:, None] if cost.ndim == 1 else cost
            rest += each[0] if len(each) == 1 else each[level.parent]
            if above is not None:
                np.minimum(rest, above.take(level.parent, axis=0), out=rest)
            above = rest
        if self.home:
            home = np.minimum(home + self.home, UNREACHABLE)
        if self._some_apart:
            home = np.where(self.apart[:, None], UNREACHABLE, home)
        message = home if above is None else np.minimum(home, above)
        reached: Ints = np.minimum(message.take(far, axis=0), UNREACHABLE)
        return reached

    def rows(self, chosen: Ints, forward: bool) -> Ints:
        near, far = (self.source, self.target) if forward else (self.target, self.source)
        at = near[chosen]
        meeting = self.tree.meeting(at[:, None], far[None, :])
        by_link = self._by_link
        rows: Ints = by_link[meeting] if by_link.ndim == 1 else by_link[meeting, np.arange(len(chosen))[:, None]]
        if self._some_apart:
            rows[(at[:, None] == far[None, :]) & self.apart[at][:, None]] = UNREACHABLE
        return rows

    def pairs(self, source: Ints, target: Ints) -> Ints:
        near, far = self.source[source], self.target[target]
        pairs: Ints = self._by_link[self.tree.meeting(near, far)]
        if self._some_apart:
            pairs[(near == far) & self.apart[near]] = UNREACHABLE
        return pairs

    def pair_times(self, source: Ints, target: Ints) -> Ints:
        if self.times is None:
            return np.zeros(len(source), dtype=np.int64)
        meeting = self.tree.meeting(self.source[source], self.target[target])
        return np.asarray(self._times_by_link[meeting])

    @cached_property
    def moving(self) -> LevelLink:
        times = tuple(map(np.zeros_like, self.costs)) if self.times is None else self.times
        costs = [np.where(cost < UNREACHABLE, time, UNREACHABLE) for cost, time in zip(self.costs, times, strict=True)]
        home = self.home if self.home >= UNREACHABLE else 0
        return dataclasses.replace(self, costs=tuple(costs), times=None, home=home)

    def at(self, rate: Floats) -> LevelLink:
        if self.times is None or not rate.any():
            return self
        costs = [
            cost[:, None] + (time[:, None] * rate).astype(np.int64)
            for cost, time in zip(self.costs, self.times, strict=True)
        ]
        return dataclasses.replace(self, costs=tuple(costs))

    def of_node(self, node: int) -> LevelLink:
        if self._by_link.ndim == 1:
            return self
        return dataclasses.replace(self, costs=tuple(cost[:, node] for cost in self.costs))

    def whole(self) -> Ints:
        by_link = self._by_link if self._by_link.ndim == 2 else self._by_link[:, None]
        table = by_link[self.tree.meeting(self.source[:, None], self.target[None, :])]
        table[(self.source[:, None] == self.target[None, :]) & self.apart[self.source][:, None]] = UNREACHABLE
        return np.asarray(table)

    def part(self, source: Ints, target: Ints) -> TableLink:
        """The table of some options of either end."""
        part = dataclasses.replace(self, target=self.target[target])
        time = None
        if self.times is not None:
            time = self._times_by_link[self.tree.meeting(self.source[source][:, None], part.target[None, :])]
        return TableLink(part.rows(source, True), time)

    @cached_property
    def _some_apart(self) -> bool:
        return bool(self.apart.any())

    @cached_property
    def _alone(self) -> tuple[bool, bool]:
        """Whether the options of either end all stand on different sites."""
        return bool((np.diff(self.source) > 0).all()), bool((np.diff(self.target) > 0).all())

    @cached_property
    def _packed(self) -> tuple[Ints, Ints]:
        """Positions of both ends as kernels take them."""
        return as_ints(self.source), as_ints(self.target)

    def flat(self, forward: bool) -> tuple[Ints, Ints, tuple[Ints, Ints, Ints, Ints, Ints], Bools]:
        """As kernels of beams take it: positions of the near and of the far end, the tree and its costs, ``apart``.

        Where no nodes pay for time at different rates.
        """
        near, far = self._packed[:: 1 if forward else -1]
        flat, (_, _, cost, apart) = self.tree.flat, self._shared
        return near, far, (flat.up, flat.link, flat.first, flat.last, cost[:, 0]), apart

    @cached_property
    def _shared(self) -> tuple[tuple[Ints, Ints], int, Ints, Bools]:
        """Tree, costs and what is apart as kernels take them."""
        cost = self._by_link if self._by_link.ndim == 2 else self._by_link[:, None]
        apart: Bools = np.require(self.apart, np.bool_, ["C", "W"])
        return (self.tree.flat.child, self.tree.flat.link), self.tree.S, as_ints(cost), apart

    @cached_property
    def _by_link(self) -> Ints:
        home = np.full((1, *self.costs[0].shape[1:]) if self.costs else (1,), self.home)
        return np.concatenate([home, *self.costs])

    @cached_property
    def _times_by_link(self) -> Ints:
        return np.concatenate([np.zeros(1, dtype=np.int64), *(self.times or ())])


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
