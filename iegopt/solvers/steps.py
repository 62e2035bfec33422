"""Steps of a run of ``auto`` around one best plan and one bound: construction, prices, elimination, local search."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock, pressure
from iegopt.solvers.evaluate import feasible, objective
from iegopt.solvers.exact.bounding import PricedSearch
from iegopt.solvers.exact.candidates import table_cells
from iegopt.solvers.exact.elimination import eliminate
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.neighbourhood import Neighbourhoods
from iegopt.solvers.exact.pair_search import dense_reason, search_pairs
from iegopt.solvers.exact.prices import PRICES_PROOF, unpriceable
from iegopt.solvers.exact.relaxation import Relaxation
from iegopt.solvers.grain import next_value
from iegopt.solvers.result import OPTIMALITY_GAP, Params, Result, Status, relative_gap
from iegopt.solvers.search.greedy import Best, first_plans
from iegopt.solvers.search.local import improve, search_feasible
from iegopt.solvers.search.outcome import outcome, relaxation_proof
from iegopt.solvers.search.tabu import TabuSearch, tabu_reason
from iegopt.solvers.seconds import relaxation_seconds

__all__ = ["Steps"]

_EDGE_NEEDS, _OPTION_NEEDS, _PAIR_NEEDS = 6e-4, 3e-6, 2.5e-7
"""Seconds that prices take at least for an edge, more per option of a stage, and more per pair of options that is
tabled, as measured on a server."""
_TABU_NEEDS = 0.06
"""Seconds that must be left to lay the options out for tabu search."""
_TURN, _TURN_GROWTH = 0.3, 2.0
"""Seconds of a turn at first, and by what that of the most profitable grows."""
_SMALL_GAP, _FIRST_TURN = 0.03, 1.5
"""Gap after the root below which branch and bound may well close it, and the seconds that it gets to try."""
_BEFORE_PAIRS, _TURN_SHARE = 1e-3, 0.02
"""Seconds per option left, and part of the time left, of tabu search before branch and bound over pairs."""
_HOPELESS = 0.1
"""Gap after the root from which branch and bound is not expected to close it."""
_NEAR, _NEAR_GROWTH, _NEAR_PHASES = 20, 4, 2
"""Options of a stage, in the mean, that are looked at first; by what they grow until nearly all are; their phases."""
_FAR = 0.01
"""Gap above which the plan is improved before more options are looked at."""
_STALLED, _MOVED, _STALLED_OPTIONS = 0.2, 0.5, 400
"""Part of the whole time after which prices have stalled, where the gap is still more than this part of what it was;
and the options up to which that asks for an engine."""
_PLANLESS_SHARE = 0.3
"""Share of the time left after which an engine is asked where there is still no plan."""


class Steps:
    """Steps 3 to 6 of a run: the best plan, the best bound with its proof, and the options left."""

    def __init__(
        self,
        relaxed: Relaxation,
        first: Best | None,
        params: Params,
        clock: Clock,
        share: Clock,
        note: str,
    ) -> None:
        self.relaxed, self.problem = relaxed, relaxed.problem
        self.best = first
        self.params, self.clock, self.share = params, clock, share
        self.rng = random.Random(params.seed)
        self.bound, self.proof = relaxed.bound, relaxation_proof(relaxed)
        self.steps = [note]
        self.search: PricedSearch | None = None
        self.no_prices = unpriceable(self.problem, np.zeros(len(self.problem.options.site), dtype=np.bool_))
        self.prices = params.multipliers
        self.near = Neighbourhoods(self.problem, self.rng, params.report)
        self.looked: list[int] = []
        self.kicks = 0
        self.stalled = False
        """Whether the turns ended since the bound of a small problem stood still; they end so once at most."""
        self.tabu: TabuSearch | None = None
        params.report(None if first is None else first[1], self.bound, self.proof)

    @property
    def closed(self) -> bool:
        """Whether the best plan is proven optimal, or that there is none."""
        if self.search is not None and self.search.done:
            return True
        gap = relative_gap(None if self.best is None else self.best[0], self.bound)
        return gap is not None and gap <= OPTIMALITY_GAP

    @property
    def survivors(self) -> npt.NDArray[np.bool_]:
        """(O,) the options that a better plan can use."""
        mask = self.problem.allowed if self.best is None else self.relaxed.prune(self.best[0])
        return mask if self.search is None else mask & self.search.survivors()

    def take(self, plan: Best) -> None:
        """Keep a plan where it is better."""
        if self.best is None or plan[0] < self.best[0]:
            self.best = plan
            self.params.report(plan[1], None, None)

    def construct(self) -> None:
        """Step 3."""
        for plan in first_plans(self.relaxed, self.share, self.rng, self.params.check):
            self.take(plan)
            if self.closed or self._time_to_look_near():
                break
        self.steps.append("construction meets the bound" if self.closed else "construction")

    def _time_for_edges(self) -> bool:
        """Whether the least that prices take, after the min-marginals, is left."""
        return self.clock.left > 1.5 * _EDGE_NEEDS * self.problem.E + relaxation_seconds(self.problem)

    def search_pairs(self) -> None:
        """Between steps 3 and 4, branch and bound over the pairs of a dense graph, as long as it gets on."""
        if self.closed or self.best is None or dense_reason(self.problem, self.survivors) is not None:
            return
        self._search(self.clock.slice(min(_BEFORE_PAIRS * int(self.survivors.sum()), _TURN_SHARE * self.clock.left)))
        pairs = search_pairs(self.problem, self.survivors, self.best, self.clock, self.params.report)
        if pairs.value is not None and pairs.plan is not None:
            self.take((pairs.value, pairs.plan))
        if pairs.done:
            self.bound, self.proof = self.best[0], "branch and bound over pairs"
        self.steps.append(f"{pairs.nodes} partial plans by pairs")

    def look_near(self) -> None:
        """Step 4 over the options with the least min-marginals alone: a plan, a bound, and often the proof.

        A plan that uses another option costs at least the least min-marginal of these.
        """
        near = _NEAR * self.problem.V
        looked = self.looked
        while not self.closed and self.no_prices is None and self._time_for_edges():
            mask = self.survivors
            if int(mask.sum()) <= near:
                break
            marginals = np.where(mask, self.relaxed.min_marginals, UNREACHABLE)
            beyond = int(np.partition(marginals, near)[near])
            mask &= marginals < beyond
            if self.best is not None:
                mask[self.best[1]] = True
            self.no_prices = unpriceable(self.problem, mask)
            if self.no_prices is not None or not self._time_for_prices(mask) or not self._covered(mask):
                break
            search = PricedSearch(self.problem, mask, self.best, self.clock, self.prices)
            search.bound_root(_NEAR_PHASES)
            self.prices = search.multipliers
            looked.append(int(mask.sum()))
            if search.value is not None and search.plan is not None:
                self.take((search.value, search.plan))
            self._raise_bound(beyond if search.bound is None else min(beyond, search.bound))
            if self.best is not None and self.best[0] - (self.bound or 0) > _FAR * abs(self.best[0]):
                search.improve_in_windows()
                if search.value is not None and search.plan is not None:
                    self.take((search.value, search.plan))
            self.params.report(None, self.bound, self.proof)
            near *= _NEAR_GROWTH
        if looked:
            self.steps.append(f"prices over the nearest {', '.join(map(str, looked))} options")

    def _time_to_look_near(self) -> bool:
        """Whether prices over the nearest options, which need a plan and not a good one, can follow."""
        needs = (1 + self.problem.E) * (_EDGE_NEEDS + _OPTION_NEEDS * _NEAR + _PAIR_NEEDS * _NEAR**2)
        return self.no_prices is None and self.clock.left > 1.5 * pressure() * needs

    def _covered(self, mask: npt.NDArray[np.bool_]) -> bool:
        """Whether every stage has an option in a mask (O,)."""
        return bool((np.bincount(self.problem.options.stage[mask], minlength=self.problem.V) > 0).all())

    def price(self) -> None:
        """Step 4, at the root."""
        if self.closed:
            return
        if not self._time_for_edges():
            return
        mask = self.survivors
        self.no_prices = self.no_prices or unpriceable(self.problem, mask)
        if self.no_prices is not None:
            self.steps.append(f"no prices: {self.no_prices}")
            return
        if not self._time_for_prices(mask):
            return
        needs = self._pricing_needs(mask)
        until = self.clock.slice(self.clock.left - needs)
        search = PricedSearch(self.problem, mask, self.best, until, self.prices, self.params.report)
        search.bound_root(first=1 if self.looked else 0)
        search.clock = self.clock
        self.search = search
        self.steps.append(f"prices leave {int(self.survivors.sum())} of {len(mask)} options")
        self._learn()

    def _pricing_needs(self, mask: npt.NDArray[np.bool_]) -> float:
        """Seconds for a first priced bound and plan."""
        priced = (1 + self.problem.E) * (_EDGE_NEEDS + _OPTION_NEEDS * int(mask.sum()) / max(1, self.problem.V))
        return pressure() * (priced + _PAIR_NEEDS * table_cells(self.problem, mask))

    def _time_for_prices(self, mask: npt.NDArray[np.bool_]) -> bool:
        return self.no_prices is None and self.clock.left > 1.5 * self._pricing_needs(mask)

    def _learn(self) -> None:
        """Take over what the prices have found and proven."""
        search = self.search
        if search is None:
            return
        if search.value is not None and search.plan is not None:
            self.take((search.value, search.plan))
        if search.bound is not None:
            self._raise_bound(search.bound)

    def _raise_bound(self, bound: int) -> None:
        bound = next_value(self.problem, bound)
        if self.bound is None or bound > self.bound:
            self.bound, self.proof = bound, PRICES_PROOF

    def find_feasible(self) -> None:
        """Repair walks, where there is no plan yet."""
        if self.best is None and not self.closed and self.share.left > 0:
            found = search_feasible(self.relaxed, self.share, self.rng, self.params.check)
            if found is not None:
                self.take(found)
            self.steps.append("repair" if found is not None else "repair found no plan")

    def eliminate(self) -> None:
        """Step 5: options above the plan at hand are in no better one, so the lesser of both is a bound."""
        priced = self.search is not None and self.search.priced
        if self.closed or priced or not self.relaxed.forest.dropped:
            return
        if self.clock.left < relaxation_seconds(self.problem):  # of the min-marginals, without which too many are left
            return
        mask = self.survivors
        found = eliminate(self.problem, mask, self.clock)
        if found is None:
            return
        if feasible(self.problem, found.choice):
            self.take((objective(self.problem, found.choice), found.choice))
        bound = found.value if self.best is None else min(found.value, self.best[0])
        if self.bound is None or bound > self.bound:
            self.bound, self.proof = bound, f"elimination (width {found.width})"
            self.params.report(None, self.bound, self.proof)
        self.steps.append(f"elimination over {int(mask.sum())} of {len(mask)} options")

    def take_turns(self, search_most: float) -> None:
        """Step 6, to the end unless no plan is found or prices stall: prices know all that couples the stages.

        Branch and bound, neighbourhoods and local search take turns; what gains most in a round gets a longer turn
        next, and where the gap is hopeless, tabu search as much as branch and bound.

        Parameters
        ----------
        search_most
            Seconds of neighbourhoods, and of kicks, in a turn at most.
        """
        if self.search is None:
            self._search(self.clock.slice(min(self.clock.left, search_most)))
            return
        turns: list[Callable[[Clock], None]] = [self._explore, self._neighbourhoods, self._search]
        seconds, rate = [_TURN] * len(turns), [0.0] * len(turns)
        gap = relative_gap(None if self.best is None else self.best[0], self.bound)
        hopeless = gap is not None and gap > _HOPELESS
        if gap is not None and gap < _SMALL_GAP:
            seconds[0] = _FIRST_TURN
        else:
            self._search(self.clock.slice(_TURN))
        without_plan = self.clock.slice(_PLANLESS_SHARE * self.clock.left)
        watched = not self.stalled and int(self.problem.allowed.sum()) <= _STALLED_OPTIONS
        open_, since = self._gap(), self.clock.seconds
        while not self.closed and self.clock.left > 0:
            if self._gap() < _MOVED * open_:
                open_, since = self._gap(), self.clock.seconds
            if watched and self.best is not None and self.clock.seconds - since > _STALLED * self.clock.limit:
                self.stalled = True
                break
            progress = self._progress()
            for i, turn in enumerate(turns):
                begun = self.clock.seconds
                long = i == 0 or (i == 2 and self.tabu is not None)
                most = _STALLED / 2 * self.clock.limit if watched else self.clock.limit
                turn(self.clock.slice(min(seconds[i], most if long else min(most, search_most))))
                if self.closed or self.clock.left <= 0:
                    break
                rate[i] = (self._progress() - progress) / max(1e-6, self.clock.seconds - begun)
                progress = self._progress()
            best = max(range(len(turns)), key=rate.__getitem__)
            if self.best is None and (rate[best] <= 0 or without_plan.left <= 0):
                break
            for i in (0, 2) if hopeless and self.tabu is not None else (best,):
                seconds[i] *= _TURN_GROWTH
        self.search.offer_best(self.best)
        self._learn()
        self.steps.append(f"{self.search.nodes} nodes under prices, {self.near.solved} neighbourhoods")

    def _gap(self) -> float:
        """(objective − bound) / |objective|, infinite without either."""
        gap = relative_gap(None if self.best is None else self.best[0], self.bound)
        return math.inf if gap is None else gap

    def take_over(self, found: Result) -> None:
        """A plan and a bound from elsewhere."""
        if found.choice is not None and found.objective is not None:
            self.take((found.objective, found.choice))
        if found.bound is not None and (self.bound is None or found.bound > self.bound):
            self.bound, self.proof = found.bound, found.proof or ""
        self.steps = [found.note]

    def _progress(self) -> float:
        """What has been gained so far on either side of the gap, in ticks."""
        return float((self.bound or 0) - (0 if self.best is None else self.best[0]))

    def _explore(self, clock: Clock) -> None:
        assert self.search is not None
        self.search.offer_best(self.best)
        self.search.explore(clock)
        self._learn()

    def _neighbourhoods(self, clock: Clock) -> None:
        if self.best is not None:
            self.best = self.near.improve(self.best, self.survivors, clock)

    def _search(self, clock: Clock) -> None:
        """Tabu search where the options left are few enough, kicks elsewhere."""
        if self.tabu is None and self.clock.left > pressure() * _TABU_NEEDS:
            mask = self.survivors
            if tabu_reason(self.problem, mask) is None and self._covered(mask):
                params = self.params
                self.tabu = TabuSearch(self.problem, mask, self.best, params.seed, params.check, params.report)
        if self.tabu is None:
            self._kick(clock)
            return
        self.tabu.offer(self.best)
        self.tabu.run(clock, self.bound)
        if self.tabu.best is not None:
            self.take(self.tabu.best)

    def _kick(self, clock: Clock) -> None:
        if self.best is not None and clock.left > 0:
            params = self.params
            self.best, kicks = improve(self.relaxed, self.best, clock, self.rng, params.check, params.report)
            self.kicks += kicks

    def result(self) -> Result:
        searched = (
            f"{self.kicks} kicks of local search" if self.tabu is None else f"{self.tabu.steps} steps of tabu search"
        )
        note = "; ".join([*self.steps, searched])
        if self.best is None and self.search is not None and self.search.done:
            return Result(Status.INFEASIBLE, None, None, None, PRICES_PROOF, "auto", self.clock.seconds, note)
        known = None if self.bound is None else (self.bound, self.proof)
        done = outcome(self.relaxed, self.best, "auto", self.clock, note, known)
        found = self.prices if self.search is None else self.search.multipliers
        return dataclasses.replace(done, multipliers=None if found is self.params.multipliers else found)
