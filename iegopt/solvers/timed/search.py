"""Local search over plans in time.

A plan is a choice of options and factors on the priorities of its list schedule. A move takes a stage that the end
waits for to another option or to a neighbour's site, swaps the sites of two stages, or brings a stage forward. In turn
with moves, plans are built anew from shaken priorities. What is not much worse may take the place of the current plan
(threshold accepting); when it goes astray, the search returns to the best. Broken constraints come first in every
comparison.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock
from iegopt.solvers.result import OPTIMALITY_GAP, Report, unheard
from iegopt.solvers.timed.construct import Builder
from iegopt.solvers.timed.pricer import Found, Pricer

__all__ = ["improve"]

Floats = npt.NDArray[np.float64]

_SLACK = 0.02
"""A plan this much above the current one may take its place at the start; falls to 0 over the run."""
_ASTRAY = 300
"""Moves without a better plan, after which the search goes back to the best."""
_REACH = 8
"""Most moves take one of this many options of a stage that cost least by themselves."""
_REBUILDING = 0.4
"""Share of the time for plans that are built anew."""
_SHAKEN = (1, 1, 2, 3)
"""How many priorities change before a plan is built anew."""
_NOISE = (1e-3, 0.1, 0.5)
"""How much chance counts when options are compared, as a share of the mean time of a stage: the least only between
equals."""
_ON_PATH = 0.7
"""Share of the moves that start at a stage that the end waits for."""


def improve(
    price: Pricer, builder: Builder, ranks: Sequence[float], first: Found, clock: Clock, rng: random.Random, least: int,
    patience: int | None, report: Report = unheard,
) -> tuple[Found, int]:  # fmt: skip
    """The best plan that the search comes by, and how many plans it looked at.

    It ends with the clock, at a plan proven optimal by the bound ``least`` (ticks), or after ``patience`` plans
    without a better one. ``ranks`` (V,) are the priorities that list scheduling starts from; ``report``
    receives every better plan that keeps all constraints.
    """
    moves, rebuilt = _Moves(price, rng), _Rebuilt(price, builder, ranks, clock, rng)
    best = current = first
    began, total = clock.seconds, max(clock.left, 1e-9)
    count = astray = stale = 0
    while (left := clock.left) > 0 and (patience is None or stale < patience):
        if best.broken == 0 and best.value - least <= OPTIMALITY_GAP * abs(best.value):
            break
        count += 1
        stale += 1
        slack = _SLACK * left / total
        if rebuilt.seconds <= _REBUILDING * (clock.seconds - began):
            found = rebuilt.another(slack)
            if found.better_than(current):
                current = found
        else:
            near = moves.neighbour(current)
            if near is None:
                continue
            found = price(*near, current)
            if _may_follow(found, current, slack):
                current = found
            astray += 1
        if current.better_than(best):
            best, astray, stale = current, 0, 0
            if best.broken == 0:
                report(best.choice, None, None, best.table.start if price.problem.no_overlap else None)
        elif astray > _ASTRAY:
            current, astray = best, 0
    return best, count


def _may_follow(found: Found, current: Found, slack: float) -> bool:
    """Whether a plan may take the place of another: where it is better, or worse by no more than a share ``slack``."""
    worse = found.value > current.value + slack * abs(current.value)
    return found.better_than(current) or (found.broken <= current.broken and not worse)


class _Rebuilt:
    """A walk over priorities, each turned into a plan by list scheduling; ``seconds`` is what it has taken."""

    def __init__(
        self, price: Pricer, builder: Builder, ranks: Sequence[float], clock: Clock, rng: random.Random
    ) -> None:
        self._price, self._builder, self._clock, self._rng = price, builder, clock, rng
        self._ranks = ranks
        self._priority = list(ranks)
        self._current: Found | None = None
        self.seconds = 0.0
        self._random = np.random.default_rng(rng.randrange(2**32))
        self._mean = float(np.mean([price.problem.options.time[own].mean() for own in price.own]))

    def another(self, slack: float) -> Found:
        """The plan of the next priorities."""
        began, rng = self._clock.seconds, self._rng
        priority = list(self._priority)
        for _ in range(rng.choice(_SHAKEN)):
            v = rng.randrange(len(priority))
            priority[v] = self._ranks[v] if rng.random() < 0.2 else priority[v] * rng.uniform(0.7, 1.4)
        noise = None if rng.random() < 0.5 else self._noise(rng.choice(_NOISE))
        chosen = self._builder.build(priority, self._clock, eager=noise is not None or rng.random() < 0.5, behind=noise)
        found = self._price(chosen, priority=priority)
        if self._current is None or _may_follow(found, self._current, slack / 2):
            self._current, self._priority = found, priority
        self.seconds += self._clock.seconds - began
        return found

    def _noise(self, share: float) -> list[Floats]:
        """Per stage (allowed options,) ticks at random, up to a share of the mean time of a stage."""
        most = share * self._mean
        return [most * self._random.random(len(own)) for own in self._price.own]


class _Moves:
    def __init__(self, price: Pricer, rng: random.Random) -> None:
        problem, options = price.problem, price.problem.options
        self._price, self._problem, self._rng = price, problem, rng
        weight = problem.makespan_millionths / 10**6
        self._near: list[list[int]] = []
        self._at: list[dict[int, list[int]]] = [{} for _ in price.own]
        for own in price.own:
            cost = options.cost[own] + weight * options.time[own]
            reach = min(_REACH, len(own))
            self._near.append(own[np.argpartition(cost, reach - 1)[:reach]].tolist())
        self._neighbours: list[list[int]] = [
            [*(w for _, w in after), *(u for _, u in before)]
            for after, before in zip(price.dispatcher.outgoing, price.dispatcher.incoming, strict=True)
        ]
        self._path: tuple[Found, list[int]] | None = None

    def neighbour(self, plan: Found) -> tuple[Sequence[int], Sequence[float]] | None:
        """A plan one move away, or ``None`` where the move drawn does not exist."""
        rng, V = self._rng, self._problem.V
        kind = rng.random()
        v = rng.choice(self._critical(plan)) if rng.random() < _ON_PATH else rng.randrange(V)
        if kind < 0.3 and self._problem.no_overlap:
            shake = list(plan.shake or (1.0,) * V)
            shake[v] = 1.0 if rng.random() < 0.3 else shake[v] * rng.uniform(0.5, 2.0)
            return plan.chosen, shake
        chosen = list(plan.chosen)
        if kind < 0.45 and self._neighbours[v]:
            mine = self._options_at(v, self._site(plan, rng.choice(self._neighbours[v])))
            if not mine:
                return None
            chosen[v] = rng.choice(mine)
        elif kind < 0.6:
            w = rng.randrange(V)
            here, there = self._site(plan, v), self._site(plan, w)
            mine, other = self._options_at(v, there), self._options_at(w, here)
            if here == there or not mine or not other:
                return None
            chosen[v], chosen[w] = rng.choice(mine), rng.choice(other)
        else:
            own = self._near[v] if kind < 0.9 else self._price.own[v]
            chosen[v] = int(own[rng.randrange(len(own))])
        return None if chosen[v] == plan.chosen[v] else (chosen, plan.shake)

    def _critical(self, plan: Found) -> list[int]:
        """A chain of stages, each of which the next one waits for, to the one that ends last."""
        if self._path is not None and self._path[0] is plan:
            return self._path[1]
        start, finish = plan.table.start.tolist(), plan.table.finish.tolist()
        incoming = self._price.dispatcher.incoming
        ends: dict[int, list[int]] = {}
        for v, end in enumerate(finish):
            ends.setdefault(end, []).append(v)
        v = finish.index(max(finish))
        path, seen = [v], {v}
        while start[v] > 0:
            before = next((u for e, u in incoming[v] if finish[u] + plan.moved[e][0] == start[v]), None)
            if before is None:
                devices = set(self._devices(plan, v))
                same = (u for u in ends.get(start[v], ()) if u not in seen and devices & set(self._devices(plan, u)))
                before = next(same, None)
            if before is None:
                break
            v = before
            seen.add(v)
            path.append(v)
        self._path = plan, path
        return path

    def _options_at(self, v: int, site: int) -> list[int]:
        """The allowed options of a stage on a site."""
        found = self._at[v].get(site)
        if found is None:
            own = self._price.own[v]
            found = self._at[v][site] = own[self._problem.options.site[own] == site].tolist()
        return found

    def _devices(self, plan: Found, v: int) -> tuple[int, ...]:
        return self._price.dispatcher.devices(self._site(plan, v))

    def _site(self, plan: Found, v: int) -> int:
        return int(self._problem.options.site[plan.chosen[v]])
