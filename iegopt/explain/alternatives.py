"""Per stage, what else there was: the next-best device and why it lost, and what forbade a better one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.problem.compile import Compiled
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.evaluate import affinity_holds, device_load, feasible, finish_times, objective

__all__ = ["Move", "Obstacle", "moves", "obstacle"]

Ints = npt.NDArray[np.int64]

_TRIED = 64
"""Moves of a stage that are looked at, cheapest first; a plan's explanation stays in the milliseconds."""


@dataclass(frozen=True)
class Obstacle:
    """The constraint that forbids a move, with its numbers in seconds or bytes."""

    rule: str
    where: str
    used: float
    allowed: float
    unit: str


@dataclass(frozen=True)
class Move:
    """Another option for one stage, all others as planned; ``delta`` is ticks of objective."""

    stage: int
    option: int
    delta: int
    obstacle: Obstacle | None


def moves(compiled: Compiled, choice: Ints, stage: int, start: Ints | None = None) -> tuple[Move | None, Move | None]:
    """The best feasible move of a stage to another site, and the best forbidden one that would be cheaper.

    ``start`` (V,) are the plan's own ticks, where it has any. ``None`` where there is none among the cheapest moves.
    """
    problem = compiled.problem
    span = problem.options.of(stage)
    candidates = np.arange(span.start, span.stop)
    candidates = candidates[problem.options.site[candidates] != problem.options.site[choice[stage]]]
    if not candidates.size:
        return None, None
    delta = _deltas(problem, choice, stage, candidates)
    if problem.makespan_weight > 0:
        candidates, delta = _with_makespan(problem, choice, start, stage, candidates, delta)
    best: Move | None = None
    blocked: Move | None = None
    for i in np.argsort(delta, kind="stable")[:_TRIED]:
        moved = choice.copy()
        moved[stage] = candidates[i]
        if feasible(problem, moved):
            best = Move(stage, int(candidates[i]), int(delta[i]), None)
            break
        if blocked is None and delta[i] < 0:
            blocked = Move(stage, int(candidates[i]), int(delta[i]), obstacle(problem, moved, stage))
    return best, blocked


def _deltas(problem: Problem, choice: Ints, stage: int, candidates: Ints) -> Ints:
    """(n,) change of the objective for every candidate of a stage."""
    delta = problem.options.cost[candidates] - problem.options.cost[choice[stage]]
    for e in range(problem.E):
        u, v = int(problem.edges.source[e]), int(problem.edges.target[e])
        if stage == u:
            there = edge_ticks(problem, e, candidates, choice[v])[1]
            delta = delta + there - edge_ticks(problem, e, choice[u], choice[v])[1]
        elif stage == v:
            there = edge_ticks(problem, e, choice[u], candidates)[1]
            delta = delta + there - edge_ticks(problem, e, choice[u], choice[v])[1]
    for rule in problem.affinities:
        if not rule.required and stage in rule.stages:
            now = affinity_holds(problem, rule, choice)
            moved = np.tile(choice, (len(candidates), 1))
            moved[:, stage] = candidates
            then = np.array([affinity_holds(problem, rule, row) for row in moved])
            delta = delta + (int(now) - then.astype(np.int64)) * rule.penalty
    return np.asarray(delta, dtype=np.int64)


def _with_makespan(
    problem: Problem, choice: Ints, start: Ints | None, stage: int, candidates: Ints, delta: Ints
) -> tuple[Ints, Ints]:
    """The candidates that look best with their own time counted, and what each really adds to the objective."""
    slower = problem.options.time[candidates] - problem.options.time[choice[stage]]
    rough = delta + problem.makespan_millionths / 10**6 * slower
    candidates = candidates[np.argsort(rough, kind="stable")[:_TRIED]]
    now = objective(problem, choice, start)
    moved = np.tile(choice, (len(candidates), 1))
    moved[:, stage] = candidates
    return candidates, np.array([objective(problem, row) - now for row in moved], dtype=np.int64)


def obstacle(problem: Problem, choice: Ints, stage: int) -> Obstacle:
    """The first constraint that an infeasible choice breaks, the moved stage's own first."""
    time = int(problem.options.time[choice[stage]])
    if time > problem.sla[stage]:
        return _seconds("sla", problem.stages[stage], time, int(problem.sla[stage]))
    load = device_load(problem, choice)
    over = np.flatnonzero(load > problem.capacity)
    if over.size:
        d, scale = int(over[0]), problem.memory_scale
        return Obstacle(
            "memory", problem.topology.devices[d], int(load[d]) / scale, int(problem.capacity[d]) / scale, "B"
        )
    for rule in problem.affinities:
        if rule.required and not affinity_holds(problem, rule, choice):
            return Obstacle("affinity", ", ".join(problem.stages[v] for v in rule.stages), 1, 0, "")
    if problem.budget < NO_LIMIT:
        used = int(problem.options.time[choice[list(problem.budget_stages)]].sum())
        if used > problem.budget:
            return _seconds("budget", "max_compute_time", used, problem.budget)
    finish = finish_times(problem, choice)
    limit = np.minimum(problem.finish_by, problem.deadline)
    late = int(np.argmax(finish - np.minimum(limit, NO_LIMIT // 2)))
    rule_name = "deadline" if limit[late] == problem.deadline else "finish_by"
    return _seconds(rule_name, problem.stages[late], int(finish[late]), int(limit[late]))


def _seconds(rule: str, where: str, used: int, allowed: int) -> Obstacle:
    return Obstacle(rule, where, used / TICKS_PER_SECOND, allowed / TICKS_PER_SECOND, "s")
