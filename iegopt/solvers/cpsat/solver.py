"""CP-SAT as a solver of the table: build, hint, solve, price the plan again."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from iegopt.errors import BackendError
from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.solvers.cpsat import constraints
from iegopt.solvers.cpsat.moments import peak_memory
from iegopt.solvers.cpsat.objective import Objective, minimise
from iegopt.solvers.cpsat.timing import Timing
from iegopt.solvers.cpsat.variables import Variables
from iegopt.solvers.incumbent import NO_OPTION, Incumbent, Report, no_option
from iegopt.solvers.loads import device_loads, latest_finish, shared_weights
from iegopt.solvers.result import Params, Result, unheard
from iegopt.solvers.surcharges import allowed_of, edge_terms

__all__ = ["careful_solver", "run", "satisfiable"]

Ints = npt.NDArray[np.int64]

_EDGES_PER_STAGE, _LINEAR_OPTIONS = 2, 10_000
"""Edges per stage, and options, up to which the whole model is relaxed."""


def run(problem: Problem, params: Params, hint: Ints | None, report: Report = unheard) -> Result:
    """Solve in this process; ``report`` receives every better plan and bound on the way.

    Raises
    ------
    BackendError
        If CP-SAT refuses the model.
    """
    began = time.perf_counter()
    best = Incumbent(problem, "cpsat", hint, report)
    empty = no_option(problem)
    if empty is not None:
        return best.infeasible(NO_OPTION, empty, time.perf_counter() - began)
    model = _formulate(problem)
    variables, priced = model.variables, model.priced
    best.raise_bound(priced.least, "cheapest options")
    if hint is not None and problem.allowed[hint].all():
        variables.hint(hint)
    solver = careful_solver()
    own = solver.parameters
    own.num_workers = params.threads
    own.random_seed = params.seed
    if _relaxed_well(problem):
        own.linearization_level = 2
    if params.time_limit is not None:
        own.max_time_in_seconds = max(0.001, params.time_limit - (time.perf_counter() - began))
    if params.log is not None:
        own.log_search_progress, own.log_to_stdout = True, False
        solver.log_callback = params.log
    solver.best_bound_callback = lambda value: best.raise_bound(priced.ticks(_ceil(value)), "CP-SAT")
    status = solver.solve(variables.model, _Watch(model, best))
    seconds = time.perf_counter() - began
    stats = {"variables": len(variables.model.proto.variables), "constraints": len(variables.model.proto.constraints)}
    if status == cp_model.MODEL_INVALID:
        raise BackendError(f"CP-SAT refused the model: {variables.model.validate()}")
    if status == cp_model.INFEASIBLE:
        return best.infeasible("CP-SAT", "CP-SAT proved that no placement keeps every constraint", seconds, stats)
    if status in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        best.offer(_choice(variables, solver.boolean_value), model.start(solver.value))
    best.raise_bound(_bound(solver, priced), "CP-SAT")
    return best.result(seconds, stats)


def _relaxed_well(problem: Problem) -> bool:
    """Whether clauses belong into the linear relaxation.

    They are all that ties what edges cost to the options of their ends: without them the bound sees memory alone, and
    CP-SAT takes ten times as long, or ends without a proof. Where time is part of the model, or edges are many, rows
    are many and say little.
    """
    few = problem.E <= _EDGES_PER_STAGE * problem.V and int(problem.allowed.sum()) <= _LINEAR_OPTIONS
    return few and not problem.timed


def careful_solver() -> cp_model.CpSolver:
    """A solver without the presolve step that loses optimal solutions in OR-Tools 9.15.

    With its "linear + amo" reductions on, CP-SAT claimed a wrong optimum on 16 of 3,500 small random problems of
    ours (14 of 1,500 with dense pair matrices), with any number of workers; with them off, on none, in the same time
    (google/or-tools issue 5293 finds the same step at fault).
    """
    solver = cp_model.CpSolver()
    solver.parameters.presolve_inclusion_work_limit = 0
    return solver


def satisfiable(problem: Problem, time_limit: float | None) -> bool | None:
    """Whether any placement keeps the hard constraints; ``None`` where ``time_limit`` seconds do not tell."""
    if no_option(problem) is not None:
        return False
    variables = _formulate(problem, priced=False).variables
    solver = careful_solver()
    solver.parameters.num_workers = 1
    if time_limit is not None:
        solver.parameters.max_time_in_seconds = time_limit
    status = solver.solve(variables.model)
    if status == cp_model.MODEL_INVALID:
        raise BackendError(f"CP-SAT refused the model: {variables.model.validate()}")
    return None if status == cp_model.UNKNOWN else bool(status != cp_model.INFEASIBLE)


@dataclass(frozen=True, eq=False)
class _Model:
    variables: Variables
    priced: Objective
    timing: Timing | None

    def start(self, value: Callable[[cp_model.IntVar], int]) -> Ints | None:
        """Start times of a solution where they are part of the answer."""
        if self.timing is None or not self.variables.problem.no_overlap:
            return None
        return self.timing.starts(value)


def _formulate(problem: Problem, *, priced: bool = True) -> _Model:
    """The whole model: variables, constraints and, where it is ``priced``, everything that costs."""
    options = [allowed_of(problem, v) for v in range(problem.V)]
    variables = Variables(problem, options)
    latest = latest_finish(problem)
    edges = []
    for e in range(problem.E):
        u, v = int(problem.edges.source[e]), int(problem.edges.target[e])
        timed = bool(latest[v] < NO_LIMIT) or problem.timed
        if timed or priced:
            terms = edge_terms(problem, e, timed, options[u], options[v])
            edges.append(variables.edge(terms, exact=problem.peak_memory))
    loads = device_loads(problem, options)
    weights = shared_weights(problem, options)
    loaded = {k: variables.loaded(weights[k]) for k in sorted({k for load in loads for k in load.keys.tolist()})}
    timing = None
    if problem.timed:
        timing = Timing(variables, edges, may_wait=problem.no_overlap or not problem.peak_memory)
        if problem.no_overlap:
            timing.one_at_a_time()
        if problem.peak_memory:
            peak_memory(timing, loaded)
    for load in () if problem.peak_memory else loads:
        constraints.memory(variables, load, loaded)
    penalties = []
    for rule in problem.affinities:
        if not rule.required and priced:
            penalties.append((constraints.preferred(variables, rule), rule.penalty))
        elif rule.required:
            state = constraints.apart if rule.apart else constraints.together
            state(variables, rule)
    if problem.has_path_limits and timing is None:
        constraints.finish(variables, edges, latest)
    if problem.budget < NO_LIMIT:
        constraints.budget(variables, problem.budget)
    if not priced:
        return _Model(variables, Objective(0, 1, 0), timing)
    makespan = timing.makespan() if timing is not None and problem.makespan_weight > 0 else None
    return _Model(variables, minimise(variables, edges, penalties, makespan), timing)


class _Watch(cp_model.CpSolverSolutionCallback):
    """Hands every solution to the incumbent as it is found."""

    def __init__(self, model: _Model, best: Incumbent) -> None:
        super().__init__()
        self._model = model
        self._best = best

    def on_solution_callback(self) -> None:
        self._best.offer(_choice(self._model.variables, self.boolean_value), self._model.start(self.value))


def _choice(variables: Variables, value: Callable[[cp_model.IntVar], bool]) -> Ints:
    chosen = [next(o for o in own.tolist() if value(variables.x[o])) for own in variables.options]
    return np.array(chosen, dtype=np.int64)


def _ceil(bound: float) -> int:
    """A float64 bound on an integer objective, rounded up as far as its own error allows."""
    return math.ceil(bound - max(1e-6, abs(bound) * 1e-12)) if math.isfinite(bound) else -(2**62)


def _bound(solver: cp_model.CpSolver, priced: Objective) -> int:
    """The bound in ticks, from the integer that CP-SAT keeps; never above its own float64 bound."""
    exact = int(solver.response_proto.inner_objective_lower_bound)
    reported = solver.best_objective_bound
    if abs(exact - reported) > 1 + abs(reported) * 1e-9:
        return priced.ticks(_ceil(min(reported, float(exact))))
    return priced.ticks(exact)
