"""Brute force: the oracle that every other solver is tested against.

Every combination of options is priced and checked in blocks of rows, with no pruning at all; the winner is
evaluated once more by ``evaluate``. What depends on when stages run is tried row by row, every order of the stages
where they must not overlap (``brute_orders``).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import numpy.typing as npt

from iegopt.errors import InternalError
from iegopt.problem.arrays import NO_LIMIT, Affinity, Problem
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers import evaluate
from iegopt.solvers.brute_orders import best_start
from iegopt.solvers.result import Params, Result, Status

__all__ = ["MAX_COMBINATIONS", "Brute", "enumeration_seconds"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

MAX_COMBINATIONS = 2_000_000
MAX_SCHEDULES = 20_000_000
_BLOCK = 1 << 15
_ROW_NEEDS, _TIMED_NEEDS = 2.5e-6, 5e-5
"""Seconds per stage of a combination that is checked in a block, and of a schedule, as measured on a server's core."""


class Brute:
    """Enumeration of all combinations, at most ``MAX_COMBINATIONS``."""

    name = "brute"
    exact = True

    def supports(self, problem: Problem) -> str | None:
        count = _combinations(problem)
        if problem.no_overlap:
            schedules = count * math.factorial(min(problem.V, 20)) ** (1 + problem.peak_memory)
            if schedules > MAX_SCHEDULES:
                return f"{_told(schedules)} schedules, more than {MAX_SCHEDULES:,}"
        return None if count <= MAX_COMBINATIONS else f"{_told(count)} combinations, more than {MAX_COMBINATIONS:,}"

    def solve(self, problem: Problem, params: Params, hint: Ints | None) -> Result:
        start = time.perf_counter()
        best: int | None = None
        choice = begin = None
        stopped = False
        for rows in _blocks(problem):
            if params.time_limit is not None and time.perf_counter() - start > params.time_limit:
                stopped = True
                break
            if problem.no_overlap or problem.peak_memory:
                found = _best_timed(problem, rows, best)
                if found is not None:
                    best, choice, begin = found
                continue
            values = np.where(_feasible(problem, rows), _objective(problem, rows), NO_LIMIT)
            row = int(values.argmin())
            if values[row] < (NO_LIMIT if best is None else best):
                best, choice = int(values[row]), rows[row]
        if choice is not None:
            value, broken = evaluate.objective(problem, choice, begin), evaluate.why_infeasible(problem, choice, begin)
            if value != best or broken is not None:
                raise InternalError(f"brute prices {choice.tolist()} at {best}, evaluate at {value}, {broken}")
        status = Status.UNKNOWN if stopped else Status.INFEASIBLE
        if choice is not None:
            status = Status.FEASIBLE if stopped else Status.OPTIMAL
        return Result(
            status=status,
            choice=choice,
            objective=best,
            bound=None if stopped else best,
            proof=None if stopped else "enumeration",
            solver=self.name,
            seconds=time.perf_counter() - start,
            note="stopped by the time limit" if stopped else f"all {_combinations(problem)} combinations tried",
            start=begin,
        )


def enumeration_seconds(problem: Problem, mask: Bools) -> float:
    """About the time that trying all combinations of the options in a mask (O,) takes."""
    combinations = math.prod(np.bincount(problem.options.stage[mask], minlength=problem.V).tolist())
    schedules = math.factorial(min(problem.V, 20)) ** (1 + problem.peak_memory) if problem.no_overlap else 1
    each = _TIMED_NEEDS * schedules if problem.no_overlap or problem.peak_memory else _ROW_NEEDS
    return float(min(combinations, 10**18)) * problem.V * each


def _best_timed(problem: Problem, rows: Ints, best: int | None) -> tuple[int, Ints, Ints | None] | None:
    """The best row under ``best``, where overlaps or the peak of memory matter: its value, itself, its start times."""
    found: tuple[int, Ints, Ints | None] | None = None
    values = _objective(problem, rows)
    untimed = values - _makespan_cost(problem, rows) if problem.makespan_weight > 0 else values
    for i in np.flatnonzero(_feasible(problem, rows)).tolist():
        if best is not None and values[i] >= best:
            continue
        row, value, start = rows[i], int(values[i]), None
        if problem.no_overlap:
            scheduled = best_start(problem, row)
            if scheduled is None:
                continue
            value, start = int(untimed[i]) + problem.makespan_cost(scheduled[0]), scheduled[1]
        elif not evaluate.feasible(problem, row):
            continue
        if best is None or value < best:
            best, found = value, (value, row, start)
    return found


