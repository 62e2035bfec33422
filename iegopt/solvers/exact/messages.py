"""Min-plus messages along one edge of the graph, over the topology tree (section 6.1 of the placement model).

    m(a) = min over b of [ θ(b) + c(a, b) ]

where c depends on the link of the lowest group that holds both sites (and, with overlap, on the option of the
edge's source). No site × site table is needed: with best(g) the minimum of θ in group g,

    m(a) = min( best(site of a), min over the groups g above a of [ best(g) + c(g) ] )

which is exact where c never falls from a group to the wider one above it: a pair is then counted
at its own level and, dearer, at wider ones. Where a group's own link breaks that, best(g) is taken over the sites of g
that are not in a's child of g (the two best of distinct children). One edge costs O(S · levels).

Gangs of equal width k > 1 whose shards move in parallel are a second message among themselves with bytes / k,
never dearer than the first, so their minimum is exact. A matrix of measured pairs has no tree: the
product is then dense, in blocks of bounded memory.

All results are integer ticks, bit-equal to ``problem.transfer.edge_ticks``.
"""

from __future__ import annotations

from functools import cached_property
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.exact.link_prices import link_prices, ticks_of
from iegopt.solvers.exact.tree_index import Level, tree_index

__all__ = ["UNREACHABLE", "Messages"]

Ints = npt.NDArray[np.int64]
T = TypeVar("T", np.int64, np.float64)

UNREACHABLE = 1 << 61
"""θ of an option that takes no part. Sums stay inside int64: a problem's own costs are below 2^62 together."""

_BLOCK = 1 << 20
"""Elements of a block of a dense product."""


