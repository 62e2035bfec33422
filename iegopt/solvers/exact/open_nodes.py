"""Best-first branch and bound on priced bounds, many nodes at a time.

What an open node keeps is small, a bit per option, but for the prices that its children start from: on graphs with many
cycles these are hundreds of kilobytes. Where they come to more than a limit, nodes share those of their parent, which
bound their children as well as any, a step or two later.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.branching import Branching, propagate
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.in_time import in_time
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.priced_plans import offer_plans_of, search_beam
from iegopt.solvers.exact.pricing import Priced, Pricing

__all__ = ["OpenNodes"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_STEPS, _LENGTH = 14, 0.5
"""Steps of a node's prices, and their length at first."""
_BATCH, _BATCH_CELLS = 32, 60_000
"""Nodes at a time, and nodes · options at a time."""
_BATCH_SHARE, _PACE = 0.3, 1e-5
"""Share of the time left for a batch, and seconds per node · option before any was measured."""
_WIDTH = 24
"""Of the beam of the node that is the least bounded."""
_MOST_HELD = 128_000_000
"""Bytes of prices from which on nodes share those of their parents."""


@dataclass(frozen=True, eq=False)
class _Start:
    """Prices of one node, as in ``Priced``, the parts of ``split`` one after the other: hundreds of small arrays a node
    would take three times the memory."""

    price: Floats
    toll: Floats
    split: Ints

    @property
    def bytes(self) -> int:
        return self.price.nbytes + self.toll.nbytes + self.split.nbytes


@dataclass(order=True)
class _Node:
    """An open node: its bound, prices to start from, options (n,) as bits, how many there are, and children."""

    bound: int
    number: int
    start: _Start = field(compare=False)
    bits: npt.NDArray[np.uint8] = field(compare=False)
    options: int = field(compare=False)
    children: list[tuple[int, Bools]] = field(compare=False)


