"""The first plans where time counts: list schedules, the quickest first, and the best of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.result import Params, Report, unheard
from iegopt.solvers.timed.bound import MakespanBound
from iegopt.solvers.timed.construct import Builder
from iegopt.solvers.timed.pricer import Found, Pricer
from iegopt.solvers.timed.ranks import MeanRanks, mean_ranks, optimistic_costs
from iegopt.solvers.timed.walk import Walk, walkable

__all__ = ["SHORT", "Start"]

Ints = npt.NDArray[np.int64]

_CARE_NEEDS = 4e-4
"""Seconds a stage that must be left for schedules that wait for memory."""
_FIRST_SHARE, _FIRST_LEAST, _FIRST_MOST = 0.1, 2e-4, 0.001
"""Share of the time, and seconds at least and at most, for the compiled walk before any bound: at least, since a call
of ``solve`` cannot end sooner than in twice as many."""
SHORT = 0.005
"""Seconds left up to which the compiled walk takes all, before any bound."""
_LOOK_AHEAD, _LOOK_AHEAD_SHARE = 500_000, 0.2
"""Edges · sites² up to which the optimistic costs are worth it, and the share of the time left that they may take."""
_PAIR_SECONDS, _SITE_SECONDS = 1e-8, 2e-5
"""Seconds of the optimistic costs for each of these and for a site, as measured on one core of a server."""


class Start:
    """The first plan as soon as it is made; ``construct``, ``walk`` and ``take`` for more.

    Every stage has an allowed option. ``walks`` asks for the compiled walk in place of constructions, and tells
    whether that is possible.

    Attributes
    ----------
    ranks (V,)
        The priorities to which the best plans of the constructions were built.
    """

    def __init__(self, problem: Problem, params: Params, clock: Clock, *, walks: bool) -> None:
        self.price = Pricer(problem, careful=clock.left > _CARE_NEEDS * problem.V)
        self.bound = MakespanBound(problem)
        self.ranks: Sequence[float] = (self.bound.tail + self.bound.shortest).tolist()
        self._clock, self._params = clock, params
        self._walk = (
            Walk(self.price, self.ranks, random.Random(params.seed)) if walks and walkable(self.price, clock) else None
        )
        self.walks = self._walk is not None
        if self._walk is None:
            self.note = "list scheduling"
            self.best: Found = self._built(self.ranks, eager=True)
        else:
            left = clock.left
            seconds = max(_FIRST_LEAST, left if left < SHORT else min(_FIRST_SHARE * left, _FIRST_MOST))
            self.best, self._count = self._walk.best(Clock(clock.seconds + seconds, clock.start), 0, None)
            self.note = f"compiled search over {self._count:,} plans"

    @property
    def exhausted(self) -> bool:
        """Whether branch and bound over schedules has proven that there is no better plan."""
        return self._walk is not None and self._walk.exhausted

    @cached_property
    def builder(self) -> Builder:
        return Builder(self.price, self.bound)

    def take(self, choice: Ints | None) -> None:
        """Weigh up a plan from elsewhere, if its options are allowed."""
        if choice is not None and self.price.problem.allowed[choice].all():
            self._keep(self.price(choice.tolist()))

    def construct(self) -> None:
        """List schedules by other priorities and other scores, while there is time."""
        if self._clock.left <= 0:
            return
        mean = mean_ranks(self.price)
        length = [a + b for a, b in zip(mean.up, mean.down, strict=True)]
        first = self.ranks
        if self._clock.left > 0 and self._keep(self._built(mean.up, eager=True)):
            self.ranks = mean.up
        if self._clock.left > 0:
            self._keep(self._built(first, eager=False))
        if self._clock.left > 0:
            self._keep(self._built(length, eager=True, pinned=self.on_one_site(mean)))
        if self._looks_ahead():
            behind = optimistic_costs(self.price)
            self._keep(self.price(self.builder.build(mean.up, self._clock, eager=True, behind=behind)))

    def walk(self, clock: Clock, least: int, patience: int | None, report: Report = unheard) -> None:
        """Go on with the compiled walk, as ``Walk.best``."""
        assert self._walk is not None
        found, count = self._walk.best(clock, least, patience, report)
        self._count += count
        self._keep(found)
        self.note = f"compiled search over {self._count:,} plans"

    def _looks_ahead(self) -> bool:
        """Whether there is time for the optimistic costs."""
        S = self.price.problem.topology.S
        pairs = self.price.problem.E * S**2
        needs = _PAIR_SECONDS * pairs + _SITE_SECONDS * S
        return pairs <= _LOOK_AHEAD and needs < _LOOK_AHEAD_SHARE * self._clock.left

    def _built(self, priority: Sequence[float], *, eager: bool, pinned: dict[int, int] | None = None) -> Found:
        chosen = self.builder.build(priority, self._clock, eager=eager, pinned=pinned)
        return self.price(chosen, priority=priority)

    def _keep(self, found: Found) -> bool:
        better = found.better_than(self.best)
        if better:
            self.best = found
        return better

    def on_one_site(self, mean: MeanRanks) -> dict[int, int]:
        """The stages on the critical path, all on the site that does them soonest, where one can (CPOP)."""
        problem, own = self.price.problem, self.price.own
        total, able = np.zeros(problem.topology.S), np.zeros(problem.topology.S, dtype=np.int64)
        for v in mean.critical:
            site = problem.options.site[own[v]]
            shortest = np.full(problem.topology.S, np.inf)
            np.minimum.at(shortest, site, problem.options.time[own[v]])
            able += np.isfinite(shortest)
            total += shortest
        best = int(np.where(able == len(mean.critical), total, np.inf).argmin())
        return dict.fromkeys(mean.critical, best) if able[best] == len(mean.critical) else {}
