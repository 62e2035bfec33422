"""Solver ``auto``: every step that pays, under one clock, and the best of them.

1. Best fit over a sample of promising sites, where the limit is short: a plan in about a millisecond,
   whatever the size. What follows is begun only where its time is left.
2. The relaxation: where no shared limit binds on a forest, its choice is optimal and all is done, in the order of a
   millisecond. Where it is not, interchangeable devices are merged into counted classes (``problem/classes.py``) for
   all that follows.
   Stages that share memory and no costs leave here, for prices, chains, columns and HiGHS (``separable.py``): in a
   short time, too, where options are many and no plan is known.
3. Constructions and repair; where they find nothing, counting may prove that memory does not suffice
   (``counting.py``). On dense graphs of few options, then, branch and bound over pairs of stages, as long as it
   gets on (``exact/pair_search.py``), in turns with tabu search at first.
4. Memory and limits in time as prices: a better bound, plans by exchanges of two stages and by beam search, and fewer
   options (``exact/bounding.py``); where the gap is large after a first look, parts of the plan are built anew before
   the next (``search/rebuild.py``). Where no plan is known by then, repair walks from random starts.
5. On a graph with cycles where no price is due, elimination over the options that are left: where no shared limit
   binds, its choice is optimal.
6. Branch and bound on prices, neighbourhoods solved by it, and local search take turns until the end: tabu search over
   the whole neighbourhood of a plan where the options left are few, parts of it built anew elsewhere. Where the
   gap stands still for tenths of a second on up to 1,000 options with few edges, CP-SAT gets half of the time left.
7. Where prices do not hold, or find no plan, what survives of the options is enumerated where it is small, else goes
   to CP-SAT in a process of its own, with the plan as hint.

A plan dropped by pruning is worse than the one at hand, so a bound of the smaller problem, or its having no
plan at all, holds for the whole.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from iegopt.errors import BackendError, InternalError
from iegopt.problem.arrays import Problem
from iegopt.problem.classes import fold
from iegopt.problem.restrict import restrict
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.counting import COUNTING_PROOF, overfull
from iegopt.solvers.cpsat import CpSat
from iegopt.solvers.exact.relaxation import Relaxation, relaxation
from iegopt.solvers.exact.tree import relaxed_result
from iegopt.solvers.incumbent import of_restricted
from iegopt.solvers.killable import run_killable
from iegopt.solvers.result import OPTIMALITY_GAP, Params, Result, Status, relative_gap
from iegopt.solvers.root_prices import RootPrices
from iegopt.solvers.run import Run
from iegopt.solvers.search.beginning import Best, before_relaxation, quick_start
from iegopt.solvers.search.chains import chains_reason
from iegopt.solvers.search.greedy import plan_without_time
from iegopt.solvers.search.outcome import outcome
from iegopt.solvers.seconds import counting_seconds, fold_seconds, relaxation_seconds
from iegopt.solvers.separable import inseparable, solve_separable
from iegopt.solvers.steps import construct, eliminate, find_feasible
from iegopt.solvers.timed.solve import solve_timed
from iegopt.solvers.turns import Turns

__all__ = ["AutoSolver"]


_CPSAT = "iegopt.solvers.cpsat.solver:run"

DEFAULT_LIMIT = 60.0
"""Seconds, where no limit is given."""
_FEW_OPTIONS = 1000
"""Up to which a search by prices finds plans, and proofs, of what shares memory alone in a short time."""
_WORTH_A_TRY = 0.3
"""Part of the relaxation's time from which it is tried where there is no plan yet."""
_AFTER = 2e-4
"""Seconds that follow the relaxation where it is not all."""
_ENUMERATION_NEEDS, _ENGINE_NEEDS = 0.02, 0.8
"""Seconds that must be left for trying all combinations, and for an engine, to be worth the start."""
_COMBINATION_NEEDS = 2.5e-6
"""Seconds that a combination takes per stage, as measured on one core of a server."""
_ENGINE_GRACE = 0.1
"""Share of the time left that an engine may be late before it is killed."""
_COUNTING_GRACE = 0.05
"""Share of the limit that counting may be late, where there is no plan."""
_STALLED_SHARE = 0.5
"""Share of the time left that CP-SAT gets where prices have stalled on a small problem."""
_SEARCH_SHARE, _SEARCH_MOST = 0.3, 2.0
"""Share of the time left, and seconds at most, for local search before the engine."""
_ENUMERATED, _ENUMERATED_CELLS = 20_000, 4_000_000
"""Combinations, and combinations · devices, up to which all are tried."""


