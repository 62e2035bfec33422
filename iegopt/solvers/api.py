"""The wiring of the solvers: the table of them, and ``solve``, in which every answer is verified."""

from __future__ import annotations

import dataclasses
import difflib
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError, InternalError, UnsupportedProblem
from iegopt.problem.arrays import Problem
from iegopt.problem.checks import check_arrays
from iegopt.solvers.auto import AutoSolver
from iegopt.solvers.brute import Brute
from iegopt.solvers.clock import lag, punctual, slowness
from iegopt.solvers.cpsat import CpSat
from iegopt.solvers.exact.prices import PricesSolver
from iegopt.solvers.exact.tree import TreeSolver
from iegopt.solvers.incumbent import Improvement, Incumbent
from iegopt.solvers.killable import load
from iegopt.solvers.milp import Milp
from iegopt.solvers.protocol import Solver
from iegopt.solvers.result import OPTIMALITY_GAP, Params, Report, Result, Status
from iegopt.solvers.search.greedy import GreedySolver
from iegopt.solvers.search.local import LocalSolver
from iegopt.solvers.seconds import verification_seconds
from iegopt.solvers.timetable import timetable
from iegopt.units import a_kind
from iegopt.verify.assignment import check_assignment

__all__ = ["SOLVERS", "load_engine", "solve"]

Ints = npt.NDArray[np.int64]

SOLVERS: dict[str, Solver] = {
    "auto": AutoSolver(),
    "brute": Brute(),
    "tree": TreeSolver(),
    "greedy": GreedySolver(),
    "local": LocalSolver(),
    "prices": PricesSolver(),
    "cpsat": CpSat(),
    "milp": Milp("milp"),
    "milp-cbc": Milp("milp-cbc"),
}
"""Every solver by name. Back ends are imported inside ``solve`` of the solver that needs them."""

_UNHURRIED = 0.02
"""Seconds of time limit from which what every option costs and takes is looked at before."""
_MARGIN_SHARE, _MARGIN = 0.05, 1e-3
"""Share of a time limit, and seconds at most, that a solver may be late by: the way from one look at the clock to the
next."""


def solve(
    problem: Problem,
    solver: str = "auto",
    params: Params | None = None,
    hint: npt.ArrayLike | None = None,
    *,
    on_improvement: Callable[[Improvement], None] | None = None,
) -> Result:
    """Solve with one of ``SOLVERS`` and verify the answer.

    A feasible ``hint`` (V,) is never lost: where the solver ends with less, the hint is the answer. An infeasible one
    is left out, and the note says so. The time limit counts from the call to the verified answer.
    ``on_improvement`` is called with every better plan and bound as it is found, those of the answer included.
    An exception that it raises ends the solve. A solver whose memory runs out keeps the last plan that it reported.

    Raises
    ------
    InputError
        No solver of that name, no problem or one whose arrays say nothing, a hint that does not fit the problem,
        or an ``on_improvement`` that cannot be called.
    UnsupportedProblem
        The solver cannot state the problem.
    InternalError
        The answer breaks a constraint, or its objective, bound or status is wrong.
    """
    start = time.perf_counter()
    if solver not in SOLVERS:
        close = difflib.get_close_matches(str(solver), SOLVERS, n=1)
        guess = f"Maybe {close[0]}?" if close else f"Known: {', '.join(SOLVERS)}"
        raise InputError(f"no solver {solver!r}. {guess}")
    if not isinstance(problem, Problem):
        raise InputError(f"problem: {a_kind(type(problem))}, expected an iegopt.problem.arrays.Problem")
    if params is not None and not isinstance(params, Params):
        raise InputError(f"params: {a_kind(type(params))}, expected iegopt.Params")
    if not (on_improvement is None or callable(on_improvement)):
        raise InputError(
            f"on_improvement: {a_kind(type(on_improvement))}, expected a function of an improvement, or None"
        )
    params = params if params is not None else Params()
    hint = _as_choice(hint)
    chosen = SOLVERS[solver]
    with punctual(params.time_limit):
        check_arrays(problem, values=params.time_limit is None or params.time_limit >= _UNHURRIED)
        reason = chosen.supports(problem)
        if reason is not None:
            raise UnsupportedProblem(f"{solver} cannot solve this problem: {reason}")
        hint_value = None if hint is None else _value_of_hint(problem, hint)
        if on_improvement is not None:
            watched = _watched(problem, solver, hint if hint_value is not None else None, on_improvement)
            params = dataclasses.replace(params, report=watched)
        if params.time_limit is not None:
            left = params.time_limit - (time.perf_counter() - start) - verification_seconds(problem)
            left -= lag() * min(_MARGIN_SHARE * params.time_limit, _MARGIN)
            params = dataclasses.replace(params, time_limit=max(0.0, left))
        result = _solve(chosen, problem, params, hint, start)
        _verify(problem, result)
        if on_improvement is not None:
            params.report(result.choice, result.bound, result.proof, result.start)
        if hint is None:
            return result
        if hint_value is None:
            note = "the hint was left out, since it breaks a constraint"
            return dataclasses.replace(result, note=f"{result.note}; {note}" if result.note else note)
        return _keep_hint(problem, result, hint, hint_value)


