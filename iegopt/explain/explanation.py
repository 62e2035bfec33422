"""The explanation of a plan as plain data, ready for JSON.

::

    summary     sentences
    binding     constraints with used, allowed and slack, tightest first; ``binds`` marks those that
                forbid a move which would make the plan cheaper
    stages      per stage: bottleneck, seconds by dimension, the next-best option with its cost by term
                and the reason why it lost, a cheaper one that a constraint forbids, and what was refused
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.explain.alternatives import Move, Obstacle, moves
from iegopt.plans import Plan
from iegopt.problem.arrays import TICKS_PER_SECOND
from iegopt.problem.compile import Compiled
from iegopt.problem.transfer import edge_ticks
from iegopt.solvers.evaluate import device_load, finish_times
from iegopt.spec.kinds import KINDS
from iegopt.units import BYTES, SECONDS, Dimension, render

__all__ = ["explain"]

Ints = npt.NDArray[np.int64]

_TERMS = ("L", "T", "M", "D")


def explain(compiled: Compiled, choice: Ints, plan: Plan, start: Ints | None = None) -> dict[str, Any]:
    """Explain a plan: (V,) option indices of ``compiled.problem`` and, where they are part of the plan, start ticks."""
    stages: dict[str, Any] = {}
    forbidding: set[tuple[str, str]] = set()
    for v in range(len(compiled.graph.stages)):
        best, blocked = moves(compiled, choice, v, start)
        if blocked is not None and blocked.obstacle is not None:
            forbidding.add((blocked.obstacle.rule, blocked.obstacle.where))
        stages[compiled.problem.stages[v]] = _stage(compiled, choice, start, v, best, blocked)
    rows = _binding(compiled, choice, start, forbidding)
    binding = sorted(rows, key=lambda row: row["slack"] / (row["allowed"] or 1.0))
    summary = [*_summary(plan, binding), *_assumptions(compiled, choice)]
    return {"summary": summary, "binding": binding, "stages": stages}


def _stage(
    compiled: Compiled, choice: Ints, begin: Ints | None, v: int, best: Move | None, blocked: Move | None
) -> dict[str, Any]:
    options = compiled.stages[v]
    chosen = int(compiled.kept[v][choice[v] - int(compiled.problem.options.ptr[v])])
    block = options.blocks[int(options.block[chosen])]
    expected = KINDS[compiled.graph.stages[v].type].latency_expectation
    slow = expected is not None and float(options.time[chosen]) > expected
    return {
        "bottleneck": block.cost.bottleneck,
        "terms": dict(block.cost.terms),
        "latency_expectation": expected,
        "over_expectation": slow,
        "alternative": None if best is None else _alternative(compiled, choice, begin, best),
        "forbidden": None if blocked is None else _alternative(compiled, choice, begin, blocked),
        "refused": [
            {"options": count, "reason": reason} for reason, count in sorted(options.refused.items())
        ],
    }  # fmt: skip


def _alternative(compiled: Compiled, choice: Ints, begin: Ints | None, move: Move) -> dict[str, Any]:
    problem = compiled.problem
    terms = _by_term(compiled, choice, begin, move)
    increase = move.delta / TICKS_PER_SECOND
    if move.obstacle is not None:
        why = f"would save {_s(-increase)} of weighted cost, but {_obstacle(move.obstacle)}"
    elif increase > 0:
        worse = max(_TERMS, key=lambda term: terms[term])
        better = min(_TERMS, key=lambda term: terms[term])
        why = f"costs {_s(increase)} more, most of it in {_NAMES[worse]} (+{_s(terms[worse])})"
        if terms[better] < 0:
            why += f", though {_NAMES[better]} would fall by {_s(-terms[better])}"
    else:
        why = "costs the same" if increase == 0 else f"would save {_s(-increase)}: the plan is not proven optimal"
    return {
        "site": problem.topology.sites[int(problem.options.site[move.option])],
        "variant": problem.variants[int(problem.options.variant[move.option])],
        "objective_increase": increase,
        "by_term": terms,
        "why": why,
    }


_NAMES = {"L": "latency", "T": "time under load", "M": "money", "D": "data transfer"}


def _by_term(compiled: Compiled, choice: Ints, begin: Ints | None, move: Move) -> dict[str, float]:
    """Weighted change of L, T, M and D, in seconds of objective."""
    problem, options, w = compiled.problem, compiled.stages[move.stage], compiled.weights
    start, kept = int(problem.options.ptr[move.stage]), compiled.kept[move.stage]
    old, new = int(kept[choice[move.stage] - start]), int(kept[move.option - start])
    moved = choice.copy()
    moved[move.stage] = move.option
    transfer = 0
    for e in np.flatnonzero((problem.edges.source == move.stage) | (problem.edges.target == move.stage)).tolist():
        u, v = problem.edges.source[e], problem.edges.target[e]
        transfer += int(edge_ticks(problem, e, moved[u], moved[v])[1] - edge_ticks(problem, e, choice[u], choice[v])[1])
    later = 0.0
    if w.makespan:
        later = int(finish_times(problem, moved).max() - finish_times(problem, choice, begin).max()) / TICKS_PER_SECOND
    return {
        "L": w.alpha * float(options.t0[new] - options.t0[old]) + w.makespan * later,
        "T": w.beta * float(options.time[new] - options.time[old]),
        "M": w.gamma * float(options.money[new] - options.money[old]),
        "D": transfer / TICKS_PER_SECOND,
    }


def _obstacle(found: Obstacle) -> str:
    if found.rule == "affinity":
        return f"the affinity of {found.where} forbids it"
    used, allowed = _apart(found.used, found.allowed, BYTES if found.unit == "B" else SECONDS)
    return f"{found.rule} of {found.where} would be {used}, allowed {allowed}"


def _apart(used: float, allowed: float, dimension: Dimension) -> tuple[str, str]:
    """Two quantities with four significant digits, or as many more as tell them apart."""
    for digits in (4, 8, 17):
        shown = [float(f"{value:.{digits}g}") for value in (used, allowed)]
        if shown[0] != shown[1]:
            break
    first, second = (render(round(value) if dimension is BYTES else value, dimension) for value in shown)
    return first, second


def _binding(
    compiled: Compiled, choice: Ints, start: Ints | None, forbidding: set[tuple[str, str]]
) -> Iterator[dict[str, Any]]:
    problem = compiled.problem
    options = problem.options
    load = device_load(problem, choice, start)
    for d in np.flatnonzero(load).tolist():
        name = problem.topology.devices[d]
        used, free = int(load[d]) / problem.memory_scale, int(problem.capacity[d]) / problem.memory_scale
        yield _row("memory", name, used, free, "B", forbidding)
    finish = finish_times(problem, choice, start)
    for v, stage in enumerate(compiled.graph.stages):
        if stage.latency_sla is not None:
            yield _row(
                "sla", stage.id, int(options.time[choice[v]]) / TICKS_PER_SECOND, stage.latency_sla, "s", forbidding
            )
        if stage.id in compiled.limits.finish_by:
            limit = compiled.limits.finish_by[stage.id]
            yield _row("finish_by", stage.id, int(finish[v]) / TICKS_PER_SECOND, limit, "s", forbidding)
    if compiled.limits.deadline is not None:
        last = int(np.argmax(finish))
        end = int(finish[last]) / TICKS_PER_SECOND
        yield _row("deadline", problem.stages[last], end, compiled.limits.deadline, "s", forbidding)
    if compiled.limits.budget is not None:
        members = [v for v, stage in enumerate(compiled.graph.stages) if stage.id in compiled.limits.budget_stages]
        compute = int(options.time[choice[members]].sum()) / TICKS_PER_SECOND if members else 0.0
        yield _row("budget", "max_compute_time", compute, compiled.limits.budget, "s", forbidding)
    for rule, where in sorted(forbidding):
        if rule == "affinity":
            yield {"rule": rule, "where": where, "used": 0.0, "allowed": 0.0, "slack": 0.0, "unit": "", "binds": True}


def _row(
    rule: str, where: str, used: float, allowed: float, unit: str, forbidding: set[tuple[str, str]]
) -> dict[str, Any]:
    binds = (rule, where) in forbidding
    return {
        "rule": rule, "where": where, "used": used, "allowed": allowed, "slack": allowed - used, "unit": unit,
        "binds": binds,
    }  # fmt: skip


def _summary(plan: Plan, binding: list[dict[str, Any]]) -> Iterator[str]:
    if plan.status == "optimal":
        yield f"Proven optimal by {plan.proof}."
    elif plan.gap is not None:
        yield f"Within {plan.gap:.2%} of optimal, bound by {plan.proof}."
    else:
        yield "No bound was proven."
    slowest = max(plan.stages, key=lambda stage: stage.time)
    share = slowest.time / sum(stage.time for stage in plan.stages) if slowest.time else 0.0
    yield f"{slowest.id} takes {share:.0%} of all stage time; its bottleneck on {slowest.site} is {slowest.bottleneck}."
    moved = [transfer for transfer in plan.transfers if transfer.path != "site" and transfer.bytes]
    if moved:
        widest = max(moved, key=lambda transfer: transfer.exposed)
        yield (
            f"{len(moved)} of {len(plan.transfers)} transfers leave their site; the longest exposed one is "
            f"{widest.source} to {widest.target} ({_s(widest.exposed)} over the {widest.path} link)."
        )
    binds = [f"{row['rule']} of {row['where']}" for row in binding if row["binds"]]
    if binds:
        yield f"Cheaper moves are forbidden by {', '.join(binds)}."
    if plan.tier not in (None, "preferred"):
        yield f"No feasible plan on the preferred device: the fallback step {plan.tier} was opened."


def _assumptions(compiled: Compiled, choice: Ints) -> Iterator[str]:
    """What the plan takes for granted because the cluster does not say it."""
    taken: dict[str, set[str]] = {}
    for v, options in enumerate(compiled.stages):
        i = int(compiled.kept[v][choice[v] - int(compiled.problem.options.ptr[v])])
        block = options.blocks[int(options.block[i])]
        first = compiled.cluster.devices[int(compiled.table.topology.devices_of(int(options.site[i]))[0])]
        if block.weight_bytes and first.kind.resident is None:
            taken.setdefault(block.candidate.name, set()).add(compiled.table.topology.sites[int(options.site[i])])
    for name, sites in taken.items():
        where = ", ".join(sorted(sites))
        yield f"{name} is taken to be deployed on {where}, because the cluster does not say what is resident there."


def _s(seconds: float) -> str:
    """Seconds with three significant digits."""
    return render(float(f"{seconds:.3g}"), SECONDS)
