"""Every rule of a problem behind a literal of its own, for CP-SAT to say which of them conflict."""

from __future__ import annotations

import numpy as np
from ortools.sat.python import cp_model

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.solvers.cpsat import constraints
from iegopt.solvers.cpsat.solver import careful_solver
from iegopt.solvers.cpsat.variables import EdgeVariables, Variables
from iegopt.solvers.loads import device_loads, latest_finish, shared_weights
from iegopt.solvers.rules import Rule, relaxed, rules_of
from iegopt.solvers.surcharges import edge_terms

__all__ = ["core"]


def core(problem: Problem, time_limit: float | None) -> list[Rule] | None:
    """Rules that CP-SAT found to conflict; ``None`` where it found a placement, or nothing in ``time_limit`` s."""
    own = problem.options
    options = [np.arange(own.ptr[v], own.ptr[v + 1]) for v in range(problem.V)]
    variables = Variables(relaxed(problem, ()), options)
    model = variables.model
    literal = {rule: model.new_bool_var("") for rule in rules_of(problem)}
    weights = shared_weights(problem, options)
    loads = device_loads(problem, options)
    loaded = {k: variables.loaded(weights[k]) for k in sorted({k for load in loads for k in load.keys.tolist()})}
    for load in loads:
        constraints.memory(variables, load, loaded, only_if=literal[Rule("memory", load.device)])
    for i, rule in enumerate(problem.affinities):
        if rule.required:
            state = constraints.apart if rule.apart else constraints.together
            state(variables, rule, only_if=literal[Rule("affinity", i)])
    for v in np.flatnonzero(problem.sla < NO_LIMIT).tolist():
        for o in options[v][own.time[options[v]] > problem.sla[v]].tolist():
            model.add_implication(literal[Rule("sla", v)], ~variables.x[o])
    if problem.budget < NO_LIMIT:
        constraints.budget(variables, problem.budget, only_if=literal[Rule("budget", 0)])
    if problem.has_path_limits:
        _finish(problem, variables, literal)
    model.add_assumptions(list(literal.values()))
    solver = careful_solver()
    solver.parameters.num_workers = 1
    if time_limit is not None:
        solver.parameters.max_time_in_seconds = time_limit
    if solver.solve(model) != cp_model.INFEASIBLE:
        return None
    by_index = {variable.index: rule for rule, variable in literal.items()}
    return [by_index[i] for i in solver.sufficient_assumptions_for_infeasibility()]


def _finish(problem: Problem, variables: Variables, literal: dict[Rule, cp_model.IntVar]) -> None:
    """Finish times that nothing limits but the literals of ``finish_by`` and the deadline."""
    reached = latest_finish(problem) < NO_LIMIT
    edges: list[EdgeVariables] = []
    horizon = sum(int(problem.options.time[own].max()) for own in variables.options)
    for e in range(problem.E):
        u, v = int(problem.edges.source[e]), int(problem.edges.target[e])
        if reached[v]:
            terms = edge_terms(problem, e, True, variables.options[u], variables.options[v])
            edges.append(variables.edge(terms))
            horizon += int(terms.time.max()) + sum(abs(due.time) for due in edges[-1].due)
    end = constraints.finish(variables, edges, np.where(reached, horizon, NO_LIMIT))
    for v, variable in end.items():
        for rule, limit in ((Rule("finish_by", v), problem.finish_by[v]), (Rule("deadline", 0), problem.deadline)):
            if rule in literal:
                variables.model.add(variable <= int(limit)).only_enforce_if(literal[rule])