_Solve = Callable[[Problem, Params, npt.NDArray[np.int64] | None, Clock], Result]


class AutoSolver:
    """Tree messages, construction, prices, local search and CP-SAT on the pruned options."""

    name = "auto"
    exact = True

    def supports(self, problem: Problem) -> str | None:
        return None

    def solve(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None) -> Result:
        clock = Clock(DEFAULT_LIMIT if params.time_limit is None else params.time_limit)
        if problem.timed:
            return self._folded(problem, params, hint, clock, self._timed)
        first = quick_start(problem, clock, hint)
        needs = relaxation_seconds(problem)
        begin = clock.left > (needs + lag() * _AFTER if first is not None else _WORTH_A_TRY * needs)
        relaxed = relaxation(problem, clock) if begin else None
        if relaxed is None:
            return before_relaxation(first, self.name, clock)
        proven = relaxed_result(relaxed, self.name, clock.start)
        if proven.status is not Status.UNKNOWN:
            return proven
        if first is not None and clock.left <= 0:
            return outcome(relaxed, first, self.name, clock, f"{proven.note}; no time left to search")

        def search(problem: Problem, params: Params, known: npt.NDArray[np.int64] | None, clock: Clock) -> Result:
            own = relaxed if problem is relaxed.problem else relaxation(problem)
            best = None if first is None or known is None else (first[0], known)
            return self._search(own, best, proven.note, params, clock)

        return self._folded(problem, params, None if first is None else first[1], clock, search)

    def _folded(
        self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None, clock: Clock, solve: _Solve
    ) -> Result:
        """Solve with interchangeable devices merged, where there is time to merge them and it pays."""
        folded = fold(problem, hint) if clock.left > fold_seconds(problem) else None
        if folded is None:
            return solve(problem, params, hint, clock)
        inside = None if hint is None else np.searchsorted(folded.kept, hint)
        params = dataclasses.replace(params, report=of_restricted(params.report, folded.kept))
        result = solve(folded.problem, params, inside, clock)
        note = f"{folded.of} sites as {folded.sites}, by classes of equal devices; {result.note}"
        choice = None if result.choice is None else folded.kept[result.choice]
        return dataclasses.replace(result, choice=choice, note=note)

    def _timed(self, problem: Problem, params: Params, hint: npt.NDArray[np.int64] | None, clock: Clock) -> Result:
        hint = plan_without_time(problem, params, hint)
        return solve_timed(problem, params, hint, self.name, clock, search=True, engine=True)

    def _search(self, relaxed: Relaxation, first: Best | None, note: str, params: Params, clock: Clock) -> Result:
        """Steps 3 to 7."""
        problem = relaxed.problem
        if _enumerable(problem, problem.allowed, clock):
            done = outcome(relaxed, first, self.name, clock, f"{note}; few combinations")
            mask = problem.allowed if first is None else relaxed.prune(first[0])
            return _finish(mask, done, params, clock, problem)
        many = first is None and int(problem.allowed.sum()) > _FEW_OPTIONS
        chained = many and chains_reason(problem, problem.allowed) is None
        if (chained or clock.left > _ENGINE_NEEDS) and inseparable(problem) is None:
            crowded = None if first is not None else _overfull(problem, clock)
            if crowded is not None:
                return crowded
            return solve_separable(problem, params, None if first is None else first[1], clock)
        share = clock.slice(min(_SEARCH_SHARE * clock.left, _SEARCH_MOST)) if clock.left > _ENGINE_NEEDS else clock
        if first is None and share is clock:
            # Construction that finds nothing takes all of it, and counting may say why.
            share = Clock(clock.limit - counting_seconds(problem), clock.start)
        run = Run(relaxed, first, params, clock, share, note)
        prices, turns = RootPrices(run), Turns(run)
        construct(run, enough=prices.near_in_time)
        crowded = None if run.best is not None else _overfull(problem, clock)
        if crowded is not None:
            return crowded
        if clock.left <= 0:
            return run.result(turns.note)
        turns.search_pairs()
        prices.look_near()
        prices.bound_all()
        find_feasible(run)
        eliminate(run)
        enumerated = (
            run.search is None and clock.left > _ENUMERATION_NEEDS and _enumerable(problem, run.survivors, clock)
        )
        if not run.closed and not enumerated:
            turns.take_turns(_SEARCH_MOST)
        done = run.result(turns.note)
        if turns.stalled and done.status is Status.FEASIBLE and clock.left > _ENGINE_NEEDS:
            done = _finish(run.survivors, done, params, clock.slice(_STALLED_SHARE * clock.left), problem)
            if done.status is Status.FEASIBLE and clock.left > 0:
                run.take_over(done)
                turns.take_turns(_SEARCH_MOST)
                return run.result(turns.note)
        if done.status in (Status.OPTIMAL, Status.INFEASIBLE) or clock.left <= _ENUMERATION_NEEDS:
            return done
        return _finish(run.survivors, done, params, clock, problem)


