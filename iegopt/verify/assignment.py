"""Check of a choice of options against the arrays of a problem, in plain loops.

It shares no code with the solvers: what an edge costs, what a device holds and when a stage ends are computed
here again, one stage and one edge at a time, from the definition of the instance format. Where ``sound.py`` is loaded,
its compiled loops come first; what they find wrong, and what they do not know, is checked here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from iegopt.verify.report import Report, Violation

if TYPE_CHECKING:
    from iegopt.problem.arrays import Affinity, Problem
    from iegopt.problem.topology import Topology

__all__ = ["check_assignment", "quicken", "quickened"]

_TICKS = 10**9
_NONE = 2**63 - 1
_NOTHING, _NO_PAIRS = np.zeros(0, dtype=np.int64), (np.zeros((0, 0)), np.zeros((0, 0)))
_NO_RULES = np.zeros(1, dtype=np.int64), _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING

_sound: Callable[..., tuple[bool, int, int]] | None = None


def quicken(sound: Callable[..., tuple[bool, int, int]] | None) -> None:
    """Look by ``sound.sound`` first from now on, or by nothing."""
    global _sound
    _sound = sound


def quickened(problem: Problem) -> bool:
    """Whether ``sound.sound`` looks first: stages start with their inputs, and no producer hides a transfer."""
    timed = problem.no_overlap or problem.peak_memory
    return _sound is not None and not timed and all(hidden is None for hidden in problem.edges.hidden)


def check_assignment(problem: Problem, choice: Sequence[int], start: Sequence[int] | None = None) -> Report:
    """Every constraint that a choice breaks, its objective and its makespan in ticks.

    Parameters
    ----------
    choice (V,)
        Index into the O options of every stage.
    start (V,)
        Ticks; wanted where stages must not overlap, and there alone.
    """
    if _sound is not None and start is None and 0 < len(choice) == len(problem.stages) and quickened(problem):
        ok, objective, makespan = _sound(*_arrays(problem), np.array(choice))
        if ok:
            return Report((), objective, makespan)
    wrong = _outside(problem, choice) or _start_missing(problem, start)
    if wrong:
        return Report(tuple(wrong), None, None)
    chosen = [int(o) for o in choice]
    times: list[int] = problem.options.time[chosen].tolist()
    moved = _transfers(problem, chosen)
    arrive = [round(seconds * _TICKS) for seconds in moved]
    found = []
    if start is None:
        finish = _finish(problem, times, arrive)
        begin = [end - time for end, time in zip(finish, times, strict=True)]
    else:
        begin = [int(at) for at in start]
        finish = [at + time for at, time in zip(begin, times, strict=True)]
        found += [*_order(problem, arrive, begin, finish), *_overlaps(problem, chosen, begin, finish)]
    broken = [rule for rule in problem.affinities if not _holds(problem, rule, chosen)]
    found += _peak_memory(problem, chosen, begin, finish) if problem.peak_memory else _memory(problem, chosen)
    found += _times(problem, times, finish)
    for rule in broken:
        if rule.required:
            used = ", ".join(problem.topology.sites[_site(problem, chosen, v)] for v in rule.stages)
            where = ", ".join(problem.stages[v] for v in rule.stages)
            found.append(Violation("affinity", where, used, "apart" if rule.apart else "together"))
    objective = sum(problem.options.cost[chosen].tolist())
    for weight, seconds in zip(problem.edges.weight.tolist(), moved, strict=True):
        objective += round(weight * seconds * _TICKS)
    objective += sum(rule.penalty for rule in broken if not rule.required)
    if problem.makespan_weight > 0:
        millionths = round(problem.makespan_weight * 1_000_000) * max(finish)
        objective += millionths // 1_000_000 + (1 if millionths % 1_000_000 else 0)
    return Report(tuple(found), objective, max(finish))


def _arrays(problem: Problem) -> tuple[Any, ...]:
    """What ``sound.sound`` takes of a problem."""
    options, edges, topology = problem.options, problem.edges, problem.topology
    pair_latency, pair_rate = topology.pair_latency, topology.pair_seconds_per_byte
    pairs = _NO_PAIRS
    if pair_latency is not None and pair_rate is not None:
        pairs = np.ascontiguousarray(pair_latency), np.ascontiguousarray(pair_rate)
    rules = problem.affinities
    members = [np.array(rule.stages, dtype=np.int64) for rule in rules]
    return (
        (
            options.ptr, options.site, options.cost, options.time, options.share, options.weight_key,
            options.weight_share,
        ),
        problem.capacity, (problem.sla, problem.finish_by),
        (problem.deadline, problem.budget, round(problem.makespan_weight * 1_000_000)),
        np.array(problem.budget_stages, dtype=np.int64),
        (topology.device_ptr, topology.device_index), np.ascontiguousarray(topology.group), topology.latency,
        topology.seconds_per_byte, pairs, topology.parallel_shards, (edges.source, edges.target),
        (edges.weight, edges.bytes),
        (
            np.cumsum([0, *map(len, members)]), np.concatenate([_NOTHING, *members]),
            *(np.array(column, dtype=np.int64) for column in (
                [rule.level for rule in rules], [rule.apart for rule in rules], [rule.required for rule in rules],
                [rule.penalty for rule in rules],
            )),
        ) if rules else _NO_RULES,
    )  # fmt: skip


def _outside(problem: Problem, choice: Sequence[int]) -> list[Violation]:
    if len(choice) != len(problem.stages):
        return [Violation("stage", "choice", f"{len(choice)} stages", f"{len(problem.stages)}")]
    found = []
    ptr = problem.options.ptr.tolist()
    for v, o in enumerate(choice):
        if not ptr[v] <= o < ptr[v + 1]:
            found.append(Violation("option", problem.stages[v], f"option {o}", f"{ptr[v]} to {ptr[v + 1] - 1}"))
    return found


def _start_missing(problem: Problem, start: Sequence[int] | None) -> list[Violation]:
    if problem.no_overlap and (start is None or len(start) != len(problem.stages)):
        return [Violation("start", "choice", "none" if start is None else f"{len(start)} stages", "every stage's")]
    if start is not None and not problem.no_overlap:
        return [Violation("start", "choice", "chosen", "as soon as possible")]
    return []


def _order(problem: Problem, arrive: list[int], start: list[int], finish: list[int]) -> list[Violation]:
    """Stages that start before the beginning, or before an input has arrived."""
    found = [Violation("start", problem.stages[v], at, 0) for v, at in enumerate(start) if at < 0]
    for e, (u, v) in enumerate(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), strict=True)):
        arrival = finish[u] + arrive[e]
        if start[v] < arrival:
            found.append(Violation("order", f"{problem.stages[u]} -> {problem.stages[v]}", start[v], arrival))
    return found


def _overlaps(problem: Problem, chosen: list[int], start: list[int], finish: list[int]) -> list[Violation]:
    """Pairs of stages that run at one moment on one device."""
    on: dict[int, list[int]] = {}
    for v, devices in enumerate(_devices(problem, chosen)):
        if start[v] < finish[v]:
            for d in devices:
                on.setdefault(d, []).append(v)
    pairs = []
    for d, stages in on.items():
        running: list[int] = []
        for v in sorted(stages, key=start.__getitem__):
            running = [u for u in running if finish[u] > start[v]]
            pairs += [(max(u, v), min(u, v), d) for u in running]
            running.append(v)
    found = []
    for u, v, d in sorted(pairs):
        pair = f"{problem.stages[v]}, {problem.stages[u]} on {problem.topology.devices[d]}"
        found.append(Violation("no_overlap", pair, min(finish[v], finish[u]) - max(start[v], start[u]), 0))
    return found


def _devices(problem: Problem, chosen: list[int]) -> list[list[int]]:
    """(V,) the devices of every stage."""
    topology, site = problem.topology, problem.options.site[chosen]
    spans = zip(topology.device_ptr[site].tolist(), topology.device_ptr[site + 1].tolist(), strict=True)
    return [topology.device_index[begin:end].tolist() for begin, end in spans]


def _peak_memory(problem: Problem, chosen: list[int], start: list[int], finish: list[int]) -> list[Violation]:
    """Devices that hold too much at some moment, or that a stage alone does not fit, whatever time it takes."""
    options, edges, stages = problem.options, problem.edges, range(len(chosen))
    inner = [
        (e, int(u), int(v))
        for e, (u, v) in enumerate(zip(edges.source, edges.target, strict=True))
        if _site(problem, chosen, int(u)) == _site(problem, chosen, int(v))
    ]
    release = list(finish)
    for e, u, v in inner:
        if not edges.kind or edges.kind[e] != "control":
            release[u] = max(release[u], finish[v])
    one_copy: list[tuple[int, int, int]] = []
    if options.kv_share is not None and edges.hands_on is not None:
        for e, u, v in inner:
            if edges.hands_on[e]:
                one_copy.append((u, v, min(int(options.kv_share[chosen[u]]), int(options.kv_share[chosen[v]]))))
    found = []
    on = _devices(problem, chosen)
    for d in sorted({d for devices in on for d in devices}):
        device = problem.topology.devices[d]
        here = [v for v in stages if d in on[v]]
        keys = {int(options.weight_key[chosen[v]]): int(options.weight_share[chosen[v]]) for v in here}
        fixed = sum(size for key, size in keys.items() if key >= 0)
        worst = fixed
        for v in here:
            brought = int(options.weight_share[chosen[v]]) if options.weight_key[chosen[v]] >= 0 else 0
            worst = max(worst, int(options.share[chosen[v]]) + brought)
        for moment in {start[v] for v in here} | {release[v] for v in here}:
            held = [v for v in here if start[v] <= moment < release[v]]
            load = fixed + sum(int(options.share[chosen[v]]) for v in held)
            load -= sum(both for u, v, both in one_copy if v in held and moment < release[u])
            worst = max(worst, load)
        if worst > int(problem.capacity[d]):
            found.append(Violation("memory", device, worst, int(problem.capacity[d])))
    return found


def _memory(problem: Problem, chosen: list[int]) -> list[Violation]:
    options, topology = problem.options, problem.topology
    load: dict[int, int] = {}
    counted = set()
    figures = (column[chosen].tolist() for column in (options.share, options.weight_key))
    for o, amount, key, devices in zip(chosen, *figures, _devices(problem, chosen), strict=True):
        if key >= 0 and key not in counted:
            counted.add(key)
            amount += int(options.weight_share[o])
        for device in devices:
            load[device] = load.get(device, 0) + amount
    return [
        Violation("memory", topology.devices[d], used, room)
        for d, used in sorted(load.items())
        if used > (room := int(problem.capacity[d]))
    ]


def _times(problem: Problem, times: list[int], finish: list[int]) -> list[Violation]:
    found = []
    slas, limits = problem.sla.tolist(), problem.finish_by.tolist()
    for v, stage in enumerate(problem.stages):
        sla, by = slas[v], limits[v]
        if times[v] > sla:
            found.append(Violation("sla", stage, times[v], sla))
        if by < _NONE and finish[v] > by:
            found.append(Violation("finish_by", stage, finish[v], by))
    if problem.deadline < _NONE and max(finish) > problem.deadline:
        found.append(Violation("deadline", problem.stages[finish.index(max(finish))], max(finish), problem.deadline))
    spent = sum(times[v] for v in problem.budget_stages)
    if spent > problem.budget:
        where = ", ".join(problem.stages[v] for v in problem.budget_stages)
        found.append(Violation("budget", where, spent, problem.budget))
    return found


def _finish(problem: Problem, times: list[int], arrive: list[int]) -> list[int]:
    """(V,) longest path to the end of every stage, by relaxing the edges until nothing moves."""
    edges = list(zip(problem.edges.source.tolist(), problem.edges.target.tolist(), arrive, strict=True))
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


def _transfers(problem: Problem, chosen: list[int]) -> list[float]:
    """(E,) seconds of every edge: latency + (bytes/k) · seconds per byte, in this order of operations, since the last
    bit decides how a tick is rounded."""
    edges, topology = problem.edges, problem.topology
    sites: list[int] = problem.options.site[chosen].tolist()
    groups: list[list[int]] = topology.group[:, sites].T.tolist()
    ends = zip(edges.source.tolist(), edges.target.tolist(), edges.bytes.tolist(), edges.chunk.tolist(), strict=True)
    found = []
    for (u, v, size, chunk), hidden in zip(ends, edges.hidden, strict=True):
        a, b = sites[u], sites[v]
        if a == b:
            found.append(0.0)
            continue
        latency, rate = _link(topology, a, b, groups[u], groups[v])
        shards = _shards(topology, a, b) if topology.parallel_shards else 1
        seconds = latency + size / shards * rate
        if hidden is not None:
            least = latency + min(chunk / shards, size / shards) * rate
            seconds = max(seconds - float(hidden[chosen[u] - int(problem.options.ptr[u])]), least)
        found.append(seconds)
    return found


def _link(topology: Topology, a: int, b: int, above_a: list[int], above_b: list[int]) -> tuple[float, float]:
    """Latency and seconds per byte between two different sites, with the groups of each."""
    if topology.pair_latency is not None and topology.pair_seconds_per_byte is not None:
        return float(topology.pair_latency[a, b]), float(topology.pair_seconds_per_byte[a, b])
    for level, (group, other) in enumerate(zip(above_a, above_b, strict=True)):
        if group >= 0 and group == other:
            return float(topology.latency[level][group]), float(topology.seconds_per_byte[level][group])
    return float(topology.latency[-1][0]), float(topology.seconds_per_byte[-1][0])


def _shards(topology: Topology, a: int, b: int) -> int:
    """How many shards move in parallel between two sites: the devices of gangs of one size."""
    width_a = int(topology.device_ptr[a + 1] - topology.device_ptr[a])
    width_b = int(topology.device_ptr[b + 1] - topology.device_ptr[b])
    return width_a if width_a == width_b else 1


def _holds(problem: Problem, rule: Affinity, chosen: list[int]) -> bool:
    places = set()
    for v in rule.stages:
        site = _site(problem, chosen, v)
        group = int(problem.topology.group[rule.level, site]) if rule.level >= 0 else -1
        places.add(("group", group) if group >= 0 else ("site", site))
    return len(places) == len(rule.stages) if rule.apart else len(places) <= 1


def _site(problem: Problem, chosen: list[int], v: int) -> int:
    return int(problem.options.site[chosen[v]])
