"""Tabu search over the whole neighbourhood of a plan, through infeasible plans, for problems of few options.

Every step makes the best move that is not tabu among all shifts and, at times, all swaps (``tables.py``), whether it
gains or loses; what a stage has left is tabu for a while, unless the move leads to a feasible plan better than any so
far.
Overload has a price that falls while plans are feasible and rises while they are not, so that the search swings
through the border of what fits, where the best plans of tight problems lie (strategic oscillation). When nothing
better has been found for a while, some stages are thrown elsewhere, from the best plan since the start or from where
the search is; when that has not helped for long, it starts afresh from a random plan: its times to the best are
spread widely, so that many short searches find it sooner than a long one.

Sources: Taillard, Robust taboo search for the quadratic assignment problem, Parallel Computing 17 (1991); Gendreau,
Hertz, Laporte, A tabu search heuristic for the vehicle routing problem, Management Science 40 (1994), for the price.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.restrict import restrict
from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.result import Report, unheard
from iegopt.solvers.search.tables import MOST_PAIRED, MoveTables, untabled

__all__ = ["TabuSearch", "tabu_reason", "tabu_seconds"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_RUN = 5
"""Plans in a row on one side of the border after which the price of overload changes."""
_CHEAPER, _DEARER = 0.8, 1.25
_PRICE_RANGE = 1e3
"""How far the price may leave what it started with, either way."""
_TENURE = 3, 8
"""Steps for which a stage stays, at least, and what they stay below, where its graph has no edges or many: as many as
a quarter to a half of the stages took ten to a hundred times the steps to the best plans of quadratic assignment
(GQAP), and left generalised assignment 1 % above them."""
_SPARSE = 3.0
"""Edges per stage up to which a stage stays that long all the same: with few steps, chains, agents and layers with
tight memory ended up to 3 % further above the best plan after as many steps, on trees and on measured pairs alike."""
_STALL = 5
"""Steps per stage without a better plan of its own, until a search is thrown elsewhere."""
_FROM_BEST = 0.25
"""Chance that it starts from the best plan."""
_THROWN = 6
"""One in so many stages is thrown at most."""
_SWAPS_PER_OPTION = 4
"""Swaps looked at per option and step, in the mean: with more pairs of stages they are looked at in some steps only."""
_FRESH = 500
"""Steps per stage without a better plan since the start, until a search starts afresh."""
_MOST_UNPAIRED = 20_000
"""Options up to which a step is quick without pair costs."""

_LEAST_NEEDS, _EDGE_NEEDS, _PAIR_NEEDS, _CELL_NEEDS = 3e-4, 6.5e-5, 4e-8, 1e-9
"""Seconds that it takes at least to lay options out, more per edge, per pair of options of an edge, and per pair of any
options, as measured on one core of a server."""
_STAGE_NEEDS, _SITE_NEEDS = 2e-5, 2e-9
"""More per stage, and per stage and site."""


def tabu_reason(problem: Problem, mask: Bools) -> str | None:
    """Why the options of a mask are not searched by ``TabuSearch``, ``None`` where they are."""
    reason = untabled(problem)
    if reason is not None:
        return reason
    left, most = int(mask.sum()), MOST_PAIRED if problem.E else _MOST_UNPAIRED
    return f"{left:,} options, more than {most:,}" if left > most else None


def tabu_seconds(problem: Problem, mask: Bools) -> float:
    """Roughly what it takes to lay the options of a mask (O,) out for a search."""
    left, V = int(mask.sum()), problem.V
    count = np.bincount(problem.options.stage[mask], minlength=V)
    cells = int((count[problem.edges.source] * count[problem.edges.target]).sum()) if problem.E else 0
    edges = _EDGE_NEEDS * problem.E + _PAIR_NEEDS * cells + (_CELL_NEEDS * left * left if problem.E else 0.0)
    return lag() * (_LEAST_NEEDS + edges + V * (_STAGE_NEEDS + _SITE_NEEDS * problem.topology.S))


class TabuSearch:
    """A search of one problem that goes on with every call of ``run``.

    Parameters
    ----------
    mask (O,)
        Options that take part, at least one of every stage.
    best
        (objective, plan) to start from, or ``None`` for the options of least ``guide``.
    worth (D,)
        What the memory of every device is worth, in any unit: overload of devices weighs in proportion.
    guide (O,)
        Of every stage's options the least is the one to start from; costs, where it is not given.

    Attributes
    ----------
    best
        The best feasible (objective, plan) so far.
    steps
        Moves made.

    Raises
    ------
    ValueError
        ``tabu_reason`` has one.
    """

    def __init__(
        self,
        problem: Problem,
        mask: Bools,
        best: tuple[int, Ints] | None,
        seed: int,
        check: bool = False,
        report: Report = unheard,
        worth: Floats | None = None,
        guide: Ints | None = None,
    ) -> None:
        reason = tabu_reason(problem, mask)
        if reason is not None:
            raise ValueError(reason)
        self.best = best
        self.steps = 0
        self._report = report
        self._small, self._kept = restrict(problem, mask)
        self._rng = np.random.default_rng(seed)
        self._tables = MoveTables(self._small, check, worth)
        self._until = np.zeros(len(self._kept), dtype=np.int64)
        self._stalled, self._lowest = 0, np.inf
        self._home: tuple[int, Ints] | None = None
        self._home_from = 0
        self._run_of = 0
        V, ptr = self._small.V, self._small.options.ptr
        least = self._small.options.cost if guide is None else guide[self._kept]
        sparse = 0 < self._small.E <= _SPARSE * V
        self._tenures = (V // 4 + 3, V // 2 + 8) if sparse else _TENURE
        self._tables.start(np.array([ptr[v] + least[ptr[v] : ptr[v + 1]].argmin() for v in range(V)], dtype=np.int64))
        self._price = self._first_price = self._typical_price()
        if best is not None:
            self._tables.start(self._from_whole(best[1]))
        swaps = V * (V - 1) // 2 if self._tables.single else 0
        self._swap_every = -(-swaps // (_SWAPS_PER_OPTION * len(self._kept)))

    def _typical_price(self) -> float:
        """Ticks for an overload by a whole device: what a stage's options differ by over the share that it needs."""
        small, tables = self._small, self._tables
        first = small.options.ptr[:-1]
        spread = np.maximum.reduceat(tables.potential, first) - np.minimum.reduceat(tables.potential, first)
        device = small.topology.device_index[small.topology.device_ptr[small.options.site]]
        need = small.options.share * tables.scale[device]
        return float(max(1.0, spread.mean()) / max(1e-6, need.mean()))

    def offer(self, best: tuple[int, Ints] | None) -> None:
        """Take a feasible (objective, plan) found elsewhere where it is better."""
        if best is not None and (self.best is None or best[0] < self.best[0]):
            self.best = best

    def run(self, clock: Clock, target: int | None = None) -> None:
        """Search until the clock ends or ``best`` is at most ``target`` ticks."""
        if (np.diff(self._small.options.ptr) < 2).all():
            return
        while clock.left > 0 and (target is None or self.best is None or self.best[0] > target):
            self._step()

    def _step(self) -> None:
        tables = self._tables
        moves = self._best_move()
        self.steps += 1
        for stage, option in moves:
            self._until[tables.choice[stage]] = self.steps + self._tenure()
            tables.move(stage, option)
        feasible = tables.feasible
        self._stalled += 1
        if feasible:
            if tables.value < self._lowest:
                self._lowest, self._stalled = tables.value, 0
            if self._home is None or tables.value < self._home[0]:
                self._home, self._home_from = (tables.value, tables.choice.copy()), self.steps
            if self.best is None or tables.value < self.best[0]:
                self.best = tables.value, self._kept[tables.choice]
                self._report(self.best[1], None, None)
        self._swing(feasible)
        if self._stalled > _STALL * self._small.V:
            self._throw()

    def _best_move(self) -> list[tuple[int, int]]:
        """The best shift or swap that is not tabu; none where all are."""
        tables = self._tables
        held = self._until > self.steps
        aim = np.inf if self.best is None else self.best[0] - tables.value
        now = tables.overload
        delta, overload = tables.shifts()
        score = delta + self._price * overload
        blocked = held & ~self._aspires(delta, overload, now, aim)
        blocked[tables.choice] = True
        score[blocked] = np.inf
        option = int(score.argmin())
        least = float(score[option])
        moves = [(int(tables.stage[option]), option)] if least < np.inf else []
        if self._swap_every and self.steps % self._swap_every == 0:
            a, b, delta, overload = tables.swaps()
            score = delta + self._price * overload
            blocked = (held[a] | held[b]) & ~self._aspires(delta, overload, now, aim)
            score[blocked | (a < 0)] = np.inf
            number = int(score.argmin())
            if score[number] < least:
                v, w = tables.swapped(number)
                moves = [(v, int(a[number])), (w, int(b[number]))]
        return moves

    def _aspires(self, delta: Ints, overload: Floats, now: float, aim: float) -> Bools:
        """Moves to a feasible plan that is better than any so far."""
        return np.asarray((delta < aim) & (overload <= 1e-12 - now))

    def _tenure(self) -> int:
        return int(self._rng.integers(*self._tenures))

    def _swing(self, feasible: bool) -> None:
        """Overload is cheaper after some feasible plans in a row, dearer after some infeasible ones."""
        if (self._run_of > 0) != feasible:
            self._run_of = 0
        self._run_of += 1 if feasible else -1
        if abs(self._run_of) >= _RUN:
            changed = self._price * (_CHEAPER if feasible else _DEARER)
            first = self._first_price
            self._price = min(max(changed, first / _PRICE_RANGE), first * _PRICE_RANGE)
            self._run_of = 0

    def _throw(self) -> None:
        """Throw some stages to random options, from the best plan since the start or from the one at hand; or all."""
        rng, ptr, V = self._rng, self._small.options.ptr, self._small.V
        choice = self._tables.choice.copy()
        count = int(rng.integers(2, max(3, V // _THROWN) + 1))
        if self.steps - self._home_from > _FRESH * V:
            count, self._price = V, self._first_price
            self._home, self._home_from = None, self.steps
        elif self._home is not None and rng.random() < _FROM_BEST:
            choice = self._home[1].copy()
        for v in rng.choice(V, min(V, count), replace=False).tolist():
            choice[v] = rng.integers(ptr[v], ptr[v + 1])
        self._tables.start(choice)
        self._until[:] = 0
        self._stalled, self._lowest = 0, np.inf

    def _from_whole(self, plan: Ints) -> Ints:
        """A plan of the whole problem in options of the small one; a stage's first where its own does not take part."""
        at = np.searchsorted(self._kept, plan)
        inside = self._kept[np.minimum(at, len(self._kept) - 1)] == plan
        return np.asarray(np.where(inside, at, self._small.options.ptr[:-1]))
