"""The value and the feasibility of a choice of options, for solvers (the verifier has its own).

``choice`` is (V,) option indices into the O arrays; ``start`` is (V,) ticks, part of the answer where stages must not
overlap. Without one those problems are scheduled by a list (``timetable``).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Affinity, Problem
from iegopt.problem.transfer import chosen_transfers
from iegopt.solvers.timetable import Timetable, peak_load, timetable

__all__ = ["affinity_holds", "device_load", "feasible", "finish_times", "objective", "why_infeasible"]

Ints = npt.NDArray[np.int64]


def objective(problem: Problem, choice: Ints, start: Ints | None = None) -> int:
    """Σ option costs + Σ edge costs + Σ penalties of broken preferred affinities + weighted makespan, in ticks."""
    total = int(problem.options.cost[choice].sum()) + int(chosen_transfers(problem, choice).cost.sum())
    for rule in problem.affinities:
        if not rule.required and not affinity_holds(problem, rule, choice):
            total += rule.penalty
    if problem.makespan_weight > 0:
        total += problem.makespan_cost(timetable(problem, choice, start).makespan)
    return total


def feasible(problem: Problem, choice: Ints, start: Ints | None = None) -> bool:
    """Whether a choice keeps every hard constraint."""
    return why_infeasible(problem, choice, start) is None


def why_infeasible(problem: Problem, choice: Ints, start: Ints | None = None) -> str | None:
    """The first hard constraint that a choice breaks, in words, or ``None``."""
    options = problem.options
    table = timetable(problem, choice, start) if problem.no_overlap or problem.peak_memory else None
    slow = np.flatnonzero(options.time[choice] > problem.sla)
    if slow.size:
        return f"SLA of {problem.stages[int(slow[0])]}"
    load = device_load(problem, choice) if table is None else device_load(problem, choice, table.start)
    over = np.flatnonzero(load > problem.capacity)
    if over.size:
        return f"memory of {problem.topology.devices[int(over[0])]}"
    for rule in problem.affinities:
        if rule.required and not affinity_holds(problem, rule, choice):
            return "affinity of " + ", ".join(problem.stages[v] for v in rule.stages)
    if problem.budget < NO_LIMIT and int(options.time[choice[list(problem.budget_stages)]].sum()) > problem.budget:
        return "compute budget"
    if problem.has_path_limits:
        finish = finish_times(problem, choice) if table is None else table.finish
        late = finish > np.minimum(problem.finish_by, problem.deadline)
        if late.any():
            return f"finish time of {problem.stages[int(np.flatnonzero(late)[0])]}"
    return None if table is None or start is None else _out_of_step(problem, choice, table)


def _out_of_step(problem: Problem, choice: Ints, table: Timetable) -> str | None:
    """A stage that starts before its inputs are there or while another has its device, in words, or ``None``."""
    edges, stages = problem.edges, problem.stages
    if int(table.start.min(initial=0)) < 0:
        return f"start of {stages[int(table.start.argmin())]}"
    arrival = table.finish[edges.source] + chosen_transfers(problem, choice).time
    late = np.flatnonzero(arrival > table.start[edges.target])
    if late.size:
        return f"order of {stages[edges.source[late[0]]]} and {stages[edges.target[late[0]]]}"
    running: dict[int, int] = {}
    for v in np.lexsort([table.finish, table.start]).tolist():
        if table.finish[v] == table.start[v]:
            continue
        for d in problem.topology.devices_of(int(problem.options.site[choice[v]])).tolist():
            if d in running and table.finish[running[d]] > table.start[v]:
                return f"overlap of {stages[running[d]]} and {stages[v]}"
            running[d] = v
    return None


def device_load(problem: Problem, choice: Ints, start: Ints | None = None) -> Ints:
    """(D,) memory on every device, in ``1/memory_scale`` bytes; shared weights count once per key.

    In sum, or with ``peak_memory`` at the worst moment.
    """
    if problem.peak_memory:
        return peak_load(problem, choice, timetable(problem, choice, start))
    options, topology = problem.options, problem.topology
    share = options.share[choice]
    key = options.weight_key[choice]
    if (key >= 0).any():
        # The first stage of every key brings the weights.
        _, first = np.unique(key, return_index=True)
        first = first[key[first] >= 0]
        share[first] += options.weight_share[choice[first]]
    site = options.site[choice]
    width = topology.width[site]
    # Positions of all devices of the chosen sites in ``device_index``.
    start = np.repeat(topology.device_ptr[site], width)
    within = np.arange(int(width.sum())) - np.repeat(np.cumsum(width) - width, width)
    load = np.zeros(topology.D, dtype=np.int64)
    np.add.at(load, topology.device_index[start + within], np.repeat(share, width))
    return load


def finish_times(problem: Problem, choice: Ints, start: Ints | None = None) -> Ints:
    """(V,) finish(v) = max over predecessors(finish(u) + transfer) + time, or start(v) + time, in ticks."""
    return timetable(problem, choice, start).finish


def affinity_holds(problem: Problem, rule: Affinity, choice: Ints) -> bool:
    """Whether the stages of a rule share a group of its level (or pairwise do not, where apart)."""
    group, level = problem.topology.group, rule.level
    places: set[int] = set()
    for site in problem.options.site[choice[list(rule.stages)]].tolist():
        shared = int(group[level, site]) if level >= 0 else -1
        places.add(shared if shared >= 0 else -1 - site)
    return len(places) == len(rule.stages) if rule.apart else len(places) <= 1
