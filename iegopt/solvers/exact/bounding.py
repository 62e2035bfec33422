"""Best-first branch and bound on priced bounds (``pricing.py``), many nodes at a time."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.beam import beam
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.branching import Branching, propagate
from iegopt.solvers.exact.candidates import Candidates, above_any_plan, candidates
from iegopt.solvers.exact.handover import multipliers_of, prices_from
from iegopt.solvers.exact.in_time import in_time
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pricing import Priced, Pricing, no_split, split_rows
from iegopt.solvers.exact.windows import through_windows
from iegopt.solvers.multipliers import Multipliers
from iegopt.solvers.result import Report, unheard

__all__ = ["PRICES_PROOF", "PricedSearch"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

PRICES_PROOF = "capacity prices"

_PHASES, _FIRST_STEPS, _STEPS = 12, (1, 6), 14
"""Phases of the root at most, steps in its first ones, and steps in every other phase and node."""
_LENGTH, _ROOT_DECAY = 0.5, 0.85
"""Step length to start with, and by what the root's shrinks from 1 with every phase."""
_WORTH, _FAR = 0.03, 0.1
"""Part of the gap that a phase of the root must close for another to follow; the gap as part of the bound at most."""
_BATCH, _BATCH_CELLS = 32, 60_000
"""Nodes at a time, and nodes · options at a time."""
_BATCH_SHARE, _PACE = 0.3, 1e-5
"""Share of the time left for a batch, and seconds per node · option before any was measured."""
_WARM_PHASES = 4
"""Phases, with their longer steps, that a root skips which starts from known prices."""
_ROOT_WIDTHS, _WIDTHS, _CELLS = ((16,), (128,), (512,), (256, 2000)), (24,), 200_000
"""Widths of the beams after every phase of the root, and of that of a node; their cells."""
_SHRUNK = 0.7
"""Share of the options left below which the root is laid out again."""
_PRICED_PLANS = 20
"""Plans of a beam that are priced in full."""


@dataclass(order=True)
class _Node:
    """An open node: its bound, prices to start from, options (n,) and children."""

    bound: int
    number: int
    price: Floats = field(compare=False)
    toll: Floats = field(compare=False)
    split: tuple[Ints, ...] = field(compare=False)
    keep: Bools = field(compare=False)
    children: list[tuple[int, Bools]] = field(compare=False)


