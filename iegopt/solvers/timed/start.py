"""The first plans where time counts: list schedules, the quickest first, and the best of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.timed.bound import MakespanBound
from iegopt.solvers.timed.construct import Builder
from iegopt.solvers.timed.pricer import Found, Pricer
from iegopt.solvers.timed.ranks import MeanRanks, mean_ranks, optimistic_costs

__all__ = ["Start"]

Ints = npt.NDArray[np.int64]

_LOOK_AHEAD = 500_000
"""Edges · sites² up to which the optimistic costs are worth their time."""


class Start:
    """The first plan as soon as it is made; ``construct`` and ``take`` for more. Every stage has an allowed option.

    Attributes
    ----------
    ranks (V,)
        The priorities to which the best plans of the constructions were built.
    """

    def __init__(self, problem: Problem, clock: Clock) -> None:
        self.price, self.bound = Pricer(problem), MakespanBound(problem)
        self.builder = Builder(self.price, self.bound)
        self.ranks: Sequence[float] = (self.bound.tail + self.bound.shortest).tolist()
        self.note = "list scheduling"
        self._clock = clock
        self.best: Found = self._built(self.ranks, eager=True)

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
        if self._clock.left > 0 and self.price.problem.E * self.price.problem.topology.S**2 <= _LOOK_AHEAD:
            behind = optimistic_costs(self.price)
            self._keep(self.price(self.builder.build(mean.up, self._clock, eager=True, behind=behind)))

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
