"""Step 6 of a run of ``auto``: branch and bound, neighbourhoods and local search take turns until the end."""

from __future__ import annotations

import math
from collections.abc import Callable

from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.exact.neighbourhood import Neighbourhoods
from iegopt.solvers.exact.pair_search import PairSearch, dense_reason, few_edges, get_on, pairs_seconds
from iegopt.solvers.run import Run
from iegopt.solvers.search.local import improve
from iegopt.solvers.search.tabu import TabuSearch, tabu_reason, tabu_seconds

__all__ = ["Turns"]

_TABU_NEEDS = 0.06
"""Seconds that must be left to lay the options out for tabu search."""
_TURN, _TURN_GROWTH = 0.3, 2.0
"""Seconds of a turn at first, and by what that of the most profitable grows."""
_SMALL_GAP, _FIRST_TURN = 0.03, 1.5
"""Gap after the root below which branch and bound may well close it, and the seconds that it gets to try."""
_BEFORE_PAIRS, _TURN_SHARE = 1e-3, 0.02
"""Seconds per option left, and part of the time left, of tabu search before most of branch and bound over pairs."""
_PAIR_TURN, _PAIR_SHARE = 0.005, 0.1
"""Seconds of pairs, then of tabu search, at first, and the part of the time left that they are at most."""
_HOPELESS = 0.1
"""Gap after the root from which branch and bound is not expected to close it."""
_STALLED, _OPTION_STALLED, _MOVED, _STALLED_OPTIONS = 0.2, 8e-4, 0.5, 1000
"""Part of the whole time at most, and seconds per option, after which prices have stalled, where the gap is still more
than the third of what it was; and the options up to which that asks for an engine, which proves most such problems in
not much longer. Where edges are many it finds no more, in half a gigabyte."""
_PLANLESS_SHARE = 0.3
"""Share of the time left after which an engine is asked where there is still no plan."""