class PricedSearch(BestPlan):
    """The search of one problem; ``value``, ``plan`` and ``bound`` hold at any moment.

    Parameters
    ----------
    mask (O,)
        Options that take part: a plan that uses another is no better than ``value``.
    best
        (objective, plan) to beat, or ``None``.
    known
        Prices to start from: those of a solve on nearly the same cluster save steps.
    report
        Receives every better plan and bound as it is found.

    Attributes
    ----------
    price (D,), toll (R,)
        Prices at the root: ticks for the whole memory of every device, and per unit of the limits in time.
    bound
        Ticks: no plan costs less, ``value`` once that is proven optimal; ``None`` where nothing is known.
    marginals (O,)
        Lower bounds of the root on any plan that uses the option.
    nodes
        Bounded so far.
    """

    def __init__(
        self,
        problem: Problem,
        mask: Bools,
        best: tuple[int, Ints] | None,
        clock: Clock,
        known: Multipliers | None = None,
        report: Report = unheard,
    ) -> None:
        super().__init__(problem, best, above_any_plan(problem, mask), report)
        self.clock = clock
        self.price, self.toll = np.zeros(problem.topology.D), np.zeros(0)
        self.marginals = np.where(mask, -UNREACHABLE, UNREACHABLE)
        self.nodes = 0
        self._started = False
        self._number = itertools.count()
        self._open: list[_Node] = []
        self._root: tuple[Candidates, Bools, Priced, int] | None = None
        self._doing: list[int] = []
        self._pace = _PACE
        self._c = candidates(problem, mask)
        if known is not None:
            given, self.toll = prices_from(problem, known, self._c.rows)
            self.price[self._c.used] = given[self._c.used]

    @property
    def multipliers(self) -> Multipliers:
        """The prices of the root by name, for the next solve and for the user."""
        return multipliers_of(self.problem, self.price, self._c.rows, self.toll)

    @property
    def done(self) -> bool:
        """Whether ``value`` is proven optimal, or without one that there is no plan."""
        return self._started and self._root is None and not self._open and not self._doing

    @property
    def bound(self) -> int | None:
        """Ticks; ``None`` before the root and where no plan exists."""
        if not self._started:
            return None
        bounds = [*self._doing, *(node.bound for node in self._open[:1])]
        if self._root is not None:
            bounds.append(self._root[3])
        if self.value is not None:
            bounds.append(self.value)
        return min(bounds, default=None)

    def bound_root(self, stop: int = _PHASES, first: int = 0) -> None:
        """The root's bound, its pruning, and plans from its prices, in phases over ever fewer options.

        Parameters
        ----------
        stop, first
            The phase after the last, and the first: 1 where a good plan is known, which phase 0 looks for.
        """
        c = self._c
        self._started = True
        self.nodes = 1
        keep = propagate(c, in_time(c, np.ones((len(c.option), 1), dtype=np.bool_))[:, 0])
        split = tuple(no_split(c, 1))
        price, toll = (part[:, None] for part in (np.append(self.price[c.used], 0.0), self.toll))
        if keep is not None and (price.any() or toll.any()):
            price, toll = _better_start(c, keep, price, toll)
        ahead = _WARM_PHASES if price.any() or toll.any() else 0
        bound = -UNREACHABLE
        for phase in range(first, stop):
            if keep is None:
                return
            if (phase == first and not keep.all()) or keep.sum() < _SHRUNK * len(keep):
                split = split_rows(c, split, keep)
                c, keep = c.restrict(keep), np.ones(int(keep.sum()), dtype=np.bool_)
            before, upper = bound, self.upper
            early = phase < len(_FIRST_STEPS)
            steps = _FIRST_STEPS[phase] if early else _STEPS
            pricing = Pricing(c, keep[:, None], price, split, toll)
            length = _ROOT_DECAY ** (phase - first + ahead)
            priced = pricing.run(lambda: self.upper, steps, length, self._offer(c), self._late)
            self.price[c.used], self.toll = priced.price[:-1, 0], priced.toll[:, 0]
            price, toll, split = priced.price, priced.toll, priced.split
            bound = max(bound, int(priced.bound[0]))
            widths = _ROOT_WIDTHS[min(phase + ahead // 2, len(_ROOT_WIDTHS) - 1)]
            bound = max(bound, self._search(c, priced, 0, keep, widths))
            self._raise_marginals(c, keep, priced.marginals[:, 0])
            if bound > before:
                self._tell(min(bound, self.upper))
            if bound >= min(self.upper, UNREACHABLE // 2):
                return
            keep = propagate(c, in_time(c, (keep & (self.marginals[c.option] < self.upper))[:, None])[:, 0])
            missing = min(self.upper - bound, int(_FAR * abs(bound)))
            slow = bound - before < _WORTH * missing and self.upper == upper
            if (slow and not early) or self._late():
                break
        if keep is not None:
            self._root = c, keep, priced, bound

    def improve_in_windows(self) -> None:
        """Better plans near the best one (``windows.py``), where that is among the candidates."""
        if self.plan is not None and np.isin(self.plan, self._c.option).all():
            through_windows(self._c, self, self._late)

    def _raise_marginals(self, c: Candidates, keep: Bools, marginals: Ints) -> None:
        raised = np.full(len(self.marginals), UNREACHABLE)
        raised[c.option] = np.where(keep, marginals, UNREACHABLE)
        np.maximum(self.marginals, raised, out=self.marginals)

    def _lay_out(self) -> None:
        """Open the root over the options that survive its own pruning."""
        if self._root is None:
            return
        wide, left, priced, bound = self._root
        self._root = None
        self._c = c = candidates(self.problem, self._mask(wide.option[left]), wide.rows)
        self._branching = Branching.of(c)
        price = np.append(priced.price[np.searchsorted(wide.used, c.used)], [[0.0]], axis=0)
        split = split_rows(wide, priced.split, left)
        whole = np.ones(len(c.option), dtype=np.bool_)
        if self._single(whole):
            return
        children = self._branching.children(whole, priced.mass[left, 0])
        toll, split_ = priced.toll[:, 0], tuple(p[:, 0] for p in split)
        self._open = [_Node(bound, next(self._number), price[:, 0], toll, split_, whole, children)]

    def _mask(self, options: Ints) -> Bools:
        mask = np.zeros(len(self.problem.options.site), dtype=np.bool_)
        mask[options] = True
        return mask

    @property
    def priced(self) -> bool:
        """Whether any capacity had a price at the root when it was left."""
        some = self._root is not None and bool((self._root[2].price > 0).any() or (self._root[2].toll > 0).any())
        return some or any(bool((node.price > 0).any() or (node.toll > 0).any()) for node in self._open)

    def offer_best(self, best: tuple[int, Ints] | None) -> None:
        """Take a feasible (objective, plan) found elsewhere where it is better."""
        if best is None or not self.take(best):
            return
        if self._root is not None and self._root[3] >= self.upper:
            self._root = None
        if self._open and self._open[0].bound >= self.upper:
            self._open.clear()

    def survivors(self) -> Bools:
        """(O,) options that a plan better than the best known can use, by the root's min-marginals, and that plan's."""
        mask = self.marginals < self.upper
        if self.plan is not None:
            mask[self.plan] = True
        return mask

    def explore(self, clock: Clock) -> None:
        """Split open nodes, the lowest bound first, until none is left or the time is up.

        Ends early where the next node would take more than is left of the time of the whole search.
        """
        before = -UNREACHABLE
        if clock.left > 0:
            self._lay_out()
        while self._open and clock.left > 0:
            first = self._open[0]
            if self.clock.left < self._pace * int(first.keep.sum()) * len(first.children):
                return
            most = min(_BATCH_CELLS, _BATCH_SHARE * clock.left / self._pace)
            jobs: list[tuple[Bools, _Node]] = []
            cells = 0
            while self._open and len(jobs) < _BATCH and cells < most:
                node = heapq.heappop(self._open)
                if node.bound >= self.upper:
                    self._open.clear()
                    break
                self._doing.append(node.bound)
                for stage, mask in node.children:
                    child = node.keep.copy()
                    child[self._c.of[stage]] = mask
                    left = propagate(self._c, child)
                    if left is not None:
                        jobs.append((left, node))
                        cells += int(left.sum())
            jobs = [job for job in jobs if not self._single(job[0])]
            if jobs:
                begun = clock.seconds
                self._bound(jobs)
                self._pace = max(1e-9, (clock.seconds - begun) / cells)
            self._doing.clear()
            bound = self.bound
            if bound is not None and bound > before:
                self._tell(bound)
                before = bound

    def _tell(self, bound: int) -> None:
        if bound < UNREACHABLE // 2:  # beyond, it says that there is no plan
            self._report(None, bound, PRICES_PROOF)

    def _single(self, keep: Bools) -> bool:
        """Whether a node has one plan only; it is then offered."""
        if int(keep.sum()) > self._c.V:
            return False
        self.offer(self._c.option[np.flatnonzero(keep)])
        return True

    def _bound(self, jobs: Sequence[tuple[Bools, _Node]]) -> None:
        keep = np.stack([left for left, _ in jobs], axis=-1)
        union: Bools = np.asarray(keep.any(axis=1))
        c = self._c.restrict(union)
        keep[union] = in_time(c, keep[union])
        possible = np.logical_and.reduce([keep[part].any(axis=0) for part in self._c.of])
        self.nodes += len(jobs) - int(possible.sum())
        jobs = [(keep[:, b], jobs[b][1]) for b in np.flatnonzero(possible).tolist()]
        if not jobs:
            return
        keep = keep[:, possible]
        price = np.stack([node.price for _, node in jobs], axis=-1)
        split = [
            np.stack([node.split[i][union[self._source(i)]] for _, node in jobs], axis=-1)
            for i in range(len(c.forest.dropped))
        ]
        toll = np.concatenate([c.rows.padded(node.toll[:, None]) for _, node in jobs], axis=1)
        pricing = Pricing(c, keep[union], price, split, toll)
        priced = pricing.run(lambda: self.upper, _STEPS, _LENGTH, self._offer(c), self._late)
        self.nodes += len(jobs)
        alive = np.flatnonzero(priced.bound < self.upper)
        if alive.size and not self._late():
            column = int(alive[priced.bound[alive].argmin()])
            left = keep[union, column]
            priced.bound[column] = max(int(priced.bound[column]), self._search(c, priced, column, left, _WIDTHS))
        n = len(union)
        for b, (left, node) in enumerate(jobs):
            marginals, mass = np.full(n, UNREACHABLE), np.zeros(n)
            marginals[union], mass[union] = priced.marginals[:, b], priced.mass[:, b]
            parts = []
            for i, part in enumerate(priced.split):
                whole = node.split[i].copy()
                whole[union[self._source(i)]] = part[:, b]
                parts.append(whole)
            self._keep(priced, b, left, marginals, mass, tuple(parts), node.bound)

    def _keep(
        self,
        priced: Priced,
        column: int,
        keep: Bools,
        marginals: Ints,
        mass: Floats,
        split: tuple[Ints, ...],
        parent: int,
    ) -> None:
        """Put a bounded node on the heap unless it is done."""
        bound = max(parent, int(priced.bound[column]))
        if bound >= min(self.upper, UNREACHABLE // 2):
            return
        left = propagate(self._c, keep & (marginals < self.upper))
        if left is None or self._single(left):
            return
        children = self._branching.children(left, mass)
        price, toll = priced.price[:, column].copy(), priced.toll[:, column].copy()
        heapq.heappush(self._open, _Node(bound, next(self._number), price, toll, split, left, children))

    def _source(self, i: int) -> slice:
        """Options of the source of the i-th edge that closes a cycle."""
        c = self._c
        return c.of[c.ends[c.forest.dropped[i]][0]]

    def _offer(self, c: Candidates) -> Callable[[Ints], None]:
        def take(plan: Ints) -> None:
            if c.cost_of(plan[None, :])[0] < self.upper:
                self.offer(c.option[plan])

        return take

    def _search(self, c: Candidates, priced: Priced, column: int, keep: Bools, widths: Sequence[int]) -> int:
        """Offer the plans of beams; a bound on every plan of the node, at least ``upper`` where it is solved."""
        bound = -UNREACHABLE
        for width in widths:
            found = beam(c, priced, column, keep, self.upper, width, _CELLS)
            without = found.bound
            for i, (plan, value) in enumerate(zip(found.plans, found.value.tolist(), strict=True)):
                if i == _PRICED_PLANS:
                    without = min(without, value)
                if i == _PRICED_PLANS or value >= self.upper or self.offer(c.option[plan]):
                    break
            bound = max(bound, without)
            if bound >= self.upper or self._late():
                break
        return bound

    def _late(self) -> bool:
        return self.clock.left <= 0


def _better_start(c: Candidates, keep: Bools, price: Floats, toll: Floats) -> tuple[Floats, Floats]:
    """The given prices, or none where these bound better: prices of another request may be far off."""
    both = [np.concatenate([part, np.zeros_like(part)], axis=1) for part in (price, toll)]
    given, none = Pricing(c, np.stack([keep, keep], axis=-1), both[0], no_split(c, 2), both[1]).bounds().tolist()
    return (price, toll) if given > none else (np.zeros_like(price), np.zeros_like(toll))
