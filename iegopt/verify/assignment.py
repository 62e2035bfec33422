"""Check of a choice of options against the arrays of a problem, in plain loops.

It shares no code with the solvers: what an edge costs, what a device holds and when a stage ends are computed
here again, one stage and one edge at a time, from the definition of the instance format.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iegopt.verify.report import Report, Violation

if TYPE_CHECKING:
    from iegopt.problem.arrays import Affinity, Problem

__all__ = ["check_assignment"]

_TICKS = 10**9
_NONE = 2**63 - 1


def check_assignment(problem: Problem, choice: Sequence[int]) -> Report:
    """Every constraint that a choice breaks, its objective and its makespan in ticks.

    Parameters
    ----------
    choice (V,)
        Index into the O options of every stage.
    """
    wrong = _outside(problem, choice)
    if wrong:
        return Report(tuple(wrong), None, None)
    chosen = [int(o) for o in choice]
    finish = _finish(problem, chosen)
    broken = [rule for rule in problem.affinities if not _holds(problem, rule, chosen)]
    found = [*_memory(problem, chosen), *_times(problem, chosen, finish)]
    for rule in broken:
        if rule.required:
            used = ", ".join(problem.topology.sites[_site(problem, chosen, v)] for v in rule.stages)
            where = ", ".join(problem.stages[v] for v in rule.stages)
            found.append(Violation("affinity", where, used, "apart" if rule.apart else "together"))
    objective = sum(int(problem.options.cost[o]) for o in chosen)
    for e in range(len(problem.edges.source)):
        objective += round(float(problem.edges.weight[e]) * _transfer(problem, e, chosen) * _TICKS)
    objective += sum(rule.penalty for rule in broken if not rule.required)
    return Report(tuple(found), objective, max(finish))


def _outside(problem: Problem, choice: Sequence[int]) -> list[Violation]:
    if len(choice) != len(problem.stages):
        return [Violation("stage", "choice", f"{len(choice)} stages", f"{len(problem.stages)}")]
    found = []
    for v, o in enumerate(choice):
        first, last = int(problem.options.ptr[v]), int(problem.options.ptr[v + 1]) - 1
        if not first <= o <= last:
            found.append(Violation("option", problem.stages[v], f"option {o}", f"{first} to {last}"))
    return found


def _memory(problem: Problem, chosen: list[int]) -> list[Violation]:
    options, topology = problem.options, problem.topology
    load = [0] * len(topology.devices)
    counted = set()
    for o in chosen:
        amount = int(options.share[o])
        key = int(options.weight_key[o])
        if key >= 0 and key not in counted:
            counted.add(key)
            amount += int(options.weight_share[o])
        site = int(options.site[o])
        for i in range(int(topology.device_ptr[site]), int(topology.device_ptr[site + 1])):
            load[int(topology.device_index[i])] += amount
    return [
        Violation("memory", device, load[d], int(problem.capacity[d]))
        for d, device in enumerate(topology.devices)
        if load[d] > int(problem.capacity[d])
    ]


def _times(problem: Problem, chosen: list[int], finish: list[int]) -> list[Violation]:
    found = []
    for v, stage in enumerate(problem.stages):
        time, sla, by = int(problem.options.time[chosen[v]]), int(problem.sla[v]), int(problem.finish_by[v])
        if time > sla:
            found.append(Violation("sla", stage, time, sla))
        if by < _NONE and finish[v] > by:
            found.append(Violation("finish_by", stage, finish[v], by))
    if problem.deadline < _NONE and max(finish) > problem.deadline:
        found.append(Violation("deadline", problem.stages[finish.index(max(finish))], max(finish), problem.deadline))
    spent = sum(int(problem.options.time[chosen[v]]) for v in problem.budget_stages)
    if spent > problem.budget:
        where = ", ".join(problem.stages[v] for v in problem.budget_stages)
        found.append(Violation("budget", where, spent, problem.budget))
    return found


def _finish(problem: Problem, chosen: list[int]) -> list[int]:
    """(V,) longest path to the end of every stage, by relaxing the edges until nothing moves."""
    times = [int(problem.options.time[o]) for o in chosen]
    edges = [
        (int(u), int(v), round(_transfer(problem, e, chosen) * _TICKS))
        for e, (u, v) in enumerate(zip(problem.edges.source, problem.edges.target, strict=True))
    ]
    finish = list(times)
    for _ in times:
        moved = False
        for u, v, transfer in edges:
            arrival = finish[u] + transfer + times[v]
            if arrival > finish[v]:
                finish[v], moved = arrival, True
        if not moved:
            break
    return finish


def _transfer(problem: Problem, e: int, chosen: list[int]) -> float:
    """Seconds of an edge: latency + (bytes/k) · seconds per byte, in this order of operations, since the last
    bit decides how a tick is rounded."""
    edges = problem.edges
    u = int(edges.source[e])
    a, b = _site(problem, chosen, u), _site(problem, chosen, int(edges.target[e]))
    if a == b:
        return 0.0
    latency, rate, shards = _link(problem, a, b)
    size = float(edges.bytes[e]) / shards
    seconds = latency + size * rate
    hidden = edges.hidden[e]
    if hidden is None:
        return seconds
    least = latency + min(float(edges.chunk[e]) / shards, size) * rate
    return max(seconds - float(hidden[chosen[u] - int(problem.options.ptr[u])]), least)


def _link(problem: Problem, a: int, b: int) -> tuple[float, float, int]:
    """Latency, seconds per byte and number of parallel shards between two different sites."""
    topology = problem.topology
    width_a = int(topology.device_ptr[a + 1] - topology.device_ptr[a])
    width_b = int(topology.device_ptr[b + 1] - topology.device_ptr[b])
    shards = width_a if topology.parallel_shards and width_a == width_b else 1
    if topology.pair_latency is not None and topology.pair_seconds_per_byte is not None:
        return float(topology.pair_latency[a, b]), float(topology.pair_seconds_per_byte[a, b]), shards
    for level in range(len(topology.group)):
        group = int(topology.group[level, a])
        if group >= 0 and group == int(topology.group[level, b]):
            return float(topology.latency[level][group]), float(topology.seconds_per_byte[level][group]), shards
    return float(topology.latency[-1][0]), float(topology.seconds_per_byte[-1][0]), shards


def _holds(problem: Problem, rule: Affinity, chosen: list[int]) -> bool:
    sites = [_site(problem, chosen, v) for v in rule.stages]
    for i, a in enumerate(sites):
        for b in sites[i + 1 :]:
            group_a = int(problem.topology.group[rule.level, a]) if rule.level >= 0 else -1
            group_b = int(problem.topology.group[rule.level, b]) if rule.level >= 0 else -1
            together = a == b or (group_a >= 0 and group_a == group_b)
            if together == rule.apart:
                return False
    return True


def _site(problem: Problem, chosen: list[int], v: int) -> int:
    return int(problem.options.site[chosen[v]])
