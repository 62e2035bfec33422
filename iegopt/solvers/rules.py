"""The constraints of a problem as single rules that can be taken out one at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

import numpy as np

from iegopt.problem.arrays import NO_LIMIT, Problem

__all__ = ["Kind", "Rule", "relaxed", "rules_of"]

Kind = Literal["options", "sla", "memory", "affinity", "finish_by", "deadline", "budget", "no_overlap"]

_UNLIMITED = 2**61
"""Capacity of a device whose memory is no rule: above any load, with room for a sum in int64."""


@dataclass(frozen=True, order=True)
class Rule:
    """A constraint: ``index`` is a stage, for ``memory`` a device, for ``affinity`` its place in the problem."""

    kind: Kind
    index: int


def rules_of(problem: Problem) -> list[Rule]:
    """Every rule that the problem states; memory last, since there is most of it."""
    rules = [Rule("options", v) for v in np.flatnonzero(np.diff(problem.options.ptr) == 0).tolist()]
    rules += [Rule("affinity", i) for i, rule in enumerate(problem.affinities) if rule.required]
    rules += [Rule("sla", v) for v in np.flatnonzero(problem.sla < NO_LIMIT).tolist()]
    rules += [Rule("finish_by", v) for v in np.flatnonzero(problem.finish_by < NO_LIMIT).tolist()]
    rules += [Rule("deadline", 0)] if problem.deadline < NO_LIMIT else []
    rules += [Rule("budget", 0)] if problem.budget < NO_LIMIT else []
    rules += [Rule("no_overlap", 0)] if problem.no_overlap else []
    return rules + [Rule("memory", d) for d in range(problem.topology.D)]


def relaxed(problem: Problem, rules: Collection[Rule]) -> Problem:
    """The problem with these rules alone, and nothing to pay for (a stage without options stays without)."""
    kept = frozenset(rules)

    def keep(kind: Kind, count: int) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
        return np.array([Rule(kind, i) in kept for i in range(count)], dtype=np.bool_)

    return dataclasses.replace(
        problem,
        affinities=tuple(rule for i, rule in enumerate(problem.affinities) if Rule("affinity", i) in kept),
        capacity=np.where(keep("memory", problem.topology.D), problem.capacity, _UNLIMITED),
        sla=np.where(keep("sla", problem.V), problem.sla, NO_LIMIT),
        finish_by=np.where(keep("finish_by", problem.V), problem.finish_by, NO_LIMIT),
        deadline=problem.deadline if Rule("deadline", 0) in kept else NO_LIMIT,
        budget=problem.budget if Rule("budget", 0) in kept else NO_LIMIT,
        no_overlap=problem.no_overlap and Rule("no_overlap", 0) in kept,
    )
