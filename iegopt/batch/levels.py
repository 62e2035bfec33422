"""Strict priority: level by level, each keeps what the levels above it have."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.batch.board import Board
from iegopt.batch.bound import Bound
from iegopt.batch.bounds import DUAL, Bounds
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
from iegopt.batch.improve import hasten, make_room, quicken
from iegopt.batch.matching import matched
from iegopt.batch.model import BatchModel
from iegopt.batch.moving import Moving
from iegopt.batch.outcome import EPSILON, Outcome, better, worth_more
from iegopt.batch.packed import packed
from iegopt.batch.placement import Placement
from iegopt.batch.reach import Prices
from iegopt.batch.recreate import recreated, trials
from iegopt.batch.repair import repaired
from iegopt.batch.room import Room
from iegopt.batch.rules.admitted import admit
from iegopt.batch.rules.scores import RULES
from iegopt.batch.schedule import evaluate
from iegopt.batch.scout import Scout
from iegopt.solvers.clock import Clock

__all__ = ["SMALL", "Search"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

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
COUNTING = 0.4
"""Part of the time left for bounds that counts long prefills may take."""
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
        Of every level, with the levels above as ``best`` has them.
    """

    model: BatchModel
    clock: Clock
    best: Placement = field(init=False)
    outcome: Outcome = field(init=False)
    bounds: Bounds = field(init=False)

    def __post_init__(self) -> None:
        self.best = Placement.empty(self.model)
        self.outcome = evaluate(self.model, self.best)
        self.scout, self.moving = Scout(self.model), Moving(self.model)
        self.levels = self.outcome.levels.tolist()
        self.bounds = Bounds(self.model, self.scout, self.levels)
        self.grid, self.asked = self.bounds.grid, np.flatnonzero(self.bounds.possible)

    def begin(self, each: float) -> None:
        """Make a first plan (``iegopt.batch.first``), for when there is no time for more."""
        cost = cost_at(self.scout, even_prices(self.model, self.grid))
        self.offer(first_plan(self.scout, cost, self.clock, each), anew=True)

    def run(self) -> None:
        """Plan, with the prices of what is scarce where something is, bound, and improve."""
        if self.clock.left <= 0.0:
            return
        even = even_prices(self.model, self.grid)
        cost = cost_at(self.scout, even)
        small, scarce = self.model.N * self.model.J <= SMALL, None
        if (self.model.queue.planned_prefill >= 0).any():
            self._keep(self.model.queue.planned_prefill, self.model.queue.planned_decode, even, cost)
            if self._complete() and not self._moves_or_adds():
                self._settle(even, cost)  # any other plan would move them for nothing
                return
        self.offer(
            packed(self.scout, self.bounds.classes, self.bounds.queued, self.levels, cost, self.clock), anew=True
        )
        if small:
            whole, self.clock = self.clock, self.clock.slice(LOOKING * self.clock.left)
            scarce = self._scarcity() if self.bounds.classes.size and self.model.N else None
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
        if small:
            self._match(cost)
            self._count_again()
        self._recreate(cost, even)
        self._settle(even, cost)
        self.bounds.uphold(self.best, self.outcome.objective, self.clock)

    def _improve(self, cost: Floats, prices: Prices) -> None:
        """Make room for what is not placed, as long as that places more; then decode faster where that is free."""
        for _ in range(ROUNDS):
            if self._all_placed() or self.clock.left <= 0.0:
                break
            board = Board.of(self.model, self.best, self.outcome.objective, self.outcome.work)
            if not self._make_room(board, cost, prices) or not self.offer(board.plan.copy()):
                break
        self._quicken()

    def _make_room(self, board: Board, cost: Floats, prices: Prices) -> int:
        """Make room for what is not placed, level by level; how many are then."""
        held = np.flatnonzero((board.plan.prefill < 0) & self.bounds.possible)
        level = self.model.queue.priority[held]
        turn = [order_by_density(self.model, held[level == h], cost[held[level == h]]) for h in self.levels]
        return make_room(board, self.scout, np.concatenate(turn).tolist(), prices, self.clock, TRIES)

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
        """Whether no level can have more."""
        return all(self.bounds.reached(at, self.outcome.objective) for at in range(len(self.levels)))

    def _moves_or_adds(self) -> bool:
        """Whether the best plan has any request elsewhere than the plan before, or for the first time."""
        queue = self.model.queue
        new = (self.best.prefill >= 0) & (queue.planned_prefill < 0)
        return bool((self.outcome.changed | new).any())

    def _all_placed(self) -> bool:
        return not ((self.best.prefill < 0) & self.bounds.possible).any()

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
        """Put the plan again as the next replan will, so that this one finds first what that one would: where the
        snapshot says that a request was planned, and where this plan has it."""
        queue = self.model.queue
        planned = queue.planned_prefill >= 0
        for _ in range(ROUNDS):
            if self.clock.left <= 0.0:
                return
            prefill, decode = self.best.prefill.copy(), self.best.decode.copy()
            found = self._keep(prefill, decode, prices, cost)
            if planned.any() and self.clock.left > 0.0:
                prefill = np.where(planned, queue.planned_prefill, prefill)
                decode = np.where(planned, queue.planned_decode, decode)
                found |= self._keep(prefill, decode, prices, cost)
            if not found:
                return

    def _scarcity(self) -> tuple[Dual, Bound] | None:
        """Dual and bound of the first level that cannot have all it asks for, none where every level can."""
        above: dict[int, float | None] = {}
        for at, level in enumerate(self.levels):
            if not self.bounds.full[level]:
                continue
            dual = self._dual(at, above)
            bound = bounded(dual, 0.0, self.clock)
            if bound.value < SCARCE * self.bounds.full[level]:
                return dual, bound
            above[level] = None
        return None

    def _bound(self, at: int, scarce: tuple[Dual, Bound] | None) -> None:
        """Bound a level, the levels above it as the best plan has them; plan again where its prices say more."""
        bounds, level = self.bounds, self.levels[at]
        bounds.rule_out(at, self.best, self.outcome.objective, self.clock.slice(RULING * self.clock.left))
        if bounds.reached(at, self.outcome.objective) or self.clock.left <= 0.0:
            return
        counting = self.clock.slice(COUNTING * self.clock.left)
        bounds.by_long_prefills(at, self.outcome.objective, counting)
        if bounds.reached(at, self.outcome.objective) or self.clock.left <= 0.0:
            return
        have, full = float(self.outcome.objective[at]), bounds.full[level]
        dual = self._dual(at, bounds.above(at, self.outcome.objective))
        start = None
        if scarce is not None:
            start = np.ones(dual.size)
            start[: len(dual.scale)] = scarce[1].prices[: len(dual.scale)]
        bound = bounded(dual, have, self.clock, start=start)
        bounds.lower(level, bound.value, DUAL)
        if have >= NEAR * full or self.model.N * self.model.J > SMALL:
            return
        for part in PARTS if scarce is None else ():
            if bound.value < SCARCE * full or self.clock.left <= 0.0:
                break
            dual = self._dual(at, bounds.above(at, self.outcome.objective), part)
            bound = bounded(dual, 0.0, self.clock)
        if self.clock.left > 0.0 and (scarce is None or dual.level != scarce[0].level):
            self._priced(dual, bound)

    def _count_again(self) -> None:
        """Bound by long prefills what falls short, now that the levels above have more than when it was bounded."""
        for at in range(len(self.levels)):
            if not self.bounds.reached(at, self.outcome.objective) and self.clock.left > 0.0:
                counting = self.clock.slice(COUNTING * self.clock.left)
                self.bounds.by_long_prefills(at, self.outcome.objective, counting)

    def _match(self, cost: Floats) -> None:
        """Plan with those first that need most of an instance, where a level may have more of its long prefills."""
        for at, level in enumerate(self.levels):
            sets = self.bounds.sets.get(level)
            if sets is None or self.bounds.reached(at, self.outcome.objective) or self.clock.left <= 0.0:
                continue
            board, plain = Board(self.model), plain_prices(self.model, self.grid)
            room = Room(board, self.scout, plain, self.clock)
            for i, j in matched(self.model, sets).items():
                if self.clock.left > 0.0:
                    room.make_on(i, j)
            self._fill(board, plain, cost)
            self._make_room(board, cost, plain)
            if self.offer(board.plan.copy(), anew=True):
                self._quicken()

    def offer(self, plan: Placement, *, anew: bool = False) -> bool:
        """Take a plan if it is better; one that is made anew and moves many only if it is much better."""
        outcome = repaired(self.model, plan)
        many = outcome.changed.sum() > FEW * (self.model.queue.planned_prefill >= 0).sum()
        if not better(outcome, self.outcome, STAY if anew and many else EPSILON):
            return False
        self.best, self.outcome = plan, outcome
        return True

    def _construct(self, board: Board, prices: Prices, cost: Floats) -> None:
        """Fill a board, and offer what comes of it."""
        anew = not (board.plan.prefill >= 0).any()
        self._fill(board, prices, cost)
        self.offer(board.plan.copy(), anew=anew)

    def _fill(self, board: Board, prices: Prices, cost: Floats) -> None:
        """Fill a board level by level."""
        set_paces(board, prices)
        for level in self.levels:
            requests = np.flatnonzero((self.model.queue.priority == level) & (board.plan.prefill < 0))
            turn = order_by_density(self.model, requests, cost[requests])
            fill(board, self.scout, turn.tolist(), prices, self.clock)

    def _priced(self, dual: Dual, bound: Bound) -> None:
        board = Board(self.model)
        prices = dual_prices(self.model, board, dual, bound)
        cost = cost_at(self.scout, prices)
        rows = dual.items
        mine = np.flatnonzero(~rows.running)
        least = dual.at(bound.prices).least[mine]
        cost[self.asked] = least
        self._construct(board, prices, cost)

    def _dual(self, at: int, above: dict[int, float | None], part: float = 1.0) -> Dual:
        """The dual of a level."""
        self.asked = np.flatnonzero(self.bounds.asked(at))
        return self.bounds.dual(at, above, part)