class Turns:
    """The searches that take turns, which keep what they learn from one turn to the next.

    Attributes
    ----------
    stalled
        Whether the turns ended since the bound of a small problem stood still; they end so once at most.
    """

    def __init__(self, run: Run) -> None:
        self._run = run
        self._near = Neighbourhoods(run.problem, run.rng, run.params.report)
        self._tabu: TabuSearch | None = None
        self._moved = 0
        self.stalled = False

    @property
    def note(self) -> str:
        """What local search did."""
        tabu = self._tabu
        return f"{self._moved} steps of local search" if tabu is None else f"{tabu.steps} steps of tabu search"

    def search_pairs(self) -> None:
        """Between steps 3 and 4, branch and bound over the pairs of a dense graph, as long as it gets on."""
        run, clock = self._run, self._run.clock
        if run.closed or run.best is None or dense_reason(run.problem, run.survivors) is not None:
            return
        if clock.left < pairs_seconds(run.problem, run.survivors):
            return
        pairs = PairSearch(run.problem, run.survivors, run.best, run.params.report)
        self._improve_between(pairs, min(_BEFORE_PAIRS * int(run.survivors.sum()), _TURN_SHARE * clock.left))
        get_on(pairs, clock)
        self._learn_from(pairs)
        if pairs.done and run.best is not None:
            run.bound, run.proof = run.best[0], "branch and bound over pairs"
        run.steps.append(f"{pairs.nodes} partial plans by pairs")

    def _improve_between(self, pairs: PairSearch, most: float) -> None:
        """Tabu search for so many seconds in growing turns with pairs: many searches by these end before it pays."""
        clock, spent = self._run.clock, 0.0
        turn = min(_PAIR_TURN, _PAIR_SHARE * clock.left)
        while spent < most and clock.left > 0:
            pairs.run(clock.slice(turn))
            self._learn_from(pairs)
            if pairs.done:
                return
            self._search(clock.slice(min(turn, most - spent)))
            if self._run.best is not None:
                pairs.take(self._run.best)
            spent, turn = spent + turn, _TURN_GROWTH * turn

    def _learn_from(self, pairs: PairSearch) -> None:
        if pairs.value is not None and pairs.plan is not None:
            self._run.take((pairs.value, pairs.plan))

    def take_turns(self, search_most: float) -> None:
        """To the end unless no plan is found or prices stall: prices know all that couples the stages.

        What gains most in a round gets a longer turn next, and where the gap is hopeless, tabu search as much as
        branch and bound.

        Parameters
        ----------
        search_most
            Seconds of neighbourhoods, and of rebuilding, in a turn at most.
        """
        run, clock = self._run, self._run.clock
        if run.search is None:
            self._search(clock.slice(min(clock.left, search_most)))
            return
        turns: list[Callable[[Clock], None]] = [self._explore, self._neighbourhoods, self._search]
        seconds, rate = [_TURN] * len(turns), [0.0] * len(turns)
        hopeless = _HOPELESS < run.gap < math.inf
        options = int(run.problem.allowed.sum())
        watched = options <= _STALLED_OPTIONS and not self.stalled and few_edges(run.problem)
        patience = min(_STALLED * clock.limit, _OPTION_STALLED * options) if watched else math.inf
        if run.gap < _SMALL_GAP:
            seconds[0] = _FIRST_TURN
        else:
            self._search(clock.slice(min(_TURN, patience)))
        without_plan = clock.slice(_PLANLESS_SHARE * clock.left)
        open_, since = run.gap, clock.seconds
        while not run.closed and clock.left > 0:
            if run.gap < _MOVED * open_:
                open_, since = run.gap, clock.seconds
            if watched and run.best is not None and clock.seconds - since >= patience:
                self.stalled = True
                break
            progress = run.progress
            for i, turn in enumerate(turns):
                begun = clock.seconds
                long = i == 0 or (i == 2 and self._tabu is not None)
                most = patience / 2
                turn(clock.slice(min(seconds[i], most if long else min(most, search_most))))
                if run.closed or clock.left <= 0:
                    break
                rate[i] = (run.progress - progress) / max(1e-6, clock.seconds - begun)
                progress = run.progress
            best = max(range(len(turns)), key=rate.__getitem__)
            if run.best is None and (rate[best] <= 0 or without_plan.left <= 0):
                break
            for i in (0, 2) if hopeless and self._tabu is not None else (best,):
                seconds[i] *= _TURN_GROWTH
        run.search.offer_best(run.best)
        run.learn(run.search)
        run.steps.append(f"{run.search.nodes} nodes under prices, {self._near.solved} neighbourhoods")

    def _explore(self, clock: Clock) -> None:
        search = self._run.search
        assert search is not None
        search.offer_best(self._run.best)
        search.explore(clock)
        self._run.learn(search)

    def _neighbourhoods(self, clock: Clock) -> None:
        run = self._run
        if run.best is not None:
            run.best = self._near.improve(run.best, run.survivors, clock)

    def _search(self, clock: Clock) -> None:
        """Tabu search where the options left are few enough, plans rebuilt elsewhere."""
        run = self._run
        if self._tabu is None and run.clock.left > lag() * _TABU_NEEDS:
            mask = run.survivors
            reason = tabu_reason(run.problem, mask)
            if reason is None and run.clock.left > tabu_seconds(run.problem, mask) and run.covered(mask):
                params = run.params
                self._tabu = TabuSearch(run.problem, mask, run.best, params.seed, params.check, params.report)
        if self._tabu is None:
            self._rebuild(clock)
            return
        self._tabu.offer(run.best)
        self._tabu.run(clock, run.bound)
        if self._tabu.best is not None:
            run.take(self._tabu.best)

    def _rebuild(self, clock: Clock) -> None:
        run = self._run
        if run.best is not None and clock.left > 0:
            params = run.params
            run.best, steps = improve(run.relaxed, run.best, clock, run.rng, params.check, params.report)
            self._moved += steps
