"""Strict priority: level by level, each keeps what the levels above it have."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.bound import Bound
from iegopt.batch.bound_rows import Items, classes_of, queued_items, running_items
from iegopt.batch.construct import (
    cost_at,
    dual_prices,
    even_prices,
    fill,
    order_by_density,
    place_as_planned,
    place_cleared,
    plain_prices,
    planned_turn,
    set_paces,
)
from iegopt.batch.cutting import bounded
from iegopt.batch.dual import Dual
from iegopt.batch.first import first_plan
from iegopt.batch.fitting import Fitting
from iegopt.batch.grid import deadline_grid
from iegopt.batch.improve import hasten, make_room, quicken
from iegopt.batch.model import BatchModel
from iegopt.batch.moving import Moving
from iegopt.batch.outcome import EPSILON, Outcome, better, worth_more
from iegopt.batch.packed import packed
from iegopt.batch.pinned import most_beside, pinned
from iegopt.batch.placement import Placement
from iegopt.batch.reach import Prices
from iegopt.batch.recreate import recreated, trials
from iegopt.batch.repair import repaired
from iegopt.batch.rules.admitted import admit
from iegopt.batch.rules.scores import RULES
from iegopt.batch.schedule import evaluate
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["SMALL", "Search"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GROUPS = 60
"""Groups of items whose uses the cutting planes tell apart."""
SMALL = 50_000
"""Requests times instances up to which rules are tried too."""
LOOKING = 0.2
"""Part of the time left for finding out what is scarce."""
BOUNDING = 0.5
"""Part of the time left for bounds; the rest is for the plan."""
FEW, STAY = 0.05, 0.02
"""Part of the planned requests that a plan drawn anew may move; and what more of a level's utility it must have where
it moves more of them."""
UNTIL = 60
"""Trials in a row that come to nothing before no more are made."""
ROUNDS, TRIES = 3, 200
"""Of making room, and requests tried in each."""
LOOKED_AT = 10_000
"""Requests that are left of a level times instances up to which each is looked at on each."""
RULING = 0.05
"""Part of the time left for that: what is not looked at is asked for."""
NEAR = 0.98
"""Part of all a level asks for with which prices of a smaller cluster would help no more."""
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
        self.scout, self.grid, self.moving = Scout(self.model), deadline_grid(self.model), Moving(self.model)
        self.levels = self.outcome.levels.tolist()
        self.classes = classes_of(self.model)
        self.queued, self.running = queued_items(self.model, self.classes), running_items(self.model, self.classes)
        self.possible, self.fitting = self._possible(), Fitting(self.model, self.scout)
        self.asked = np.flatnonzero(self.possible)
        self.full = {level: self._full(level) for level in self.levels}

    def begin(self, each: float) -> None:
        """Make a first plan (``iegopt.batch.first``), for when there is no time for more."""
        cost = cost_at(self.scout, even_prices(self.model, self.grid))
        self.offer(first_plan(self.scout, cost, self.clock, each), anew=True)

    def run(self) -> None:
        """Plan, with the prices of what is scarce where something is, bound, and improve."""
        self.bounds = dict(self.full)
        if self.clock.left <= 0.0:
            return
        even = even_prices(self.model, self.grid)
        cost = cost_at(self.scout, even)
        small, scarce = self.model.N * self.model.J <= SMALL, None
        if (self.model.queue.planned_prefill >= 0).any():
            self._keep(self.model.queue.planned_prefill, self.model.queue.planned_decode, even, cost)
        self.offer(packed(self.scout, self.classes, self.queued, self.levels, cost, self.clock), anew=True)
        if small:
            whole, self.clock = self.clock, self.clock.slice(LOOKING * self.clock.left)
            scarce = self._scarcity() if self.classes.size and self.model.N else None
            self.clock = whole
            self._construct(Board(self.model), plain_prices(self.model, self.grid), cost)
            if scarce is not None:
                self._priced(*scarce)
        if small and not self._complete() and not self._all_placed():
            self._construct(Board(self.model), even, cost)
        whole, self.clock = self.clock, self.clock.slice(BOUNDING * self.clock.left)
        for at in range(len(self.levels)):
            self._bound(at, scarce)
        self.clock = whole
        self._improve(cost, plain_prices(self.model, self.grid))
        if small and not self._complete() and self._by_rules():
            self._improve(cost, plain_prices(self.model, self.grid))
        self._recreate(cost, even)
        self._settle(even, cost)

    def _improve(self, cost: Floats, prices: Prices) -> None:
        """Make room for what is not placed, as long as that places more; then decode faster where that is free."""
        for _ in range(ROUNDS):
            held = np.flatnonzero((self.best.prefill < 0) & self.possible)
            if not len(held) or self.clock.left <= 0.0:
                break
            board = Board.of(self.model, self.best, self.outcome.objective, self.outcome.work)
            level = self.model.queue.priority[held]
            turn = [order_by_density(self.model, held[level == h], cost[held[level == h]]) for h in self.levels]
            placed = make_room(board, self.scout, np.concatenate(turn).tolist(), prices, self.clock, TRIES)
            if not placed or not self.offer(board.plan.copy()):
                break
        self._quicken()

    def _recreate(self, cost: Floats, prices: Prices) -> None:
        """Plan parts of a small queue's plan anew, always alike."""
        rng, better_at = np.random.default_rng(0), 0
        for n in range(trials(self.model)):
            if self.clock.left <= 0.0 or n - better_at > UNTIL or self._complete():
                break
            board = recreated(self.scout, self.moving, self.best, cost, prices, rng, self.clock)
            if worth_more(board.worth, self.outcome.objective) and self.offer(board.plan.copy(), anew=True):
                self._quicken()
                better_at = n

    def _quicken(self) -> None:
        if self.clock.left > 0.0:
            board = Board.of(self.model, self.best, self.outcome.objective, self.outcome.work)
            hastened = hasten(board, self.scout, self.clock)
            if quicken(board, self.clock, anyway=self._all_placed()) or hastened:
                self.offer(board.plan.copy())

    def _complete(self) -> bool:
        """Whether every level has all that it asks for."""
        full = np.array([self.full[level] for level in self.levels])
        return bool((self.outcome.objective >= full - EPSILON * np.maximum(1.0, full)).all())

    def _all_placed(self) -> bool:
        return not ((self.best.prefill < 0) & self.possible).any()

    def _by_rules(self) -> bool:
        """What today's routers would do with admission, so that none of them does better; whether one did."""
        before = self.outcome
        for rule in RULES:
            if self.clock.left > 0.0:
                self.offer(admit(self.model, rule, clock=self.clock), anew=True)
        return self.outcome is not before

    def _keep(self, prefill: Ints, decode: Ints, prices: Prices, cost: Floats) -> bool:
        """Offer a plan in which requests stay where they were put, where they can; the rest as prices have it."""
        before = self.outcome
        board = Board(self.model)
        for i in planned_turn(self.scout, prefill):
            p, q = int(prefill[i]), int(decode[i])
            if not place_as_planned(board, self.scout, i, p, q):
                place_cleared(board, self.scout, self.moving, i, p, q)
        quicken(board, self.clock, anyway=False)  # where they are, before any goes where it is faster
        self._construct(board, prices, cost)
        self._quicken()
        return self.outcome is not before

    def _settle(self, prices: Prices, cost: Floats) -> None:
        """Put the plan again as the next replan will, so that this one finds first what that one would."""
        for _ in range(ROUNDS):
            if self.clock.left <= 0.0 or not self._keep(self.best.prefill, self.best.decode, prices, cost):
                return

    def _scarcity(self) -> tuple[Dual, Bound] | None:
        """Dual and bound of the first level that cannot have all it asks for, none where every level can."""
        above: dict[int, float | None] = {}
        for at, level in enumerate(self.levels):
            if not self.full[level]:
                continue
            dual = self._dual(at, above)
            bound = bounded(dual, 0.0, self.clock)
            if bound.value < SCARCE * self.full[level]:
                return dual, bound
            above[level] = None
        return None

    def _bound(self, at: int, scarce: tuple[Dual, Bound] | None) -> None:
        """Bound a level, the levels above it as the best plan has them; plan again where its prices say more."""
        level = self.levels[at]
        self._rule_out(at)
        have = float(self.outcome.objective[at])
        self.bounds[level] = self.full[level]
        if have >= self.full[level] - EPSILON * max(1.0, self.full[level]) or self.clock.left <= 0.0:
            return
        dual = self._dual(at, self._above(at))
        start = None
        if scarce is not None:
            start = np.ones(dual.size)
            start[: len(dual.scale)] = scarce[1].prices[: len(dual.scale)]
        bound = bounded(dual, have, self.clock, start=start)
        self.bounds[level] = min(bound.value, self.full[level])
        if have >= NEAR * self.full[level]:
            return
        if self.model.N * self.model.J > SMALL:
            return
        for part in PARTS if scarce is None else ():
            if bound.value < SCARCE * self.full[level] or self.clock.left <= 0.0:
                break
            dual = self._dual(at, self._above(at), part)
            bound = bounded(dual, 0.0, self.clock)
        if self.clock.left > 0.0 and (scarce is None or dual.level != scarce[0].level):
            self._priced(dual, bound)

    def _rule_out(self, at: int) -> None:
        """Ask no more for what is left of a small level and fits nowhere beside what stays."""
        queue, level = self.model.queue, self.levels[at]
        held = np.flatnonzero((queue.priority == level) & (self.best.prefill < 0) & self.possible)
        if not len(held) or len(held) * self.model.J > LOOKED_AT:
            return
        stays = pinned(self.model, level, [h for h, kept in self._above(at).items() if kept is None])
        clock = self.clock.slice(RULING * self.clock.left)
        self.possible[held[~self.fitting.some(held, stays, clock)]] = False
        self.full[level] = self._full(level)

    def offer(self, plan: Placement, *, anew: bool = False) -> bool:
        """Take a plan if it is better; one that is made anew and moves many only if it is much better."""
        outcome = repaired(self.model, plan)
        many = outcome.changed.sum() > FEW * (self.model.queue.planned_prefill >= 0).sum()
        if not better(outcome, self.outcome, STAY if anew and many else EPSILON):
            return False
        self.best, self.outcome = plan, outcome
        return True

    def _construct(self, board: Board, prices: Prices, cost: Floats) -> None:
        """Fill a board level by level, and offer what comes of it."""
        anew = not (board.plan.prefill >= 0).any()
        set_paces(board, prices)
        for level in self.levels:
            requests = np.flatnonzero((self.model.queue.priority == level) & (board.plan.prefill < 0))
            turn = order_by_density(self.model, requests, cost[requests])
            fill(board, self.scout, turn.tolist(), prices, self.clock)
        self.offer(board.plan.copy(), anew=anew)

    def _priced(self, dual: Dual, bound: Bound) -> None:
        board = Board(self.model)
        prices = dual_prices(self.model, board, dual, bound)
        cost = cost_at(self.scout, prices)
        rows = dual.items
        mine = np.flatnonzero(~rows.running)
        least = dual.at(bound.prices).least[mine]
        cost[self.asked] = least
        self._construct(board, prices, cost)

    def _above(self, at: int) -> dict[int, float | None]:
        """What the levels above one have; ``None``: all."""
        above: dict[int, float | None] = {}
        for h, kept in zip(self.levels[:at], self.outcome.objective.tolist(), strict=False):
            above[h] = None if kept >= self.full[h] - EPSILON * max(1.0, self.full[h]) else kept
        return above

    def _dual(self, at: int, above: dict[int, float | None], part: float = 1.0) -> Dual:
        """The dual of a level."""
        model, level = self.model, self.levels[at]
        self.asked = rows = np.flatnonzero((model.queue.priority <= level) & self.possible)
        items = Items.joined([self.queued.take(rows), self.running])
        stays = pinned(model, level, [h for h, kept in above.items() if kept is None])
        free = np.minimum(self.classes.most_share, most_beside(model, self.classes, stays))
        return Dual(model, self.classes, items, self.grid, level, above, GROUPS, part, free)

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