class OpenNodes:
    """The nodes that may still hold a plan below ``best.upper``, of one root.

    Parameters
    ----------
    price (D + 1,), toll (R,), split, mass (n,)
        Of the root, as in ``Priced``.
    tell
        Receives every better bound.

    Attributes
    ----------
    bounded
        Nodes bounded so far.
    """

    def __init__(
        self,
        c: Candidates,
        best: BestPlan,
        bound: int,
        price: Floats,
        toll: Floats,
        split: tuple[Ints, ...],
        mass: Floats,
        tell: Callable[[int], None],
    ) -> None:
        self._c = c
        self._best = best
        self._tell = tell
        self._branching = Branching.of(c)
        self._number = itertools.count()
        self._pace = _PACE
        self._doing: list[int] = []
        self._open: list[_Node] = []
        self._held = 0
        self.bounded = 0
        sources = [c.of[c.ends[edge][0]] for edge in c.reduction.dropped]
        whole = np.ones(len(c.option), dtype=np.bool_)
        self._sources = np.concatenate([np.zeros(0, dtype=np.int64), *(np.arange(len(whole))[of] for of in sources)])
        """The option of every entry of a ``split``: those of the sources of edges that close cycles."""
        if not self._single(whole):
            children = self._branching.children(whole, mass)
            self._push(bound, _Start(price, toll, _flat(split)), whole, children)

    @property
    def none(self) -> bool:
        return not self._open and not self._doing

    @property
    def bounds(self) -> list[int]:
        """Bounds of which the least holds for all that is open."""
        return [*self._doing, *(node.bound for node in self._open[:1])]

    @property
    def priced(self) -> bool:
        """Whether any capacity or limit has a price."""
        return any(bool((node.start.price > 0).any() or (node.start.toll > 0).any()) for node in self._open)

    def forget_done(self) -> None:
        """Close all nodes where a new best plan is no worse than what they may hold."""
        if self._open and self._open[0].bound >= self._best.upper:
            self._open.clear()

    def explore(self, clock: Clock, whole: Clock) -> None:
        """Split open nodes, the lowest bound first, until none is left or the time is up.

        Ends early where the next node would take more than is left of the time of the ``whole`` search.
        """
        before = -UNREACHABLE
        while self._open and clock.left > 0:
            first = self._open[0]
            if whole.left < self._pace * first.options * len(first.children):
                return
            most = min(_BATCH_CELLS, _BATCH_SHARE * clock.left / self._pace)
            jobs: list[tuple[Bools, _Node]] = []
            cells = 0
            while self._open and len(jobs) < _BATCH and cells < most:
                node = heapq.heappop(self._open)
                if node.bound >= self._best.upper:
                    self._open.clear()
                    break
                self._doing.append(node.bound)
                keep = np.unpackbits(node.bits, count=len(self._c.option)).view(np.bool_)
                for stage, mask in node.children:
                    child = keep.copy()
                    child[self._c.of[stage]] = mask
                    left = propagate(self._c, child)
                    if left is not None:
                        jobs.append((left, node))
                        cells += int(left.sum())
            jobs = [job for job in jobs if not self._single(job[0])]
            if jobs:
                begun = clock.seconds
                self._bound(jobs, whole)
                self._pace = max(1e-9, (clock.seconds - begun) / cells)
            self._doing.clear()
            bound = self._open[0].bound if self._open else self._best.value
            if bound is not None and bound > before:
                self._tell(bound)
                before = bound

    def _single(self, keep: Bools) -> bool:
        """Whether a node has one plan only; it is then offered."""
        if int(keep.sum()) > self._c.V:
            return False
        self._best.offer(self._c.option[np.flatnonzero(keep)])
        return True

    def _bound(self, jobs: Sequence[tuple[Bools, _Node]], whole: Clock) -> None:
        keep = np.stack([left for left, _ in jobs], axis=-1)
        union: Bools = np.asarray(keep.any(axis=1))
        c = self._c.restrict(union)
        keep[union] = in_time(c, keep[union])
        possible = np.logical_and.reduce([keep[part].any(axis=0) for part in self._c.of])
        self.bounded += len(jobs)
        jobs = [(keep[:, b], jobs[b][1]) for b in np.flatnonzero(possible).tolist()]
        if not jobs:
            return
        keep = keep[:, possible]
        price = np.stack([node.start.price for _, node in jobs], axis=-1)
        priced_here = union[self._sources]
        flat = np.stack([node.start.split[priced_here] for _, node in jobs], axis=-1)
        ends = np.cumsum([c.of[c.ends[edge][0]].stop - c.of[c.ends[edge][0]].start for edge in c.reduction.dropped])
        split = np.split(flat, ends)[:-1]
        toll = np.concatenate([c.rows.padded(node.start.toll[:, None]) for _, node in jobs], axis=1)
        pricing = Pricing(c, keep[union], price, split, toll)

        def late(ahead: float = 0.0) -> bool:
            return whole.left <= ahead

        priced = pricing.run(lambda: self._best.upper, _STEPS, _LENGTH, offer_plans_of(c, self._best), late)
        alive = np.flatnonzero(priced.bound < self._best.upper)
        if alive.size and not late():
            column = int(alive[priced.bound[alive].argmin()])
            left = keep[union, column]
            found = search_beam(c, priced, column, left, _WIDTH, self._best, whole)
            priced.bound[column] = max(int(priced.bound[column]), found)
        if self._held > _MOST_HELD:
            self._held = sum(start.bytes for start in {id(node.start): node.start for node in self._open}.values())
        for b, (left, node) in enumerate(jobs):
            self._keep(priced, b, union, left, node)

    def _keep(self, priced: Priced, column: int, union: Bools, keep: Bools, parent: _Node) -> None:
        """Put a bounded child, of options (n,), on the heap unless it is done; those in ``union`` were priced."""
        bound, upper = max(parent.bound, int(priced.bound[column])), self._best.upper
        if bound >= min(upper, UNREACHABLE // 2):
            return
        marginals, mass = np.full(len(union), UNREACHABLE), np.zeros(len(union))
        marginals[union], mass[union] = priced.marginals[:, column], priced.mass[:, column]
        left = propagate(self._c, keep & (marginals < upper))
        if left is None or self._single(left):
            return
        start = parent.start if self._held > _MOST_HELD else self._start(priced, column, union, parent)
        self._push(bound, start, left, self._branching.children(left, mass))

    def _start(self, priced: Priced, column: int, union: Bools, parent: _Node) -> _Start:
        """Prices that are a child's own."""
        split = parent.start.split.copy()
        split[union[self._sources]] = _flat([part[:, column] for part in priced.split])
        start = _Start(priced.price[:, column].copy(), priced.toll[:, column].copy(), split)
        self._held += start.bytes
        return start

    def _push(self, bound: int, start: _Start, keep: Bools, children: list[tuple[int, Bools]]) -> None:
        node = _Node(bound, next(self._number), start, np.packbits(keep), int(keep.sum()), children)
        heapq.heappush(self._open, node)


def _flat(parts: Sequence[Ints]) -> Ints:
    return np.concatenate([np.zeros(0, dtype=np.int64), *parts])
