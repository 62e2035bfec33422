"""Step 4 of a run of ``auto``: prices over the most promising options, then over all that are left."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.exact.bounding import PricedSearch
from iegopt.solvers.exact.couplings import coupling_count
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.prices import COUPLING_NEEDS, OPTION_NEEDS, PAIR_NEEDS, priced_seconds, unpriceable
from iegopt.solvers.grain import grain_seconds
from iegopt.solvers.result import Report, relative_gap, unheard
from iegopt.solvers.run import Run
from iegopt.solvers.search.compiled_rebuild import compilable
from iegopt.solvers.search.rebuild import rebuild, unbuildable
from iegopt.solvers.seconds import relaxation_seconds

__all__ = ["RootPrices"]

_NEAR, _NEAR_GROWTH, _NEAR_PHASES = 20, 4, 2
"""Options of a stage, in the mean, that are looked at first; by what they grow until nearly all are; their phases."""
_NEAREST = 10
"""Options of every stage that are looked at first at least."""
_NEARLY_ALL = 2
"""Multiple of the options to look at next up to which all that are left come at once."""
_FAR, _FARTHER = 0.01, 0.03
"""Gap over the options looked at above which a longer look follows, and the plan is improved before more options are
looked at; and above which it is built anew even without compiled steps, and not searched in windows."""
_FEW_STAGES = 40
"""Stages up to which a wider beam comes before building anew without compiled steps, which takes ten times as long."""
_REBUILT_SHARE, _REBUILT_MOST, _GAINED = 0.2, 0.6, 0.01
"""Share of the time left, and seconds at most, that rebuilding it takes, and the share of the gap that rounds of it
must gain for others to follow."""
_WIDE, _ANY, _TURNS = 0.05, 1e-12, 2
"""Gap from which on any gain will do and so many turns in vain end it: a proof is far then, and a good plan worth more
than more options."""


_AFTER_LAYOUT, _OF_LAYOUT = 0.5, 0.6
"""Part of the time of a first priced bound that follows the layout, and part of what that took here and now."""


class RootPrices:
    """Whether prices hold, and the two steps that they take."""

    def __init__(self, run: Run) -> None:
        self._run, self._problem, self._clock = run, run.problem, run.clock
        self._reason = unpriceable(self._problem, np.zeros(len(self._problem.options.site), dtype=np.bool_))
        self._needs = 0.0
        self._looked: list[int] = []
        self._rebuilt = 0

    def look_near(self) -> None:
        """Prices over the options with the least min-marginals alone: a plan, a bound, and often the proof.

        A plan that uses another option costs at least the least min-marginal of these.
        """
        run, problem = self._run, self._problem
        near = _NEAR * problem.V
        while not run.closed and self._reason is None and self._time_for_edges():
            mask = run.survivors
            if int(mask.sum()) <= (near if not self._looked else _NEARLY_ALL * near):
                break
            marginals = np.where(mask, run.relaxed.min_marginals, UNREACHABLE)
            beyond = int(np.partition(marginals, near)[near])
            mask &= (marginals < beyond) | self._nearest(marginals)
            if run.best is not None:
                mask[run.best[1]] = True
            self._reason = unpriceable(problem, mask)
            if self._reason is not None or not self._time_for(mask) or not run.covered(mask):
                break
            search = self._laid_out(mask, self._clock)
            if search is None:
                break
            search.bound_root(_NEAR_PHASES, sure=bool(self._looked), enough=_FAR)
            self._learn_of_near(search, beyond)
            gap = relative_gap(search.value, search.bound)
            if gap is not None and gap > _FAR and run.gap > _FARTHER and self._slow_to_rebuild():
                search.bound_root(_NEAR_PHASES + 1, _NEAR_PHASES, sure=True, enough=_FAR)
                self._learn_of_near(search, beyond)
                gap = relative_gap(search.value, search.bound)
            run.prices = search.multipliers
            self._looked.append(int(mask.sum()))
            if run.gap > _FAR and gap is not None and gap > _FAR:
                self._improve(search, gap)
            run.params.report(None, run.bound, run.proof)
            near *= _NEAR_GROWTH
        if self._looked:
            run.steps.append(f"prices over the nearest {', '.join(map(str, self._looked))} options")
        if self._rebuilt:
            run.steps.append(f"{self._rebuilt} times rebuilt")

    def _slow_to_rebuild(self) -> bool:
        return self._problem.V <= _FEW_STAGES and not compilable(self._run.relaxed)

    def _learn_of_near(self, search: PricedSearch, beyond: int) -> None:
        run = self._run
        run.take_plan_of(search)
        run.raise_bound(beyond if search.bound is None else min(beyond, search.bound))

    def _improve(self, search: PricedSearch, gap: float) -> None:
        """A better plan, which leaves fewer options to look at: windows are strong on forests, rebuilding elsewhere.

        ``gap`` is that over the options of ``search``, which windows do not leave.
        """
        run = self._run
        enough = _FAR if compilable(run.relaxed) else _FARTHER
        rebuilt = run.gap > enough and unbuildable(self._problem) is None
        if not run.relaxed.forest.dropped or (gap > _FARTHER and not rebuilt):
            search.improve_in_windows()
            run.take_plan_of(search)
        if rebuilt and run.gap > enough:
            self._rebuild()

    def _rebuild(self) -> None:
        run, left = self._run, self._clock.left
        assert run.best is not None
        own = self._clock.slice(min(_REBUILT_SHARE * left, _REBUILT_MOST))
        least, turns = (_ANY, _TURNS) if run.gap > _WIDE else (_GAINED * run.gap, 1)
        best, steps = rebuild(run.relaxed, run.best, own, run.rng, run.params.check, run.params.report, least, turns)
        run.take(best)
        self._rebuilt += steps

    def _nearest(self, marginals: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """(O,) a few options of every stage, however far they are: where memory binds, plans need them."""
        mask = np.zeros(len(marginals), dtype=np.bool_)
        for a, b in pairwise(self._run.relaxed.messages.ptr):
            few = min(_NEAREST, b - a) - 1
            mask[a:b] = marginals[a:b] <= np.partition(marginals[a:b], few)[few]
        return mask

    def bound_all(self) -> None:
        """Prices over all options that are left."""
        run = self._run
        if run.closed or not self._time_for_edges():
            return
        mask = run.survivors
        self._reason = self._reason or unpriceable(self._problem, mask)
        if self._reason is not None:
            run.steps.append(f"no prices: {self._reason}")
            return
        if not self._time_for(mask):
            return
        until = self._clock.slice(self._clock.left - self._needs)
        search = self._laid_out(mask, until, run.params.report)
        if search is None:
            return
        search.bound_root(first=1 if self._looked else 0, sure=bool(self._looked))
        search.clock = self._clock
        run.search = search
        run.steps.append(f"prices leave {int(run.survivors.sum())} of {len(mask)} options")
        run.learn(search)

    def near_in_time(self) -> bool:
        """Whether prices over the nearest options, which need a plan and not a good one, can follow."""
        each = COUPLING_NEEDS + OPTION_NEEDS * _NEAR + PAIR_NEEDS * _NEAR**2
        needs = (1 + coupling_count(self._problem)) * each + grain_seconds(self._problem)
        return self._reason is None and self._clock.left > 1.5 * lag() * needs

    def _time_for_edges(self) -> bool:
        """Whether the least that prices take, after the min-marginals, is left."""
        least = COUPLING_NEEDS * coupling_count(self._problem) + grain_seconds(self._problem)
        return self._clock.left > 1.5 * lag() * least + relaxation_seconds(self._problem)

    def _time_for(self, mask: npt.NDArray[np.bool_]) -> bool:
        self._needs = priced_seconds(self._problem, mask)
        return self._reason is None and self._clock.left > 1.5 * self._needs

    def _laid_out(self, mask: npt.NDArray[np.bool_], clock: Clock, report: Report = unheard) -> PricedSearch | None:
        """A search over a mask (O,); ``None`` where its layout took so much that too little is left for prices."""
        begun = self._clock.left
        search = PricedSearch(self._problem, mask, self._run.best, clock, self._run.prices, report)
        left = self._clock.left
        return search if left > max(_AFTER_LAYOUT * self._needs, _OF_LAYOUT * (begun - left)) else None