def load_engine(solver: str) -> None:
    """Start the child process of a solver that has one and wait until its engine is imported; else do nothing.

    A time limit includes that start where it comes first in ``solve``.
    """
    engine = getattr(SOLVERS.get(solver), "engine", None)
    if engine is not None:
        load(engine)


def _solve(chosen: Solver, problem: Problem, params: Params, hint: Ints | None, start: float) -> Result:
    """The solver's own answer, or what it had reported where its memory ran out."""
    last: dict[str, tuple[Any, ...]] = {}

    def report(choice: Ints | None, bound: int | None, proof: str | None, start: Ints | None = None) -> None:
        if choice is not None:
            last["plan"] = (choice, None, None, start)
        if bound is not None:
            last["bound"] = (None, bound, proof)
        params.report(choice, bound, proof, start)

    try:
        return chosen.solve(problem, dataclasses.replace(params, report=report), hint)
    except MemoryError:
        best = Incumbent(problem, chosen.name, hint)
        for told in last.values():
            best.take(*told)
        return best.result(time.perf_counter() - start, note="out of memory")


def _watched(
    problem: Problem, solver: str, hint: npt.NDArray[np.int64] | None, on_improvement: Callable[[Improvement], None]
) -> Report:
    """A report that passes on what is better than all before, its plans checked and priced."""
    began = time.perf_counter()
    best = Incumbent(problem, solver, hint, lambda *_: on_improvement(best.improvement(time.perf_counter() - began)))
    return best.take


def _verify(problem: Problem, result: Result) -> None:
    if result.choice is not None:
        start, expected = None if result.start is None else result.start.tolist(), verification_seconds(problem)
        begun = time.thread_time()
        report = check_assignment(problem, result.choice.tolist(), start)
        slowness.learn(time.thread_time() - begun, expected / lag())
        if not report.ok:
            raise InternalError(f"{result.solver}: the answer breaks {'; '.join(map(str, report.violations))}")
        if report.objective != result.objective:
            raise InternalError(f"{result.solver}: objective {result.objective}, verified {report.objective}")
    if result.status is Status.OPTIMAL and (result.gap is None or result.gap > OPTIMALITY_GAP):
        raise InternalError(f"{result.solver}: optimal with objective {result.objective} and bound {result.bound}")


def _as_choice(hint: npt.ArrayLike | None) -> Ints | None:
    """A hint as (V,) int64, ``None`` without one."""
    if hint is None:
        return None
    try:
        found = np.asarray(hint)
    except ValueError:  # rows of different lengths
        found = np.asarray(None)
    if found.ndim != 1 or not (np.issubdtype(found.dtype, np.integer) or found.size == 0):
        raise InputError(f"hint: {type(hint).__name__}, expected a whole number for every stage, of its option")
    return found.astype(np.int64)


def _value_of_hint(problem: Problem, hint: npt.NDArray[np.int64]) -> int | None:
    """Objective of a hint, ``None`` where it is infeasible."""
    start = _hint_start(problem, hint)
    report = check_assignment(problem, hint.tolist(), None if start is None else start.tolist())
    if report.objective is None:
        raise InputError(f"the hint does not fit the problem: {report.violations[0]}")
    return int(report.objective) if report.ok else None


def _hint_start(problem: Problem, hint: npt.NDArray[np.int64]) -> npt.NDArray[np.int64] | None:
    """Start times of a hint by list scheduling, where stages must not overlap and the hint is a choice of options."""
    ptr = problem.options.ptr
    if not problem.no_overlap or len(hint) != problem.V or (hint < ptr[:-1]).any() or (hint >= ptr[1:]).any():
        return None
    return timetable(problem, np.asarray(hint, dtype=np.int64)).start


def _keep_hint(problem: Problem, result: Result, hint: npt.NDArray[np.int64], value: int) -> Result:
    if result.status is Status.INFEASIBLE:
        raise InternalError(f"{result.solver}: infeasible, but the hint is a plan of {value}")
    if result.bound is not None and result.bound > value:
        raise InternalError(f"{result.solver}: bound {result.bound}, but the hint is a plan of {value}")
    if result.objective is not None and result.objective <= value:
        return result
    status = Status.OPTIMAL if result.bound == value else Status.FEASIBLE
    note = f"{result.note}; the hint is better" if result.note else "the hint is better"
    start = _hint_start(problem, hint)
    return dataclasses.replace(result, status=status, choice=hint, objective=value, note=note, start=start)
