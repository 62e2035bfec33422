"""Solving where time counts: list scheduling, local search, and CP-SAT on the options that survive, under one clock."""

from __future__ import annotations

import dataclasses
import random

import numpy as np
import numpy.typing as npt

from iegopt.errors import BackendError, InternalError
from iegopt.problem.arrays import Problem
from iegopt.problem.restrict import restrict
from iegopt.solvers.brute import Brute, enumeration_seconds
from iegopt.solvers.clock import Clock
from iegopt.solvers.counting import COUNTING_PROOF, overfull
from iegopt.solvers.cpsat import CpSat
from iegopt.solvers.exact.elimination import eliminate
from iegopt.solvers.exact.relaxation import Relaxation, relaxation
from iegopt.solvers.exact.tree import relaxed_result
from iegopt.solvers.incumbent import NO_OPTION, no_option, of_restricted
from iegopt.solvers.killable import run_killable
from iegopt.solvers.result import OPTIMALITY_GAP, Params, Result, Status, relative_gap
from iegopt.solvers.search.quick import quick_plan
from iegopt.solvers.seconds import relaxation_seconds
from iegopt.solvers.timed.bound import MakespanBound, surviving
from iegopt.solvers.timed.pricer import Found
from iegopt.solvers.timed.search import improve
from iegopt.solvers.timed.start import SHORT, Start
from iegopt.solvers.timetable import timetable

__all__ = ["BOUND_PROOF", "solve_timed"]

Ints = npt.NDArray[np.int64]

BOUND_PROOF = "relaxation and least makespan"
PATH_PROOF = "longest path of least times"
TREE_PROOF = "branch and bound over schedules"

_SEARCH_SHARE, _SEARCH_MOST = 0.4, 4.0
"""Share of the time left, and seconds at most, for local search before the engine."""
_ELIMINATION_SHARE = 0.2
"""Share of the time left that elimination may take on a graph with cycles."""
_MOVES = 2e-5
"""Seconds a stage that must be left for local search to be worth the start."""
_WORK_BOUND = 2e-5
"""Seconds a stage that must be left for the bound by work."""
_ELIMINATION_NEEDS = 10
"""Times as much as the relaxation that must be left for it."""
_PATIENCE, _STEPS = 100, 4000
"""Plans per stage without a better plan, after which the engine has its turn: of local search, of the compiled walk."""
_ENUMERATION_SHARE, _ENUMERATION_MOST = 0.3, 1.0
"""Share of the time left, and seconds at most, that trying all combinations may take."""
_ENGINE_NEEDS = 0.4
"""Seconds that must be left for an engine to be worth the start."""
_ENGINE_GRACE = 0.1
"""Share of the time left that the engine may be late before it is killed."""


def solve_timed(
    problem: Problem, params: Params, hint: Ints | None, solver: str, clock: Clock, *, search: bool, engine: bool
) -> Result:
    """The best plan until the clock ends.

    Parameters
    ----------
    solver
        Name in the result.
    search, engine
        Whether local search, and CP-SAT after it, follow the construction.
    """
    empty = no_option(problem)
    if empty is not None:
        return Result(Status.INFEASIBLE, None, None, None, NO_OPTION, solver, clock.seconds, empty)
    start = Start(problem, params, clock, walks=search)
    if start.best.broken > 0:
        late = start.bound.late()
        if late is not None:
            return Result(Status.INFEASIBLE, None, None, None, PATH_PROOF, solver, clock.seconds, late)
        crowded = overfull(problem)
        if crowded is not None:
            return Result(Status.INFEASIBLE, None, None, None, COUNTING_PROOF, solver, clock.seconds, crowded)
        start.take(_without_time(problem, clock))
    needs = relaxation_seconds(problem)
    if start.walks and 0 < clock.left < max(SHORT, needs):
        start.walk(clock, 0, None)
    if start.exhausted:
        return _result(problem, start.best, (start.best.value, TREE_PROOF), solver, clock, start.note)
    relaxed = relaxation(problem, clock) if clock.left > needs else None
    if relaxed is None or relaxed.bound is None:
        return _before_relaxation(start, solver, clock)
    proven = _proven(relaxed, solver, clock)
    if proven is not None:
        return proven
    start.take(hint)
    start.take(relaxed.choice)
    if not start.walks:
        start.construct()
    bound, best = start.bound, start.best
    mask = problem.allowed if best.broken > 0 else surviving(relaxed, bound, best.value)
    if engine and enumeration_seconds(problem, mask) < min(_ENUMERATION_SHARE * clock.left, _ENUMERATION_MOST):
        return _enumerated(problem, mask, solver, params, clock)
    shortest = bound.least if clock.left > _WORK_BOUND * problem.V else bound.path
    least, proof = relaxed.bound + problem.makespan_cost(shortest), BOUND_PROOF
    if search and clock.left > _ELIMINATION_NEEDS * needs and relaxed.forest.dropped and best.broken == 0:
        found = eliminate(problem, mask, clock.slice(_ELIMINATION_SHARE * clock.left))
        if found is not None:
            known = min(found.value + problem.makespan_cost(bound.least), best.value)
            least, proof = max((least, proof), (known, "elimination and least makespan"))
            start.take(found.choice)
            best = start.best
    params.report(best.choice if best.broken == 0 else None, least, proof, _start_times(problem, best))
    note = start.note
    if search and clock.left > _MOVES * problem.V:
        follows = engine and clock.left > _ENGINE_NEEDS
        share = min(_SEARCH_SHARE * clock.left, _SEARCH_MOST) if follows else clock.left
        if start.walks:
            start.walk(clock.slice(share), least, _STEPS * problem.V if follows else None, params.report)
            best, note = start.best, start.note
            if start.exhausted:
                least, proof = best.value, TREE_PROOF
        else:
            patience = _PATIENCE * problem.V if follows else None
            best, count = improve(
                start.price, start.builder, start.ranks, best, clock.slice(share), random.Random(params.seed), least,
                patience, params.report,
            )  # fmt: skip
            note = f"{note}; {count} plans of local search"
    done = _result(problem, best, (least, proof), solver, clock, note)
    if engine and done.status is not Status.OPTIMAL and clock.left > _ENGINE_NEEDS:
        return _with_engine(relaxed, bound, done, params, clock)
    return done


