"""Strict priority: level by level, each keeps what the levels above it have."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.bound import Bound, descend, first_prices
from iegopt.batch.bound_rows import Items, classes_of, queued_items, running_items
from iegopt.batch.construct import dual_prices, even_prices, fill, order_by_density, plain_prices, set_paces
from iegopt.batch.cutting import cut
from iegopt.batch.dual import Dual
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import Outcome
from iegopt.batch.placement import Placement
from iegopt.batch.repair import repaired
from iegopt.batch.schedule import evaluate
from iegopt.batch.scout import Prices, Scout
from iegopt.solvers.clock import Clock

__all__ = ["Search", "better"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

EPSILON = 1e-9
"""Relative difference of two objectives that counts."""
GROUPS = 60
"""Groups of items whose uses the cutting planes tell apart."""
PARTS = (0.85, 0.7, 0.5, 0.3, 0.1)
"""Of the cluster, for prices where all of it has enough."""
SCARCE = 0.97
"""Part of a level's utility below which its bound says what is scarce."""


@dataclass(eq=False)
class Search:
    """The search for the best plan of a model.

    Attributes
    ----------
    best, outcome
        The best plan so far; doing nothing at first.
    bounds
        Level -> the bound that holds with the levels above as ``best`` has them.
    """

    model: BatchModel
    clock: Clock
    best: Placement = field(init=False)
    outcome: Outcome = field(init=False)
    bounds: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.best = Placement.empty(self.model)
        self.outcome = evaluate(self.model, self.best)
        self.scout, self.grid = Scout(self.model), Board.grid_of(self.model)
        self.levels = self.outcome.levels.tolist()
        self.classes = classes_of(self.model)
        self.queued, self.running = queued_items(self.model, self.classes), running_items(self.model, self.classes)
        self.possible = self._possible()
        self.full = {level: self._full(level) for level in self.levels}

    def run(self) -> None:
        """Plan, bound, and plan again with the prices of the bounds."""
        self._simple()
        for at, level in enumerate(self.levels):
            have = float(self.outcome.objective[at])
            if have >= self.full[level] - EPSILON * max(1.0, self.full[level]):
                self.bounds[level] = self.full[level]
                continue
            dual = self._dual(at)
            bound = descend(dual, have, self.clock, start=first_prices(dual, self.clock), steps=100)
            bound = cut(dual, bound, self.clock)
            self.bounds[level] = min(bound.value, self.full[level])
            for part in PARTS:
                if self.clock.left <= 0.0:
                    break
                if bound.value < SCARCE * self.full[level]:
                    self._priced(dual, bound)
                    break
                dual = self._dual(at, part)
                bound = descend(dual, 0.0, self.clock, start=first_prices(dual, self.clock), steps=100)
                bound = cut(dual, bound, self.clock)

    def offer(self, plan: Placement) -> bool:
        """Take a plan if it is better."""
        outcome = repaired(self.model, plan)
        if not better(outcome, self.outcome):
            return False
        self.best, self.outcome = plan, outcome
        return True

    def _simple(self) -> None:
        """Plans without prices: where first tokens are soonest, and where work is least."""
        board = Board(self.model)
        even = even_prices(self.model, board)
        cost = self._cost(even)
        for prices in (plain_prices(self.model, board), even):
            self._construct(Board(self.model), prices, cost)
            if not (self.best.prefill < 0).any() or self.clock.left <= 0.0:
                return

    def _construct(self, board: Board, prices: Prices, cost: Floats) -> None:
        """Fill a board level by level, and offer what comes of it."""
        set_paces(board, prices)
        for level in self.levels:
            requests = np.flatnonzero(self.model.queue.priority == level)
            turn = order_by_density(self.model, requests, cost[requests])
            fill(board, self.scout, turn.tolist(), prices, self.clock)
        self.offer(board.plan.copy())

    def _priced(self, dual: Dual, bound: Bound) -> None:
        board = Board(self.model)
        prices = dual_prices(self.model, board, dual, bound)
        cost = self._cost(prices)
        rows = dual.items
        mine = np.flatnonzero(~rows.running)
        least = dual.at(bound.prices).least[mine]
        asked = np.flatnonzero(self.model.queue.priority <= dual.level)
        cost[asked] = least
        self._construct(board, prices, cost)

    def _cost(self, prices: Prices) -> Floats:
        """(N,) what each request costs at least at prices, roughly."""
        model, queue, at = self.model, self.model.queue, self.model.instances
        shape, here = model.K, at.open
        time, share, memory = np.full(shape, np.inf), np.full(shape, np.inf), np.full(shape, np.inf)
        np.minimum.at(time, at.kind[here], prices.work[here, 0])
        np.minimum.at(share, at.kind[here], prices.share[here])
        np.minimum.at(memory, at.kind[here], prices.memory[here])
        rung = np.clip(np.searchsorted(model.paces, queue.itl * (1 + 1e-9), side="right") - 1, 0, None)
        step = np.maximum(queue.step_compute, queue.step_read) / model.paces[rung][:, None]
        with np.errstate(invalid="ignore"):
            cost = time * self.scout.work + share * step + memory * queue.kv_full[:, None]
        return np.asarray(np.nan_to_num(cost, nan=np.inf).min(axis=1, initial=np.inf))

    def _dual(self, at: int, part: float = 1.0) -> Dual:
        """The dual of a level, those above keeping what they have."""
        model = self.model
        level, above = self.levels[at], {}
        for h, kept in zip(self.levels[:at], self.outcome.objective.tolist(), strict=False):
            above[h] = None if kept >= self.full[h] - EPSILON * max(1.0, self.full[h]) else kept
        rows = np.flatnonzero(model.queue.priority <= level)
        items = Items.joined([self.queued.take(rows), self.running])
        return Dual(model, self.classes, items, self.grid, level, above, GROUPS, part)

    def _possible(self) -> npt.NDArray[np.bool_]:
        """(N,) which requests the relaxation can place at all."""
        if not self.classes.size or not self.model.N:
            return np.zeros(self.model.N, dtype=bool)
        dual = Dual(self.model, self.classes, self.queued, self.grid, max(self.levels), {})
        return np.isfinite(dual.at(np.zeros(dual.size)).least)

    def _full(self, level: int) -> float:
        """All that a level could be worth."""
        mine = (self.model.queue.priority == level) & self.possible
        return float(self.model.queue.weight[mine].sum())


def better(new: Outcome, old: Outcome) -> bool:
    """Whether a plan is worth more, level by level; among equals, whether it has less delay and less money."""
    for mine, theirs in zip(new.objective.tolist(), old.objective.tolist(), strict=True):
        if abs(mine - theirs) > EPSILON * max(1.0, abs(theirs)):
            return bool(mine > theirs)
    return new.delay + new.money < old.delay + old.money
