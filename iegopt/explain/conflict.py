"""Why no placement exists: a minimal set of conflicting constraints, in words and numbers."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.explain.core import Core, infeasible_core
from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.problem.segments import per_stage
from iegopt.problem.topology import LEVEL_NAMES
from iegopt.solvers.rules import Rule, relaxed

__all__ = ["Conflict", "describe", "find_conflict"]

Ints = npt.NDArray[np.int64]

TIME_LIMIT = 10.0
_NAMED = 4


@dataclass(frozen=True)
class Conflict:
    """One of the constraints that cannot hold together; without any one of them there is a placement.

    Attributes
    ----------
    rule
        ``options``, ``sla``, ``memory``, ``affinity``, ``finish_by``, ``deadline``, ``budget`` or ``no_overlap``. The
        memory of all devices of the set is one conflict.
    where
        The stages or devices, in words.
    requested
        The least that the stages need: seconds of their fastest options, or bytes of the stages that cannot go
        elsewhere; ``None`` where nothing is counted.
    used
        For ``memory`` the bytes that the most demanding of these stages takes of one device, else ``None``.
    capacity
        The limit that ``requested`` meets.
    unit
        ``s``, ``B`` or empty.
    minimal
        Whether it is proven that every conflict of the set is needed.
    """

    rule: str
    where: str
    requested: float | None
    used: float | None
    capacity: float | None
    unit: str
    sentence: str
    minimal: bool


def find_conflict(problem: Problem, time_limit: float | None = TIME_LIMIT) -> tuple[Conflict, ...]:
    """A minimal set of constraints that no placement keeps together.

    Empty where a placement exists, or where ``time_limit`` seconds do not tell.
    """
    core = infeasible_core(problem, time_limit)
    return () if core is None else describe(problem, core)


def describe(problem: Problem, core: Core) -> tuple[Conflict, ...]:
    """The rules of a core as conflicts, the memory of all its devices as one."""
    devices = [rule.index for rule in core.rules if rule.kind == "memory"]
    conflicts = [_single(problem, core, rule) for rule in core.rules if rule.kind != "memory"]
    if devices:
        conflicts.append(_memory(problem, core, devices))
    if core.minimal:
        return tuple(conflicts)
    caveat = " (the set may hold more than is needed: the time limit came first)"
    return tuple(dataclasses.replace(c, sentence=c.sentence + caveat) for c in conflicts)


def _single(problem: Problem, core: Core, rule: Rule) -> Conflict:
    """A rule that is not memory."""

    def conflict(where: str, sentence: str, requested: int | None = None, limit: int | None = None) -> Conflict:
        seconds = [None if ticks is None else ticks / TICKS_PER_SECOND for ticks in (requested, limit)]
        unit = "" if requested is None else "s"
        return Conflict(rule.kind, where, seconds[0], None, seconds[1], unit, sentence, core.minimal)

    options, index = problem.options, rule.index
    if rule.kind == "no_overlap":
        devices = _list(list(problem.topology.devices))
        return conflict(devices, "stages on a common device have to run one after the other")
    if rule.kind == "affinity":
        return conflict(*_affinity(problem, index))
    if rule.kind == "options":
        stage = problem.stages[index]
        return conflict(stage, f"no device and variant can run {stage} at all")
    if rule.kind == "sla":
        stage, limit = problem.stages[index], int(problem.sla[index])
        own = options.of(index)
        best, within = int(options.time[own].min()), int((options.time[own] <= limit).sum())
        tail = f"{within} of its {own.stop - own.start} options keep it" if within else "none of its options keeps it"
        sentence = f"the SLA of {stage} is {_seconds(limit)} and its fastest option takes {_seconds(best)}: {tail}"
        return conflict(stage, sentence, best, limit)
    fastest = per_stage(np.minimum, options.time, options.ptr, 0)
    if rule.kind == "budget":
        names = [problem.stages[v] for v in problem.budget_stages]
        best = int(fastest[list(problem.budget_stages)].sum())
        sentence = f"the compute budget is {_seconds(problem.budget)}; the fastest options of {_list(names)} take "
        return conflict(_list(names), sentence + _seconds(best), best, problem.budget)
    path = _paths(problem, fastest)
    if rule.kind == "deadline":
        best, limit = int(path.max()), problem.deadline
        last = problem.stages[int(path.argmax())]
        sentence = f"the deadline is {_seconds(limit)}; the longest path, to {last}, takes {_seconds(best)} at least"
        return conflict(last, f"{sentence}, transfers not counted", best, limit)
    stage, best, limit = problem.stages[index], int(path[index]), int(problem.finish_by[index])
    sentence = f"{stage} has to finish by {_seconds(limit)}; the path to its end takes {_seconds(best)} at least"
    return conflict(stage, f"{sentence}, transfers not counted", best, limit)


def _affinity(problem: Problem, index: int) -> tuple[str, str]:
    rule = problem.affinities[index]
    level = "site" if rule.level < 0 else LEVEL_NAMES[rule.level]
    names = _list([problem.stages[v] for v in rule.stages])
    return names, f"{names} have to be on {'different' if rule.apart else 'one and the same'} {level}{'s' * rule.apart}"


def _memory(problem: Problem, core: Core, devices: list[int]) -> Conflict:
    """The devices of a core together, and the stages that the other rules and the options confine to them."""
    options, topology, scale = problem.options, problem.topology, problem.memory_scale
    others = relaxed(problem, [rule for rule in core.rules if rule.kind != "memory"])
    touches = np.array([bool(np.isin(topology.devices_of(s), devices).any()) for s in range(topology.S)])
    need = options.share + np.where(options.weight_key >= 0, options.weight_share, 0)
    confined, total, largest = [], 0, 0
    for v in range(problem.V):
        own = np.flatnonzero(others.allowed[options.of(v)]) + options.ptr[v]
        if own.size and touches[options.site[own]].all():
            confined.append(problem.stages[v])
            total += int((options.share[own] * topology.width[options.site[own]]).min())
            largest = max(largest, int(need[own].min()))
    capacity = problem.capacity[devices]
    names = [topology.devices[d] for d in devices]
    free = f"{_bytes(int(capacity.sum()) / scale)} free"
    if len(devices) > 1:
        free += f" in all, {_bytes(int(capacity.max()) / scale)} at most on one"
    kind = "memory of " + (names[0] if len(names) == 1 else f"{len(names)} devices {_list(names)}")
    if not confined:
        sentence = f"{kind}: {free}, too little for what the other constraints of this set push there"
        requested = used = None
    elif problem.peak_memory:
        sentence = f"{kind}: {free}; {_list(confined)} cannot go elsewhere and hold more at some moment"
        requested, used = None, largest / scale
    else:
        needs = f"{_bytes(total / scale)} at least"
        if len(devices) > 1:
            needs += f", {_bytes(largest / scale)} of it on one device"
        verb = "need" if len(confined) > 1 else "needs"
        sentence = f"{kind}: {free}; {_list(confined)} cannot go elsewhere and {verb} {needs}"
        requested, used = total / scale, largest / scale
    return Conflict("memory", _list(names), requested, used, int(capacity.sum()) / scale, "B", sentence, core.minimal)


def _paths(
    problem: Problem, fastest: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """(V,) ticks to the end of every stage with the fastest options and no transfers."""
    finish = fastest.copy()
    edges = problem.edges
    for v in problem.order.tolist():
        before = finish[edges.source[edges.target == v]]
        finish[v] = fastest[v] + before.max(initial=0)
    return finish


def _list(names: list[str]) -> str:
    """Names in words; the middle of many is left out."""
    if len(names) > _NAMED:
        return f"{', '.join(names[:2])} … {names[-1]}"
    return " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)


def _seconds(ticks: int) -> str:
    value = ticks / TICKS_PER_SECOND
    return f"{value:.4g} s" if value >= 1 else f"{value * 1e3:.4g} ms"


def _bytes(value: float) -> str:
    for power, unit in ((1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if abs(value) >= power:
            return f"{value / power:.4g} {unit}"
    return f"{value:.4g} B"