class Messages:
    """Messages and rows of transfer costs of one problem.

    Raises
    ------
    ValueError
        If the topology's groups are not nested.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        topology, options, edges = problem.topology, problem.options, problem.edges
        self.ptr: list[int] = options.ptr.tolist()
        self.source: list[int] = edges.source.tolist()
        self.target: list[int] = edges.target.tolist()
        self.dense = topology.pair_latency is not None
        if self.dense:
            return
        tree = self.tree = tree_index(topology)
        self.S = topology.S
        self.levels, self.offsets = tree.levels, tree.offsets
        self.position = options.site if tree.in_order else tree.position[options.site]
        self.widths = tree.widths
        self.width = topology.shard_width[options.site] if self.widths else np.ones(0, dtype=np.int64)
        self.prices = link_prices(edges, tree)

    @cached_property
    def sorted(self) -> list[bool]:
        """Per stage whether its options stand on different sites, in tree order."""
        options = self.problem.options
        rising = np.ones(len(self.position), dtype=np.bool_)
        np.greater(self.position[1:], self.position[:-1], out=rising[1:])
        filled = np.flatnonzero(np.diff(options.ptr))
        starts = options.ptr[filled]
        rising[starts] = True
        answer = [False] * self.problem.V
        if filled.size:
            for v, value in zip(filled.tolist(), np.logical_and.reduceat(rising, starts).tolist(), strict=True):
                answer[v] = value
        return answer

    @cached_property
    def whole(self) -> list[bool]:
        """Per stage whether it has one option on every site, in tree order."""
        return [s and b - a == self.S for s, a, b in zip(self.sorted, self.ptr, self.ptr[1:], strict=False)]

    def send(self, edge: int, theta: Ints, forward: bool) -> Ints:
        """The message of an edge from θ over one end's options to the other's.

        Parameters
        ----------
        theta
            (options of the source,) ticks if ``forward``, else (options of the target,); at most ``UNREACHABLE``.

        Returns
        -------
        (options of the other end,) ticks.
        """
        if self.dense:
            return self._send_dense(edge, theta, forward)
        here, there = (self.source, self.target) if forward else (self.target, self.source)
        u, v = here[edge], there[edge]
        reach = self._reach if self.problem.edges.hidden[edge] is None else self._reach_overlapped
        message = reach(edge, theta, u, v, 0)
        if self.widths:
            at_u, at_v = self.width[self.ptr[u] : self.ptr[u + 1]], self.width[self.ptr[v] : self.ptr[v + 1]]
            for k, width in enumerate(self.widths, 1):
                equal = reach(edge, np.where(at_u == width, theta, UNREACHABLE), u, v, k)
                message = np.where(at_v == width, np.minimum(message, equal), message)
        return message

    def row(self, edge: int, option: int, forward: bool, time: bool = False) -> Ints:
        """Ticks between one option of an edge's source (``forward``; else target) and all of the other end's.

        Parameters
        ----------
        option
            Index into the O arrays.
        time
            Ticks of time in place of ticks of cost.
        """
        other = self.target[edge] if forward else self.source[edge]
        span = slice(self.ptr[other], self.ptr[other + 1])
        hidden = self.problem.edges.hidden[edge]
        if self.dense:
            all_of_it = np.arange(span.start, span.stop)
            ends = (option, all_of_it) if forward else (all_of_it, option)
            return edge_ticks(self.problem, edge, *(np.asarray(end) for end in ends))[0 if time else 1]
        at = int(self.position[option])
        weight = 1.0 if time else float(self.problem.edges.weight[edge])
        sites = None if self.whole[other] else self.position[span]
        row: Ints = np.zeros(0, dtype=np.int64)
        own = int(self.width[option]) if self.widths else 1
        for k in (0, self.prices.widths.index(own)) if own > 1 else (0,):
            raw = self.prices.raw[k, edge]
            if hidden is None:
                ticks = ticks_of(raw, weight)
                part: Ints = self._spread(ticks, at, sites)
            else:
                hides = hidden[option - self.ptr[self.source[edge]]] if forward else hidden
                least = self._spread(self.prices.least[k, edge], at, sites)
                seconds = np.maximum(self._spread(raw, at, sites) - hides, least)
                part = ticks_of(seconds, weight)
                part[self.position[span] == at] = 0
            row = part if k == 0 else np.where(self.width[span] == own, part, row)
        return row

    def best(self, edge: int, option: int, forward: bool, theta: Ints) -> int:
        """Which option of the other end is best for one option here: the first argmin of θ + ``row``."""
        other = self.target[edge] if forward else self.source[edge]
        plain = not self.dense and not self.widths and self.problem.edges.hidden[edge] is None
        if not (plain and self.whole[other] and self.prices.monotone[0, edge]):
            return int((theta + self.row(edge, option, forward)).argmin())
        at = int(self.position[option])
        found, value = at, int(theta[at])
        cost = self.prices.ticks[0, edge]
        for level, offset in zip(self.levels, self.offsets, strict=False):
            group = int(level.of_site[at])
            start = int(level.first[group])
            i = start + int(theta[start : level.first[group + 1]].argmin())
            there = int(theta[i]) + int(cost[offset + group if len(level.latency) > 1 else offset])
            if there < value or (there == value and i < found):
                found, value = i, there
        return found

    def _spread(self, by_link: npt.NDArray[T], at: int, sites: Ints | None) -> npt.NDArray[T]:
        """(sites,) the value of the link over which every site meets the one at position ``at``; 0 at itself."""
        row = np.zeros(self.S, dtype=by_link.dtype)
        for level, offset in zip(reversed(self.levels), reversed(self.offsets[:-1]), strict=True):
            group = level.of_site[at]
            link = offset + group if len(level.latency) > 1 else offset
            row[level.first[group] : level.first[group + 1]] = by_link[link]
        row[at] = 0
        return row if sites is None else row[sites]

    def _reach(self, edge: int, theta: Ints, u: int, v: int, k: int) -> Ints:
        """The message where c depends on the link alone: best of every group upwards, cheapest way downwards."""
        ticks = self.prices.ticks[k, edge]
        monotone = self.prices.monotone[k, edge]
        best = [self._fold(theta, u)]
        for level in self.levels:
            best.append(level.least(best[-1]))
        above: Ints | None = None
        for i in range(len(self.levels) - 1, -1, -1):
            level = self.levels[i]
            cost = ticks[self.offsets[i] : self.offsets[i + 1]]
            if monotone:
                here = best[i + 1] + cost
                if above is not None:
                    np.minimum(here, above, out=here)
                above = here if len(here) == 1 else here.take(level.parent)
            else:
                here = _best_of_siblings(best[i], level)
                here += cost if len(cost) == 1 else cost[level.parent]
                above = here if above is None else np.minimum(here, above.take(level.parent))
        message = best[0] if above is None else np.minimum(best[0], above)
        return self._unfold(message, v)

    def _reach_overlapped(self, edge: int, theta: Ints, u: int, v: int, k: int) -> Ints:
        """The message where c also depends on the option of the edge's source, wherever that stands."""
        hidden = self.problem.edges.hidden[edge]
        assert hidden is not None
        raw, least = self.prices.raw[k, edge], self.prices.least[k, edge]
        weight = float(self.problem.edges.weight[edge])
        from_source = u == self.source[edge]
        at_source = self.position[self.ptr[self.source[edge]] : self.ptr[self.source[edge] + 1]]
        best = self._fold(theta, u)
        message = self._unfold(best, v)
        children = best
        for i, level in enumerate(self.levels):
            part = slice(self.offsets[i], self.offsets[i + 1])
            link = 0 if part.stop - part.start == 1 else level.of_site[at_source]
            cost = ticks_of(np.maximum(raw[part][link] - hidden, least[part][link]), weight)
            if from_source:
                children = self._fold(theta + cost, u)
                if i:
                    children = np.minimum.reduceat(children, self.levels[i - 1].first[:-1])
            siblings = _best_of_siblings(children, level)
            reach = self._unfold(siblings.take(self.levels[i - 1].of_site) if i else siblings, v)
            message = np.minimum(message, reach if from_source else reach + cost)
            if not from_source:
                children = level.least(children)
        return message

    def _fold(self, theta: Ints, stage: int) -> Ints:
        """(S,) the best option of a stage on every site, in tree order."""
        if self.whole[stage]:
            return theta
        best = np.full(self.S, UNREACHABLE)
        at = self.position[self.ptr[stage] : self.ptr[stage + 1]]
        if self.sorted[stage]:
            best[at] = theta
        else:
            np.minimum.at(best, at, theta)
        return best

    def _unfold(self, by_site: Ints, stage: int) -> Ints:
        """(options of a stage,) the value of the site of every option."""
        if self.whole[stage]:
            return by_site
        return by_site.take(self.position[self.ptr[stage] : self.ptr[stage + 1]])

    def _send_dense(self, edge: int, theta: Ints, forward: bool) -> Ints:
        here, there = (self.source, self.target) if forward else (self.target, self.source)
        near = np.arange(self.ptr[here[edge]], self.ptr[here[edge] + 1])
        far = np.arange(self.ptr[there[edge]], self.ptr[there[edge] + 1])
        message = np.empty(len(far), dtype=np.int64)
        rows = max(1, _BLOCK // max(1, len(near)))
        for start in range(0, len(far), rows):
            block = far[start : start + rows, None]
            ends = (near[None, :], block) if forward else (block, near[None, :])
            message[start : start + rows] = (edge_ticks(self.problem, edge, *ends)[1] + theta).min(axis=1)
        return message


def _best_of_siblings(children: Ints, level: Level) -> Ints:
    """(children,) the least value among the other children of the same group."""
    best = level.least(children)
    at_best = children == best[level.parent]
    others = level.least(np.where(at_best, UNREACHABLE, children))
    second = np.where(np.add.reduceat(at_best.astype(np.int64), level.start) > 1, best, others)
    return np.where(at_best, second[level.parent], best[level.parent])
