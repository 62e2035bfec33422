"""A minimal set of rules that cannot hold together: an irreducible infeasible subset.

Two steps. First some infeasible set of few rules: where one stage has no option left, the rules that block its
options, in plain loops; else the core that CP-SAT returns for one assumption literal per rule. Then a deletion
filter (Chinneck 2008, section 6.2.1): each rule is left out in turn and stays out if the rest is still infeasible. What
remains is irreducible: without any one of its rules there is a placement. Cores are claims; the filter
begins with all rules where a core turns out to be feasible.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.evaluate import feasible
from iegopt.solvers.rules import Rule, relaxed, rules_of

__all__ = ["Core", "infeasible_core"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Core:
    """Rules that conflict; ``minimal`` says whether it is proven that each of them is needed."""

    rules: tuple[Rule, ...]
    minimal: bool


def infeasible_core(problem: Problem, time_limit: float | None = None) -> Core | None:
    """A minimal conflict, or ``None`` where a placement exists or nothing is decided in ``time_limit`` seconds."""
    until = None if time_limit is None else time.monotonic() + time_limit
    empty = [rule for rule in rules_of(problem) if rule.kind == "options"]
    if empty:
        return Core((empty[0],), True)
    start = _blocked_stage(problem)
    if start is None:
        start = _assumption_core(problem, until)
    if start is None or not _infeasible(problem, start, until):
        start = rules_of(problem)
        if not _infeasible(problem, start, until):
            return None
    return _reduced(problem, start, until)


def _reduced(problem: Problem, rules: list[Rule], until: float | None) -> Core:
    """The deletion filter."""
    kept, minimal = list(rules), True
    for rule in rules:
        rest = [other for other in kept if other != rule]
        without = _infeasible(problem, rest, until)
        if without:
            kept = rest
        minimal &= without is not None
    return Core(tuple(sorted(kept)), minimal)


def _infeasible(problem: Problem, rules: list[Rule], until: float | None) -> bool | None:
    """Whether these rules alone are infeasible; ``None`` where the time does not suffice."""
    part = relaxed(problem, rules)
    count = np.bincount(part.options.stage[part.allowed], minlength=part.V)
    if not count.all():
        return True
    if feasible(part, _unconfined(part)):
        return False
    from iegopt.solvers.cpsat.solver import satisfiable

    left = None if until is None else until - time.monotonic()
    if left is not None and left <= 0:
        return None
    possible = satisfiable(part, left)
    return None if possible is None else not possible


def _unconfined(problem: Problem) -> Ints:
    """Per stage an allowed option on the largest devices, the fastest of them: feasible where few rules are left."""
    options = problem.options
    room = problem.topology.tightest(problem.capacity)[options.site]
    order = np.lexsort([options.time, -room, ~problem.allowed, options.stage])
    choice: Ints = order[options.ptr[:-1]]
    return choice


def _blocked_stage(problem: Problem) -> list[Rule] | None:
    """For a stage whose every option breaks a rule by itself: few such rules, none of them idle; else ``None``."""
    options = problem.options
    found = []
    for v in range(problem.V):
        own = options.of(v)
        if problem.allowed[own].any():
            continue
        broken = _broken_alone(problem, v)
        times_blocked = np.sum(list(broken.values()), axis=0)
        for rule, blocks in sorted(broken.items(), key=lambda item: int(item[1].sum())):
            if (times_blocked[blocks] > 1).all():
                times_blocked -= blocks
                del broken[rule]
        found.append(list(broken))
    return min(found, key=len) if found else None


def _broken_alone(problem: Problem, stage: int) -> dict[Rule, Bools]:
    """Rule → which options of a stage break it whatever the other stages do."""
    options, topology = problem.options, problem.topology
    own = options.of(stage)
    time_ = options.time[own]
    broken = {
        Rule("sla", stage): time_ > problem.sla[stage],
        Rule("finish_by", stage): time_ > problem.finish_by[stage],
        Rule("deadline", 0): time_ > problem.deadline,
    }
    need = options.share[own] + np.where(options.weight_key[own] >= 0, options.weight_share[own], 0)
    for i, site in enumerate(options.site[own].tolist()):
        for d in topology.devices_of(site).tolist():
            if need[i] > problem.capacity[d]:
                broken.setdefault(Rule("memory", d), np.zeros(len(need), dtype=np.bool_))[i] = True
    return {rule: blocks for rule, blocks in broken.items() if blocks.any()}


def _assumption_core(problem: Problem, until: float | None) -> list[Rule] | None:
    """CP-SAT's core over one enforcement literal per rule; ``None`` without one."""
    from iegopt.solvers.cpsat.assumptions import core

    left = None if until is None else max(0.0, until - time.monotonic())
    return core(problem, left)