def _makespan_cost(problem: Problem, rows: Ints) -> Ints:
    """(n,) weighted ends of the last stages, each stage as soon as its inputs are there."""
    ends = _finish(problem, rows, problem.options.time[rows]).max(axis=1)
    return np.array([problem.makespan_cost(end) for end in ends.tolist()], dtype=np.int64)


def _told(count: int) -> str:
    """Three digits of a number that may be too large for a float."""
    return f"{Decimal(count):.2e}"


def _combinations(problem: Problem) -> int:
    return math.prod(np.diff(problem.options.ptr).tolist())


def _blocks(problem: Problem) -> Iterator[Ints]:
    """(n, V) choices: numbers in the mixed radix of the option counts."""
    counts = np.diff(problem.options.ptr)
    total = _combinations(problem)
    for start in range(0, total, _BLOCK):
        number = np.arange(start, min(start + _BLOCK, total))
        rows = np.empty((len(number), problem.V), dtype=np.int64)
        for v in reversed(range(problem.V)):
            number, digit = np.divmod(number, counts[v])
            rows[:, v] = problem.options.ptr[v] + digit
        yield rows


def _objective(problem: Problem, rows: Ints) -> Ints:
    """(n,) ticks."""
    edges = problem.edges
    total: Ints = problem.options.cost[rows].sum(axis=1)
    for e in range(problem.E):
        total += edge_ticks(problem, e, rows[:, edges.source[e]], rows[:, edges.target[e]])[1]
    for rule in problem.affinities:
        if not rule.required:
            total += np.where(_holds(problem, rule, rows), 0, rule.penalty)
    if problem.makespan_weight > 0:
        total += _makespan_cost(problem, rows)
    return total


def _feasible(problem: Problem, rows: Ints) -> Bools:
    """(n,) whether every hard constraint holds."""
    times = problem.options.time[rows]
    good: Bools = np.asarray((times <= problem.sla).all(axis=1))
    if not problem.peak_memory:
        good &= (_load(problem, rows) <= problem.capacity).all(axis=1)
    for rule in problem.affinities:
        if rule.required:
            good &= _holds(problem, rule, rows)
    good &= times[:, list(problem.budget_stages)].sum(axis=1) <= problem.budget
    good &= (_finish(problem, rows, times) <= np.minimum(problem.finish_by, problem.deadline)).all(axis=1)
    return good


def _load(problem: Problem, rows: Ints) -> Ints:
    """(n, D) memory, shared weights once per key."""
    options, topology = problem.options, problem.topology
    lies_on = np.zeros((topology.S, topology.D), dtype=np.int64)
    lies_on[np.repeat(np.arange(topology.S), topology.width), topology.device_index] = 1
    load = np.zeros((len(rows), topology.D), dtype=np.int64)
    for v in range(problem.V):
        load += options.share[rows[:, v], None] * lies_on[options.site[rows[:, v]]]
    keys = options.weight_key[rows]
    for key in np.unique(keys[keys >= 0]).tolist():
        o = int(np.flatnonzero(options.weight_key == key)[0])
        load += (keys == key).any(axis=1)[:, None] * options.weight_share[o] * lies_on[options.site[o]]
    return load


def _finish(problem: Problem, rows: Ints, times: Ints) -> Ints:
    """(n, V) finish times along the DAG."""
    edges = problem.edges
    finish = np.zeros_like(times)
    for v in problem.order.tolist():
        for e in np.flatnonzero(edges.target == v).tolist():
            u = int(edges.source[e])
            arrival = finish[:, u] + edge_ticks(problem, e, rows[:, u], rows[:, v])[0]
            finish[:, v] = np.maximum(finish[:, v], arrival)
        finish[:, v] += times[:, v]
    return finish


def _holds(problem: Problem, rule: Affinity, rows: Ints) -> Bools:
    """(n,) whether an affinity holds: all pairs together, or none where apart."""
    sites = problem.options.site[rows[:, list(rule.stages)]]
    holds = np.ones(len(rows), dtype=np.bool_)
    for i in range(len(rule.stages)):
        for j in range(i):
            together = sites[:, i] == sites[:, j]
            if rule.level >= 0:
                group = problem.topology.group[rule.level][sites]
                together = together | ((group[:, i] == group[:, j]) & (group[:, i] >= 0))
            holds &= together != rule.apart
    return holds
