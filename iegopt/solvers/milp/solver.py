"""MILP as a solver of the table: build, solve through PuLP, price the plan again, cut off what only floats allow.

An engine's plan that overfills a device by less than its tolerance is infeasible in integers; its options on that
device are forbidden together and the programme is solved again, until the plan holds or the time is over.
"""

from __future__ import annotations

import dataclasses
import time

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.solvers.evaluate import device_load
from iegopt.solvers.incumbent import NO_OPTION, Incumbent, Report, no_option
from iegopt.solvers.loads import device_loads, latest_finish, shared_weights
from iegopt.solvers.milp import constraints
from iegopt.solvers.milp.backends import Engine, solve
from iegopt.solvers.milp.objective import Objective, minimise
from iegopt.solvers.milp.variables import Variables
from iegopt.solvers.result import Params, Result, Status, unheard
from iegopt.solvers.surcharges import allowed_of, edge_terms

__all__ = ["run_cbc", "run_highs"]

Ints = npt.NDArray[np.int64]


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
    variables, priced = _formulate(problem)
    best.raise_bound(priced.least, "cheapest options")
    if best.objective is not None:
        cutoff = (best.objective - priced.constant) / priced.unit
        variables.add(priced.coefficient, "<=", cutoff + 1e-6 * (1 + abs(cutoff)))

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
        if answer.values is None or best.offer(_choice(variables, answer.values)):
            return _ended(engine, best.result(seconds, stats), params.time_limit)
        constraints.no_good(variables, _conflicting(problem, _choice(variables, answer.values)))


def _ended(engine: Engine, result: Result, time_limit: float | None) -> Result:
    """The result with what ended it, where that was no limit: costs too far apart for an engine's float64."""
    if result.status is Status.FEASIBLE and (time_limit is None or result.seconds < time_limit):
        return dataclasses.replace(
            result, note=f"{engine} ended with a plan, and proves it as far as its tolerance goes"
        )
    return result


def _formulate(problem: Problem) -> tuple[Variables, Objective]:
    """The whole programme: columns, rows, objective."""
    options = [allowed_of(problem, v) for v in range(problem.V)]
    variables = Variables(problem, options)
    latest = latest_finish(problem)
    edges = []
    for e in range(problem.E):
        u, v = int(problem.edges.source[e]), int(problem.edges.target[e])
        edges.append(variables.edge(edge_terms(problem, e, bool(latest[v] < NO_LIMIT), options[u], options[v])))
    loads = device_loads(problem, options)
    weights = shared_weights(problem, options)
    loaded = {k: variables.loaded(weights[k]) for k in sorted({k for load in loads for k in load.keys.tolist()})}
    for load in loads:
        constraints.memory(variables, load, loaded)
    penalties = []
    for rule in problem.affinities:
        if not rule.required:
            penalties.append((constraints.preferred(variables, rule), rule.penalty))
        elif rule.apart:
            constraints.apart(variables, rule)
        else:
            constraints.together(variables, rule)
    if problem.has_path_limits:
        constraints.finish(variables, edges, latest)
    if problem.budget < NO_LIMIT:
        constraints.budget(variables)
    return variables, minimise(variables, edges, penalties)


def _choice(variables: Variables, column_values: list[float]) -> Ints:
    values = np.array(column_values)
    chosen = [int(own[np.argmax(values[[variables.x[o] for o in own.tolist()]])]) for own in variables.options]
    return np.array(chosen, dtype=np.int64)


def _conflicting(problem: Problem, choice: Ints) -> list[int]:
    """Options of an infeasible plan that do not go together: those on an overfilled device, else all."""
    over = np.flatnonzero(device_load(problem, choice) > problem.capacity)
    if not over.size:
        return [int(o) for o in choice]
    site = problem.options.site
    return [int(o) for o in choice if over[0] in problem.topology.devices_of(int(site[o]))]
