"""The bounds of a model's levels: what can be asked for, and what of it no plan can have."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.bound_rows import Items, classes_of, queued_items, running_items
from iegopt.batch.cutting import bounded
from iegopt.batch.dual import Dual
from iegopt.batch.fitting import Fitting
from iegopt.batch.grid import deadline_grid
from iegopt.batch.long_bound import long_bound
from iegopt.batch.long_sets import LongSets, long_sets
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import EPSILON
from iegopt.batch.pinned import most_beside, pinned
from iegopt.batch.placement import Placement
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["DUAL", "LONG_PREFILLS", "Bounds"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

DUAL, LONG_PREFILLS = "lagrangian", "long prefills"
"""What proves a bound."""
GROUPS = 60
"""Groups of items whose uses the cutting planes tell apart."""
LOOKED_AT = 10_000
"""Requests times instances up to which each is looked at on each."""


class Bounds:
    """What levels ask for and can have, with the levels above as a plan has them.

    Attributes
    ----------
    possible (N,)
        Requests that a plan can place, as far as is known.
    full
        Level -> the utility of all of them.
    value, proof
        Level -> its bound, and what proves it.
    sets
        Level -> the sets of long prefills that its instances can take, where they were looked at.
    """

    def __init__(self, model: BatchModel, scout: Scout, levels: list[int]) -> None:
        self.model, self.levels = model, levels
        self.grid, self.classes = deadline_grid(model), classes_of(model)
        self.queued, self._fitting = queued_items(model, self.classes), Fitting(model, scout)
        self.possible = self._possible()
        self._running = running_items(model, self.classes, self._head())
        self.full = {level: self._full(level) for level in levels}
        self.value, self.proof = dict(self.full), dict.fromkeys(levels, DUAL)
        self.sets: dict[int, LongSets] = {}
        self._at_first = self.possible.copy()
        # What levels above had at most when one was bounded.
        self._had = {level: np.full(at, -np.inf) for at, level in enumerate(levels)}

    def lower(self, level: int, value: float, proof: str) -> None:
        """Take a bound where it is below the one there is."""
        if value < self.value[level]:
            self.value[level], self.proof[level] = value, proof

    def reached(self, at: int, have: Floats) -> bool:
        """Whether the level has all that its bound says."""
        most = self.value[self.levels[at]]
        return bool(have[at] >= most - EPSILON * max(1.0, most))

    def above(self, at: int, have: Floats) -> dict[int, float | None]:
        """What the levels above one have; ``None``: all they ask for."""
        found: dict[int, float | None] = {}
        for h, kept in zip(self.levels[:at], have.tolist(), strict=False):
            found[h] = None if kept >= self.full[h] - EPSILON * max(1.0, self.full[h]) else kept
        return found

    def dual(self, at: int, above: dict[int, float | None], part: float = 1.0) -> Dual:
        """The dual of a level, of its requests and those above that can be placed."""
        model, level = self.model, self.levels[at]
        items = Items.joined([self.queued.take(np.flatnonzero(self.asked(at))), self._running])
        stays = pinned(model, self._head(), self._spare(above))
        free = np.minimum(self.classes.most_share, most_beside(model, self.classes, stays))
        return Dual(model, self.classes, items, self.grid, level, above, GROUPS, part, free)

    def asked(self, at: int) -> Bools:
        """(N,) the requests of a level and above that can be placed."""
        return np.asarray((self.model.queue.priority <= self.levels[at]) & self.possible)

    def rule_out(self, at: int, plan: Placement, have: Floats, clock: Clock) -> None:
        """Ask no more for what a plan leaves of a small level and fits nowhere beside what stays."""
        level = self.levels[at]
        self._learn(at, have)
        held = np.flatnonzero((self.model.queue.priority == level) & (plan.prefill < 0) & self.possible)
        if len(held) and len(held) * self.model.J <= LOOKED_AT:
            stays = pinned(self.model, self._head(), self._spare(self.above(at, have)))
            self.possible[held[~self._fitting.some(held, stays, clock)]] = False
            self.full[level] = self._full(level)
        self.value[level], self.proof[level] = self.full[level], DUAL

    def by_long_prefills(self, at: int, have: Floats, clock: Clock) -> None:
        """Bound a small level by how many of its long prefills, and those above, the instances can take."""
        self._learn(at, have)
        model, above, heads = self.model, self.above(at, have), np.flatnonzero(self.asked(at))
        if not len(heads) or len(heads) * model.J > LOOKED_AT:
            return
        spare = self._spare(above)
        # A level that has all may still lack what no comparison counts.
        least = np.array([EPSILON * max(1.0, self.full[h]) for h in model.queue.priority[heads].tolist()])
        rows = heads[model.queue.weight[heads] > least]
        sets = long_sets(model, self._fitting, rows, heads, lambda head: pinned(model, head, spare), clock)
        if sets is not None:
            self.sets[self.levels[at]] = sets
            self.lower(
                self.levels[at], long_bound(model, sets, self.possible, self.levels[at], above, clock), LONG_PREFILLS
            )

    def uphold(self, plan: Placement, have: Floats, clock: Clock) -> None:
        """Bound anew, as far as there is time, what was bounded when a level above had more than a plan has: one above
        that has more now may have taken it."""
        for at, level in enumerate(self.levels):
            had = self._had[level]
            if (have[:at] >= had - EPSILON * np.maximum(1.0, np.abs(had))).all():
                continue
            mine = self.model.queue.priority == level
            self.possible[mine] = self._at_first[mine]
            had[:] = -np.inf
            self.full[level] = self._full(level)
            self.rule_out(at, plan, have, clock)
            if not self.reached(at, have):
                self.by_long_prefills(at, have, clock)
            if not self.reached(at, have) and clock.left > 0.0:
                self.lower(level, bounded(self.dual(at, self.above(at, have)), float(have[at]), clock).value, DUAL)

    def _learn(self, at: int, have: Floats) -> None:
        """A level is bounded while those above have so much; what these ask for was found out with what they learnt."""
        had = self._had[self.levels[at]]
        np.maximum(had, have[:at], out=had)
        for n, level in enumerate(self.levels[:at]):
            np.maximum(had[:n], self._had[level], out=had[:n])

    def _spare(self, above: dict[int, float | None]) -> dict[int, float]:
        """What levels above may lose: all they ask for, less what they keep, and what no comparison counts."""
        return {
            h: (0.0 if kept is None else self.full[h] - kept) + EPSILON * max(1.0, self.full[h])
            for h, kept in above.items()
        }

    def _head(self) -> int:
        """The highest priority of which a plan can place anything."""
        return int(self.model.queue.priority[self.possible].min(initial=np.iinfo(np.int64).max))

    def _possible(self) -> Bools:
        """(N,) which requests the relaxation can place at all."""
        if not self.classes.size or not self.model.N:
            return np.zeros(self.model.N, dtype=bool)
        dual = Dual(self.model, self.classes, self.queued, self.grid, max(self.levels), {})
        return np.isfinite(dual.at(np.zeros(dual.size)).least)

    def _full(self, level: int) -> float:
        """All that a level could be worth."""
        mine = (self.model.queue.priority == level) & self.possible
        return float(self.model.queue.weight[mine].sum())
