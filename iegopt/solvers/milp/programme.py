"""The whole mixed-integer programme of a problem, and how a plan that it allows wrongly is cut off."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.problem.transfer import chosen_transfers
from iegopt.solvers.evaluate import device_load, finish_times
from iegopt.solvers.loads import device_loads, latest_finish, shared_weights
from iegopt.solvers.milp import constraints
from iegopt.solvers.milp.limits import Limit, exactly, relaxed
from iegopt.solvers.milp.objective import Objective, minimise
from iegopt.solvers.milp.variables import EdgeColumns, Variables
from iegopt.solvers.surcharges import allowed_of, edge_terms

__all__ = ["Programme", "cut_off", "formulate"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Programme:
    """Columns, rows and objective, and what is stated exactly once a plan breaks it.

    ``memory`` is by device, ``budget`` is ``None`` without one; ``exact`` names the limits that are stated exactly.
    """

    variables: Variables
    priced: Objective
    edges: list[EdgeColumns]
    memory: dict[int, Limit]
    budget: Limit | None
    exact: set[tuple[int | str, ...]] = field(default_factory=set)


def formulate(problem: Problem) -> Programme:
    """The programme of an additive problem whose stages all have an allowed option; its limits are relaxed."""
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
    memory = {load.device: constraints.memory(variables, load, loaded) for load in loads}
    for limit in memory.values():
        relaxed(variables, limit)
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
    budget = constraints.budget(variables) if problem.budget < NO_LIMIT else None
    if budget is not None:
        relaxed(variables, budget)
    return Programme(variables, minimise(variables, edges, penalties), edges, memory, budget)


def cut_off(programme: Programme, choice: Ints) -> None:
    """State exactly what a plan (V,) breaks; where all of that is stated, forbid its options together."""
    broken = _broken(programme, choice)
    new = [key for key in broken if key not in programme.exact]
    for key in new:
        exactly(programme.variables, broken[key])
    programme.exact.update(new)
    if not new:
        constraints.no_good(programme.variables, _conflicting(programme.variables.problem, choice))


def _broken(programme: Programme, choice: Ints) -> dict[tuple[int | str, ...], Limit]:
    """The limits that a plan breaks: memory of devices, the budget, one path into every stage that is late."""
    variables, problem = programme.variables, programme.variables.problem
    over = np.flatnonzero(device_load(problem, choice) > problem.capacity).tolist()
    broken: dict[tuple[int | str, ...], Limit] = {
        ("memory", d): programme.memory[d] for d in over if d in programme.memory
    }
    spent = int(problem.options.time[choice[list(problem.budget_stages)]].sum())
    if programme.budget is not None and spent > problem.budget:
        broken["budget",] = programme.budget
    if problem.has_path_limits:
        finish = finish_times(problem, choice)
        latest = np.minimum(problem.finish_by, problem.deadline)
        for v in np.flatnonzero(finish > latest).tolist():
            stages, along = _longest(problem, choice, finish, v)
            edges = [programme.edges[e] for e in along]
            broken["path", v, *along] = constraints.path(variables, stages, edges, int(latest[v]))
    return broken


def _longest(problem: Problem, choice: Ints, finish: Ints, stage: int) -> tuple[list[int], list[int]]:
    """Stages and edges of a path that is why a stage finishes when it does, from its end."""
    edges, own = problem.edges, problem.options.time[choice]
    arrival = finish[edges.source] + chosen_transfers(problem, choice).time
    stages, along = [stage], []
    while finish[stages[-1]] > own[stages[-1]]:
        v = stages[-1]
        e = int(np.flatnonzero((edges.target == v) & (arrival + own[v] == finish[v]))[0])
        along.append(e)
        stages.append(int(edges.source[e]))
    return stages, along


def _conflicting(problem: Problem, choice: Ints) -> list[int]:
    """Options of an infeasible plan that do not go together: those on an overfilled device, else all."""
    over = np.flatnonzero(device_load(problem, choice) > problem.capacity)
    if not over.size:
        return [int(o) for o in choice]
    site = problem.options.site
    return [int(o) for o in choice if over[0] in problem.topology.devices_of(int(site[o]))]
