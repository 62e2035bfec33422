"""Constraints of the CP-SAT model, one function each; ``only_if`` is a literal that switches the rule on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from ortools.sat.python import cp_model

from iegopt.problem.arrays import NO_LIMIT, Affinity
from iegopt.solvers.cells import cell_of
from iegopt.solvers.cpsat.variables import EdgeVariables, Variables
from iegopt.solvers.evaluate import affinity_holds, finish_times
from iegopt.solvers.loads import DeviceLoad

__all__ = ["apart", "budget", "finish", "memory", "preferred", "together"]

Ints = npt.NDArray[np.int64]
Literal = cp_model.LiteralT | None


def memory(variables: Variables, load: DeviceLoad, loaded: dict[int, cp_model.IntVar], only_if: Literal = None) -> None:
    """Σ_o share[o]·x[o] + Σ_k weight[k]·W[k] ≤ capacity, over what lies on one device."""
    terms = [variables.x[o] for o in load.options.tolist()] + [loaded[k] for k in load.keys.tolist()]
    row = cp_model.LinearExpr.weighted_sum(terms, [*load.share.tolist(), *load.key_share.tolist()])
    _enforce(variables.model.add(row <= load.capacity), only_if)


def together(variables: Variables, rule: Affinity, only_if: Literal = None) -> None:
    """y[u, g] = y[v, g] for every group g of the level, u the first stage of the rule and v each other."""
    first, *others = (_cells(variables, rule, v) for v in rule.stages)
    for other in others:
        for g in first.keys() | other.keys():
            row = _end(first.get(g)) == _end(other.get(g))
            if not isinstance(row, bool):
                _enforce(variables.model.add(row), only_if)


def apart(variables: Variables, rule: Affinity, only_if: Literal = None) -> None:
    """Σ_v y[v, g] ≤ 1 for every group g of the level."""
    for members in _members(variables, rule):
        _enforce(variables.model.add(cp_model.LinearExpr.sum(members) <= 1), only_if)


def preferred(variables: Variables, rule: Affinity) -> cp_model.IntVar:
    """The rule holds unless its p is paid: y[u, g] → y[v, g] ∨ p, or at most one of y[·, g] unless p."""
    broken = variables.broken(lambda choice: affinity_holds(variables.problem, rule, choice))
    if rule.apart:
        apart(variables, rule, only_if=~broken)
        return broken
    first, *others = (_cells(variables, rule, v) for v in rule.stages)
    for other in others:
        for g, inside in first.items():
            met = [other[g]] if g in other else []
            variables.model.add_bool_or([~inside, *met, broken])
    return broken


def budget(variables: Variables, limit: int, only_if: Literal = None) -> None:
    """Σ time[o]·x[o] ≤ limit over the stages of the budget."""
    problem = variables.problem
    own = [o for v in problem.budget_stages for o in variables.options[v].tolist()]
    times = problem.options.time[own].tolist()
    row = cp_model.LinearExpr.weighted_sum([variables.x[o] for o in own], times)
    _enforce(variables.model.add(row <= limit), only_if)


def finish(variables: Variables, edges: Sequence[EdgeVariables], latest: Ints) -> dict[int, cp_model.IntVar]:
    """finish[v] ≥ finish[u] + transfer(e) + time(v), and finish[v] ≥ time(v); 0 ≤ finish[v] ≤ latest[v].

    Stages with ``latest`` = ``NO_LIMIT`` cannot make any other late and get no variable.
    """
    problem, model = variables.problem, variables.model
    done: dict[bytes, Ints] = {}

    def times(choice: Ints) -> Ints:
        key = choice.tobytes()
        if key not in done:
            done[key] = finish_times(problem, choice)
        return done[key]

    reached = np.flatnonzero(latest < NO_LIMIT).tolist()
    end = {v: variables.finish(v, int(latest[v]), times) for v in reached}
    own = {v: _weighted(variables, variables.options[v], problem.options.time[variables.options[v]]) for v in reached}
    incoming: set[int] = set()
    for edge in edges:
        u, v = int(problem.edges.source[edge.terms.edge]), int(problem.edges.target[edge.terms.edge])
        if v not in end:
            continue
        incoming.add(v)
        due = [d for d in edge.due if d.time]
        transfer = cp_model.LinearExpr.weighted_sum([d.literal for d in due], [d.time for d in due])
        fixed = _weighted(variables, edge.terms.options, edge.terms.time)
        model.add(end[v] >= end[u] + transfer + fixed + own[v])
    for v in reached:
        if v not in incoming:
            model.add(end[v] >= own[v])
    return end


def _weighted(variables: Variables, options: Ints, weight: Ints) -> cp_model.LinearExpr:
    some = np.flatnonzero(weight)
    return cp_model.LinearExpr.weighted_sum([variables.x[o] for o in options[some].tolist()], weight[some].tolist())


def _cells(variables: Variables, rule: Affinity, stage: int) -> dict[int, cp_model.IntVar]:
    """y[v, g] per group g of the rule's level; a site without a group is a group of its own, numbered −1 − site."""
    options = variables.options[stage]
    cell = cell_of(variables.problem, rule.level)[variables.problem.options.site[options]]
    return {int(g): variables.inside(stage, options[cell == g]) for g in np.unique(cell)}


def _members(variables: Variables, rule: Affinity) -> list[list[cp_model.IntVar]]:
    """Per group the y[v, g] of the stages that can be there, where there are two at least."""
    cells = [_cells(variables, rule, v) for v in rule.stages]
    groups = sorted({g for own in cells for g in own})
    members = [[own[g] for own in cells if g in own] for g in groups]
    return [some for some in members if len(some) > 1]


def _end(literal: cp_model.IntVar | None) -> cp_model.IntVar | int:
    return 0 if literal is None else literal


def _enforce(constraint: cp_model.Constraint, only_if: Literal) -> None:
    if only_if is not None:
        constraint.only_enforce_if(only_if)