def _overfull(problem: Problem, clock: Clock) -> Result | None:
    """Infeasible, where counting proves it and there is the time for it."""
    if clock.left + _COUNTING_GRACE * clock.limit < counting_seconds(problem):
        return None
    reason = overfull(problem)
    if reason is None:
        return None
    return Result(Status.INFEASIBLE, None, None, None, COUNTING_PROOF, "auto", clock.seconds, reason)


def _finish(mask: npt.NDArray[np.bool_], done: Result, params: Params, clock: Clock, problem: Problem) -> Result:
    """Step 7: prove or improve on the options that survive pruning."""
    small, kept = restrict(problem, mask)
    note = f"{done.note}; {len(kept)} of {len(mask)} options survive"
    hint = None if done.choice is None else np.searchsorted(kept, done.choice)
    try:
        if _enumerable(problem, mask, clock):
            result = Brute().solve(small, dataclasses.replace(params, time_limit=max(0.0, clock.left)), hint)
        else:
            reason = "no time left" if clock.left < _ENGINE_NEEDS / 2 else CpSat().supports(small)
            if reason is not None:
                return dataclasses.replace(done, seconds=clock.seconds, note=f"{note}; no cpsat: {reason}")
            grace = round(_ENGINE_GRACE * clock.left, 2)
            told = of_restricted(params.report, kept)
            engine = dataclasses.replace(params, time_limit=clock.left - grace, report=told)
            result = run_killable(_CPSAT, small, engine, hint, solver="cpsat", grace=grace)
    except BackendError as error:
        return dataclasses.replace(done, seconds=clock.seconds, note=f"{note}; {error}")
    note = f"{note}; {result.solver}: {result.note}" if result.note else f"{note}; {result.solver}"
    choice, value, bound, proof = done.choice, done.objective, done.bound, done.proof
    if result.status is Status.INFEASIBLE:
        if choice is not None:
            raise InternalError(f"{result.solver} calls infeasible what has a plan of {value}")
        return Result(Status.INFEASIBLE, None, None, None, result.proof, "auto", clock.seconds, note)
    if result.choice is not None and result.objective is not None and (value is None or result.objective < value):
        choice, value = kept[result.choice], result.objective
    if result.bound is not None and (bound is None or result.bound > bound):
        bound, proof = result.bound, result.proof
    if value is not None and bound is not None:
        bound = min(bound, value)
    gap = relative_gap(value, bound)
    status = Status.UNKNOWN
    if value is not None:
        status = Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
    return Result(
        status, choice, value, bound, proof, "auto", clock.seconds, note, result.stats, multipliers=done.multipliers
    )


def _enumerable(problem: Problem, mask: npt.NDArray[np.bool_], clock: Clock) -> bool:
    """Whether the combinations of the options in a mask are few enough to try all in the time left."""
    counts = np.bincount(problem.options.stage[mask], minlength=problem.V).tolist()
    combinations = math.prod(counts)
    few = combinations <= min(_ENUMERATED, _ENUMERATED_CELLS // max(1, problem.topology.D))
    return bool(few and clock.left > _ENUMERATION_NEEDS + _COMBINATION_NEEDS * combinations * problem.V)
