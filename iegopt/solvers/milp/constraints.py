"""Rows of the mixed-integer programme, one function per constraint of the placement model."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Affinity
from iegopt.solvers.cells import cell_of
from iegopt.solvers.loads import DeviceLoad
from iegopt.solvers.milp.limits import LARGEST, Limit
from iegopt.solvers.milp.variables import EdgeColumns, Variables

__all__ = ["apart", "budget", "finish", "memory", "no_good", "path", "preferred", "together"]

Ints = npt.NDArray[np.int64]

_TIMES = 10**7
"""Cells of a grid of ticks that the latest limit takes: a path has many terms, and each is rounded."""
_SPARE = 100
"""Cells by which a limit in time is later: no plan comes so near to it that an engine's tolerance counts."""


def memory(variables: Variables, load: DeviceLoad, loaded: dict[int, int]) -> Limit:
    """Σ_o share[o]·x[o] + Σ_k weight[k]·W[k] ≤ capacity, over what lies on one device."""
    terms = {variables.x[o]: int(share) for o, share in zip(load.options.tolist(), load.share, strict=True)}
    terms |= {loaded[k]: int(share) for k, share in zip(load.keys.tolist(), load.key_share, strict=True)}
    return Limit(terms, load.capacity)


def together(variables: Variables, rule: Affinity) -> None:
    """y[u, g] = y[v, g] for every group g of the level, u the first stage of the rule and v each other."""
    first, *others = (_cells(variables, rule, v) for v in rule.stages)
    for other in others:
        for g in first.keys() | other.keys():
            ends = [(cells[g], sign) for cells, sign in ((first, 1.0), (other, -1.0)) if g in cells]
            variables.add(dict(ends), "==", 0)


def apart(variables: Variables, rule: Affinity) -> None:
    """Σ_v y[v, g] ≤ 1 for every group g of the level."""
    for members in _members(variables, rule):
        variables.add(dict.fromkeys(members, 1.0), "<=", 1)


def preferred(variables: Variables, rule: Affinity) -> int:
    """The rule holds unless its p is paid: y[u, g] − y[v, g] ≤ p, or y[u, g] + y[v, g] ≤ 1 + p for every pair."""
    broken = variables.column()
    if rule.apart:
        for members in _members(variables, rule):
            for a, b in combinations(members, 2):
                variables.add({a: 1, b: 1, broken: -1}, "<=", 1)
        return broken
    first, *others = (_cells(variables, rule, v) for v in rule.stages)
    for other in others:
        for g, inside in first.items():
            met = {other[g]: -1.0} if g in other else {}
            variables.add({inside: 1.0, **met, broken: -1.0}, "<=", 0)
    return broken


def budget(variables: Variables) -> Limit:
    """Σ time[o]·x[o] ≤ budget over the stages of the budget."""
    problem = variables.problem
    own = [o for v in problem.budget_stages for o in variables.options[v].tolist()]
    return Limit({variables.x[o]: int(problem.options.time[o]) for o in own}, problem.budget)


def finish(variables: Variables, edges: Sequence[EdgeColumns], latest: Ints) -> None:
    """finish[v] ≥ finish[u] + transfer(e) + time(v), and finish[v] ≥ time(v); finish[v] ≤ latest[v].

    No big M: the transfer is linear in the w. Stages with ``latest`` = ``NO_LIMIT`` get no column. Ticks are rounded
    down to a grid, and the limits are later by some of its cells: no plan in time is cut off.
    """
    problem = variables.problem
    reached = np.flatnonzero(latest < NO_LIMIT).tolist()
    last = int(latest[reached].max())
    cell = max(1, -(-last // _TIMES))
    scale = max(1.0, last // cell / LARGEST)
    spare = _SPARE if scale > 1 else 0
    end = {v: variables.column((int(latest[v]) // cell + spare) / scale) for v in reached}

    def cells(columns: Sequence[int], ticks: Sequence[int]) -> dict[int, float]:
        # Beside others that are not negative, one that comes too late may be as late as one likes.
        enough = last // cell + _SPARE + 1 if min(ticks, default=0) >= 0 else NO_LIMIT
        return {c: min(t // cell, enough) / scale for c, t in zip(columns, ticks, strict=True) if t // cell}

    def times(options: Ints) -> dict[int, float]:
        return cells([variables.x[o] for o in options.tolist()], problem.options.time[options].tolist())

    own = {v: times(variables.options[v]) for v in reached}
    for v in reached:
        variables.add({**own[v], end[v]: -1.0}, "<=", 0)
    for edge in edges:
        u, v = int(problem.edges.source[edge.terms.edge]), int(problem.edges.target[edge.terms.edge])
        if v in end:
            moved = _transfer(variables, edge)
            transfer = cells(list(moved), list(moved.values()))
            variables.add({**own[v], **transfer, end[u]: 1.0, end[v]: -1.0}, "<=", 0)


def path(variables: Variables, stages: Sequence[int], along: Sequence[EdgeColumns], latest: int) -> Limit:
    """Σ time[o]·x[o] over the stages of a path + Σ transfer(e) over its edges ≤ latest."""
    options = variables.problem.options
    terms = {variables.x[o]: int(options.time[o]) for v in stages for o in variables.options[v].tolist()}
    for edge in along:
        for column, ticks in _transfer(variables, edge).items():
            terms[column] = terms.get(column, 0) + ticks
    return Limit(terms, latest)


def _transfer(variables: Variables, edge: EdgeColumns) -> dict[int, int]:
    """Ticks of a transfer: those that an option of the source pays in any case, and those that are due."""
    fixed = zip(edge.terms.options.tolist(), edge.terms.time.tolist(), strict=True)
    return {variables.x[o]: t for o, t in fixed if t} | {d.column: d.time for d in edge.due if d.time}


def no_good(variables: Variables, options: Sequence[int]) -> None:
    """Σ x over the options ≤ their number − 1: they do not go together."""
    variables.add({variables.x[o]: 1.0 for o in options}, "<=", len(options) - 1)


def _cells(variables: Variables, rule: Affinity, stage: int) -> dict[int, int]:
    options = variables.options[stage]
    cell = cell_of(variables.problem, rule.level)[variables.problem.options.site[options]]
    return {int(g): variables.inside(stage, options[cell == g]) for g in np.unique(cell)}


def _members(variables: Variables, rule: Affinity) -> list[list[int]]:
    cells = [_cells(variables, rule, v) for v in rule.stages]
    groups = sorted({g for own in cells for g in own})
    members = [[own[g] for own in cells if g in own] for g in groups]
    return [some for some in members if len(some) > 1]
