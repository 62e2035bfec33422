"""Pairs of stages that something couples: every edge of the graph, and the pairs of the affinities.

An affinity of two stages is a cost of their pair of sites and so goes with the messages like an edge: over the
edge between them where there is one, else over a pair of its own. One of k > 2 stages becomes pairs: ``apart`` all of
them, together those of its first stage with the others. A required one makes a pair that breaks it unreachable, which
is all it says. A preferred one puts an equal part of its penalty on every pair: a plan that breaks it breaks at least
one pair and pays no more than the penalty, so that the pairs are a lower bound, exact for two stages.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Affinity, Problem
from iegopt.problem.topology import WAN, Topology
from iegopt.problem.transfer import time_ticks
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.relaxation import Forest, kruskal, spanning_forest
from iegopt.solvers.exact.site_tree import SiteTree

__all__ = [
    "Coupling", "broken_pairs", "broken_per_level", "charged_pairs", "coupling_count", "coupling_forest", "couplings",
    "pairs_of", "pairs_of_rules",
]  # fmt: skip

Ints = npt.NDArray[np.int64]

_kept: WeakKeyDictionary[Problem, tuple[Coupling, ...]] = WeakKeyDictionary()
_kept_pairs: WeakKeyDictionary[Problem, tuple[Ints, Ints]] = WeakKeyDictionary()
_NONE = np.zeros(0, dtype=np.int64)


@dataclass(frozen=True)
class Coupling:
    """What couples two stages: an edge (or ``None``), and rules with the ticks that a pair which breaks one costs."""

    source: int
    target: int
    edge: int | None
    rules: tuple[tuple[Affinity, int], ...] = ()

    @property
    def required(self) -> bool:
        return any(rule.required for rule, _ in self.rules)


def couplings(problem: Problem) -> tuple[Coupling, ...]:
    """Those of the edges in their order, then those of affinities between stages without an edge.

    Kept as long as the problem lives.
    """
    known = _kept.get(problem)
    if known is None:
        known = _kept[problem] = _couplings(problem)
    return known


def _couplings(problem: Problem) -> tuple[Coupling, ...]:
    edges = problem.edges
    found = [
        Coupling(u, v, e) for e, (u, v) in enumerate(zip(edges.source.tolist(), edges.target.tolist(), strict=True))
    ]
    if not problem.affinities:
        return tuple(found)
    at = {_pair(each.source, each.target): i for i, each in reversed(list(enumerate(found)))}
    rules: dict[int, list[tuple[Affinity, int]]] = {}
    for rule in problem.affinities:
        for u, v, cost in pairs_of(rule):
            i = at.setdefault(_pair(u, v), len(found))
            if i == len(found):
                found.append(Coupling(u, v, None))
            rules.setdefault(i, []).append((rule, cost))
    for i, charged in rules.items():
        found[i] = replace(found[i], rules=tuple(charged))
    return tuple(found)


def _pair(u: int, v: int) -> tuple[int, int]:
    return (u, v) if u < v else (v, u)


def pairs_of_rules(problem: Problem) -> tuple[Ints, Ints]:
    """Source and target of the couplings that are no edges: pairs of stages of affinities without an edge.

    Without the couplings themselves, which take a thousand times as long where hundreds of stages share an affinity.
    Kept as long as the problem lives.
    """
    known = _kept_pairs.get(problem)
    if known is None:
        known = _kept_pairs[problem] = _pairs_of_rules(problem)
    return known


def _pairs_of_rules(problem: Problem) -> tuple[Ints, Ints]:
    several = (rule for rule in problem.affinities if len(rule.stages) > 1)
    rules = [rule for rule in several if rule.required or rule.penalty > 0]
    if not rules:
        return _NONE, _NONE
    ruled = np.unique(np.concatenate([np.array(rule.stages, dtype=np.int64) for rule in rules]))
    place = np.full(problem.V, -1)
    place[ruled] = np.arange(len(ruled))
    paired = np.zeros((len(ruled), len(ruled)), dtype=np.bool_)
    for rule in rules:
        of_rule = place[list(rule.stages)]
        if not rule.required and rule.penalty < _pair_count(rule):
            continue
        if rule.apart:
            paired[of_rule[:, None], of_rule] = True
        else:
            paired[of_rule[0], of_rule] = True
    ends = place[problem.edges.source], place[problem.edges.target]
    inside = np.flatnonzero((ends[0] >= 0) & (ends[1] >= 0))
    paired |= paired.T
    paired[ends[0][inside], ends[1][inside]] = paired[ends[1][inside], ends[0][inside]] = False
    u, v = np.nonzero(np.triu(paired, 1))
    return ruled[u], ruled[v]


def coupling_count(problem: Problem) -> int:
    """How many couplings there are, without making them."""
    return int(problem.E + len(pairs_of_rules(problem)[0]))


def charged_pairs(problem: Problem) -> int:
    """How many pairs of stages all affinities charge together: a pair that several charge counts for each."""
    return sum(_pair_count(rule) for rule in problem.affinities)


def _pair_count(rule: Affinity) -> int:
    k = len(dict.fromkeys(rule.stages))
    return k * (k - 1) // 2 if rule.apart else k - 1


def pairs_of(rule: Affinity) -> Iterator[tuple[int, int, int]]:
    """(stage, stage, ticks where the pair breaks the rule)."""
    stages = list(dict.fromkeys(rule.stages))
    pairs = list(combinations(stages, 2)) if rule.apart else [(stages[0], v) for v in stages[1:]]
    cost = UNREACHABLE if rule.required else rule.penalty // max(1, len(pairs))
    if cost > 0:
        yield from ((u, v, cost) for u, v in pairs)


def coupling_forest(problem: Problem, coupled: tuple[Coupling, ...]) -> Forest:
    """A spanning forest: required affinities first, then by what a pair costs over the widest link or broken.

    Edges whose time alone counts come last; those that nothing counts are left out.
    """
    if not problem.affinities and not problem.has_path_limits:
        return spanning_forest(problem)
    edges, topology = problem.edges, problem.topology
    rates = topology.pair_seconds_per_byte
    rate = float(topology.seconds_per_byte[WAN][0] if rates is None else rates.mean())
    ticks = time_ticks(edges.bytes * edges.weight * rate)
    weight: list[float] = []
    for each in coupled:
        own = 0.0 if each.edge is None else float(ticks[each.edge])
        free = each.edge is not None and edges.weight[each.edge] == 0 and not problem.has_path_limits
        weight.append(-1.0 if free and not each.rules else own + sum(float(cost) for _, cost in each.rules))
    return kruskal(problem, [(each.source, each.target) for each in coupled], weight)


def broken_pairs(problem: Problem, rule: Affinity, source: Ints, target: Ints) -> npt.NDArray[np.bool_]:
    """(a, b) whether stages on sites (a,) and (b,) break a rule."""
    together = source[:, None] == target[None, :]
    if rule.level >= 0:
        group = problem.topology.group[rule.level]
        together |= (group[source][:, None] == group[target][None, :]) & (group[source] >= 0)[:, None]
    return np.asarray(together if rule.apart else ~together)


def broken_per_level(topology: Topology, tree: SiteTree, rule: Affinity) -> tuple[list[bool], bool]:
    """Per level whether sites that meet there for the first time break a rule, and whether a common site does.

    Groups are nested, so all sites that meet at a level share a group of the rule's level, or none do: the first and
    the last site of any group of several children tell.
    """
    if rule.level < 0:
        return [not rule.apart] * len(tree.levels), rule.apart
    label = np.empty(topology.S, dtype=np.int64)
    label[tree.position] = topology.group[rule.level]
    broken = []
    for level in tree.levels:
        several = int(np.flatnonzero(np.diff(level.start, append=len(level.parent)) > 1)[0])
        first, last = (int(label[i]) for i in (level.first[several], level.first[several + 1] - 1))
        together = first == last >= 0
        broken.append(together if rule.apart else not together)
    return broken, rule.apart
