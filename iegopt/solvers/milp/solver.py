"""MILP as a solver of the table: build, solve through PuLP, price the plan again, cut off what only floats allow.

An engine's plan that breaks a limit by less than the programme tells apart is infeasible in integers; what it breaks
is stated exactly and the programme is solved again, until the plan holds or the time is over.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.incumbent import NO_OPTION, Incumbent, Report, no_option
from iegopt.solvers.milp.backends import Engine, solve
from iegopt.solvers.milp.limits import Limit, relaxed
from iegopt.solvers.milp.programme import cut_off, formulate
from iegopt.solvers.milp.variables import Variables
from iegopt.solvers.result import Params, Result, Status, unheard

__all__ = ["run_cbc", "run_highs"]

Ints = npt.NDArray[np.int64]

_CLOSER = 0.1
"""Part of the objective's unit at most, where it is proved again without what the plan at hand makes too dear."""


def run_highs(problem: Problem, params: Params, hint: Ints | None, report: Report = unheard) -> Result:
    """Solve with HiGHS in this process; ``report`` receives plans and bounds as they are known."""
    return _run("HiGHS", "milp", problem, params, hint, report)


def run_cbc(problem: Problem, params: Params, hint: Ints | None, report: Report = unheard) -> Result:
    """Solve with CBC, a process of its own that PuLP starts."""
    return _run("CBC", "milp-cbc", problem, params, hint, report)


def _run(engine: Engine, name: str, problem: Problem, params: Params, hint: Ints | None, report: Report) -> Result:
    began = time.perf_counter()
    best = Incumbent(problem, name, hint, report)
    empty = no_option(problem)
    if empty is not None:
        return best.infeasible(NO_OPTION, empty, time.perf_counter() - began)
    programme = formulate(problem)
    variables, priced = programme.variables, programme.priced
    best.raise_bound(priced.least, "cheapest options")
    if best.objective is not None:
        relaxed(variables, Limit(priced.ticks, best.objective - priced.constant))

    def watch(values: list[float] | None, bound: float | None) -> None:
        if values is not None:
            best.offer(_choice(variables, values))
        if bound is not None:
            best.raise_bound(priced.bound_ticks(bound), engine)

    while True:
        stats = {"columns": len(variables.upper), "rows": len(variables.rows)}
        if params.log is not None:
            params.log(f"{engine}: {stats['columns']} columns, {stats['rows']} rows")
        left = None if params.time_limit is None else params.time_limit - (time.perf_counter() - began)
        if left is not None and left <= 0:
            return best.result(time.perf_counter() - began, stats)
        answer = solve(engine, variables, priced, left, params.threads, params.seed, watch)
        seconds = time.perf_counter() - began
        if answer.infeasible and best.objective is None:
            return best.infeasible(engine, f"{engine} proved that no placement keeps every constraint", seconds, stats)
        if answer.bound is not None and not answer.infeasible:
            best.raise_bound(priced.bound_ticks(answer.bound), engine)
        if params.log is not None:
            params.log(f"{engine}: bound {best.bound} after {seconds:.2f} s")
        if answer.values is not None and not best.offer(_choice(variables, answer.values)):
            cut_off(programme, _choice(variables, answer.values))
            continue
        result = best.result(seconds, stats)
        closer = None if best.objective is None else priced.up_to(best.objective)
        proven = result.status is not Status.FEASIBLE
        if proven or not answer.ended or closer is None or closer.unit > priced.unit * _CLOSER:
            return _ended(engine, result, params.time_limit)
        priced = closer


def _ended(engine: Engine, result: Result, time_limit: float | None) -> Result:
    """The result with what ended it, where that was no limit: costs too far apart for an engine's float64."""
    if result.status is Status.FEASIBLE and (time_limit is None or result.seconds < time_limit):
        return dataclasses.replace(
            result, note=f"{engine} ended with a plan, and proves it as far as its tolerance goes"
        )
    return result


def _choice(variables: Variables, column_values: list[float]) -> Ints:
    values = np.array(column_values)
    chosen = [int(own[np.argmax(values[[variables.x[o] for o in own.tolist()]])]) for own in variables.options]
    return np.array(chosen, dtype=np.int64)