def _enumerated(problem: Problem, mask: npt.NDArray[np.bool_], solver: str, params: Params, clock: Clock) -> Result:
    """The best plan of the options that can be in one, all of them tried."""
    small, kept = restrict(problem, mask)
    found = Brute().solve(small, dataclasses.replace(params, time_limit=None), None)
    choice = None if found.choice is None else kept[found.choice]
    note = f"{len(kept)} of {len(mask)} options survive; {found.note}"
    return dataclasses.replace(found, choice=choice, solver=solver, seconds=clock.seconds, note=note)


def _without_time(problem: Problem, clock: Clock) -> Ints | None:
    """A quick plan for the problem as if memory were a sum and nothing else depended on time."""
    plain = dataclasses.replace(problem, makespan_weight=0.0, no_overlap=False, peak_memory=False)
    found = quick_plan(plain, clock)
    return None if found is None else found[1]


def _before_relaxation(start: Start, solver: str, clock: Clock) -> Result:
    """A list schedule where the clock ended before more was proven than what the cheapest options cost."""
    problem = start.price.problem
    options = problem.options
    least = 0
    if options.cost.any():
        cost = np.where(problem.allowed, options.cost, np.iinfo(np.int64).max)
        least = sum(np.minimum.reduceat(cost, options.ptr[:-1]).tolist())
    known = least + problem.makespan_cost(start.bound.path), "cheapest options and longest path"
    note = f"{start.note}; no time for the relaxation"
    return _result(problem, start.best, known, solver, clock, note)


def _proven(relaxed: Relaxation, solver: str, clock: Clock) -> Result | None:
    """The relaxation's choice, where the makespan costs nothing and it keeps every constraint; else ``None``."""
    if relaxed.problem.makespan_weight > 0:
        return None
    found = relaxed_result(relaxed, solver, clock.start)
    if found.status is not Status.OPTIMAL or found.choice is None or not relaxed.problem.no_overlap:
        return found if found.status is Status.OPTIMAL else None
    return dataclasses.replace(found, start=timetable(relaxed.problem, found.choice).start)


def _result(
    problem: Problem, best: Found, known: tuple[int, str] | None, solver: str, clock: Clock, note: str
) -> Result:
    least, proof = (None, None) if known is None else known
    start = _start_times(problem, best)
    if best.broken > 0:
        note = f"{note}; no feasible plan found"
        return Result(Status.UNKNOWN, None, None, least, proof, solver, clock.seconds, note)
    status = _status(best.value, least)
    return Result(status, best.choice, best.value, least, proof, solver, clock.seconds, note, start=start)


def _start_times(problem: Problem, plan: Found) -> Ints | None:
    """Start times where they are part of an answer."""
    return plan.table.start if problem.no_overlap else None


def _with_engine(relaxed: Relaxation, bound: MakespanBound, done: Result, params: Params, clock: Clock) -> Result:
    """CP-SAT on the options that can be in a plan as good as the one at hand.

    What is dropped is in worse plans only, so the engine's bound, or its finding no plan, holds for the whole.
    """
    problem = relaxed.problem
    mask = problem.allowed if done.objective is None else surviving(relaxed, bound, done.objective)
    small, kept = restrict(problem, mask)
    note = f"{done.note}; {len(kept)} of {len(mask)} options survive"
    reason = CpSat().supports(small)
    if reason is not None:
        return dataclasses.replace(done, seconds=clock.seconds, note=f"{note}; no cpsat: {reason}")
    grace = round(_ENGINE_GRACE * clock.left, 2)
    hint = None if done.choice is None else np.searchsorted(kept, done.choice)
    told = of_restricted(params.report, kept)
    inner = dataclasses.replace(params, time_limit=clock.left - grace, report=told)
    try:
        found = run_killable("iegopt.solvers.cpsat.solver:run", small, inner, hint, solver="cpsat", grace=grace)
    except BackendError as error:
        return dataclasses.replace(done, seconds=clock.seconds, note=f"{note}; {error}")
    note = f"{note}; cpsat: {found.note}"
    choice, value, start = done.choice, done.objective, done.start
    if found.status is Status.INFEASIBLE:
        if choice is not None:
            raise InternalError(f"cpsat calls infeasible what has a plan of {value}")
        return Result(Status.INFEASIBLE, None, None, None, found.proof, done.solver, clock.seconds, note)
    if found.choice is not None and found.objective is not None and (value is None or found.objective < value):
        choice, value, start = kept[found.choice], found.objective, found.start
    least, proof = done.bound, done.proof
    if found.bound is not None and (least is None or found.bound > least):
        least, proof = found.bound, found.proof
    if value is not None and least is not None:
        least = min(least, value)
    status = Status.UNKNOWN if value is None else _status(value, least)
    return Result(status, choice, value, least, proof, done.solver, clock.seconds, note, found.stats, start)


def _status(value: int, bound: int | None) -> Status:
    gap = relative_gap(value, bound)
    return Status.OPTIMAL if gap is not None and gap <= OPTIMALITY_GAP else Status.FEASIBLE
