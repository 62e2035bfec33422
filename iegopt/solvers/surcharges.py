"""An edge's cost as surcharges: what CP-SAT and MILP state instead of one variable per pair of sites.

The source u walks up the tree from its site: site ⊂ g0 ⊂ g1 ⊂ … ⊂ WAN, up to the first group that holds the
target v as well. With C(g) the cost of meeting in g and C(site) = 0,

    cost(u, v) = Σ over the walk  [u ∈ g ∧ v ∉ g] · (C(parent(g)) − C(g))

telescopes to the cost of the group where they meet: every term is a *surcharge* (A, B, amount), due when
the source takes an option of A and the target none of B. One variable w ≥ Σ_A x − Σ_B x per group gives the bound
of all products x·x' with their marginals, as  Σ amount·max(0, y_u(g) − y_v(g))  is the optimal transport on a tree.

Options whose producer hides part of the transfer differ in C and so fall into several A. Equal gangs of
width k pay C_k; an unequal target pays D(g) = C_1(g) − C_k(g) on top, by the same sum with B ∪ {v of width k}.
A negative amount (a wider group that is faster) has to be linked from both sides; the engines do so.

A dense matrix of pairs has no groups: such an edge becomes a table over classes of options that cost the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.problem.topology import WAN
from iegopt.problem.transfer import cost_ticks, edge_ticks, time_ticks

__all__ = ["EdgeTerms", "PairTable", "Surcharge", "allowed_of", "edge_terms", "unstatable"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SITE = -1


@dataclass(frozen=True, eq=False)
class Surcharge:
    """``cost`` and ``time`` ticks, due when the source takes one of ``source`` and the target none of ``target``."""

    tier: int
    source: Ints
    target: Ints
    cost: int
    time: int


@dataclass(frozen=True, eq=False)
class PairTable:
    """Ticks of cost and time (A, B) between classes of options of an edge's two stages."""

    source: tuple[Ints, ...]
    target: tuple[Ints, ...]
    cost: Ints
    time: Ints


@dataclass(frozen=True, eq=False)
class EdgeTerms:
    """Everything an edge adds: surcharges, a table of pairs, and what falls on an option of the source alone.

    ``options`` (n,) are the allowed options of the source, ``cost`` and ``time`` (n,) the ticks that each of them
    pays whatever the target does.
    """

    edge: int
    options: Ints
    cost: Ints
    time: Ints
    surcharges: tuple[Surcharge, ...]
    table: PairTable | None


def allowed_of(problem: Problem, stage: int) -> Ints:
    """Indices of the allowed options of a stage."""
    part = problem.options.of(stage)
    found: Ints = np.flatnonzero(problem.allowed[part]) + part.start
    return found


def unstatable(problem: Problem, most_pairs: int) -> str | None:
    """Why an engine with room for ``most_pairs`` pairs of options cannot state the problem, or ``None``."""
    if any(rule.penalty < 0 for rule in problem.affinities):
        return "a negative penalty rewards a broken affinity"
    if problem.topology.pair_latency is None:
        return None
    count = np.bincount(problem.options.stage[problem.allowed], minlength=problem.V)
    pairs = int((count[problem.edges.source] * count[problem.edges.target]).sum())
    if pairs <= most_pairs:
        return None
    return f"{pairs:,} pairs of options under a dense matrix of links, more than {most_pairs:,}"


def edge_terms(problem: Problem, edge: int, timed: bool, source: Ints, target: Ints) -> EdgeTerms:
    """The terms of an edge between the options ``source`` and ``target`` of its two stages.

    ``timed`` asks for times of transfer too; without it they are 0.
    """
    if problem.topology.pair_latency is not None:
        nothing = np.zeros(len(source), dtype=np.int64)
        return EdgeTerms(edge, source, nothing, nothing, (), _table(problem, edge, timed, source, target))
    cost, time = np.zeros(len(source), dtype=np.int64), np.zeros(len(source), dtype=np.int64)
    kept = []
    for term in _tree_surcharges(problem, edge, source, target):
        due = term.time if timed else 0
        if len(term.target) == len(target) or not (term.cost or due):
            continue
        if len(term.target):
            kept.append(Surcharge(term.tier, term.source, term.target, term.cost, due))
        else:
            at = np.searchsorted(source, term.source)
            cost[at] += term.cost
            time[at] += due
    return EdgeTerms(edge, source, cost, time, tuple(kept), None)


def _table(problem: Problem, edge: int, timed: bool, source: Ints, target: Ints) -> PairTable | None:
    """The pair table with equal rows and equal columns merged; ``None`` where it is zero throughout."""
    time, cost = edge_ticks(problem, edge, source[:, None], target[None, :])
    if not timed:
        time = np.zeros_like(cost)
    if not (cost.any() or time.any()):
        return None
    _, rows, row = np.unique(np.hstack([cost, time]), axis=0, return_index=True, return_inverse=True)
    _, columns, column = np.unique(np.vstack([cost, time]), axis=1, return_index=True, return_inverse=True)
    return PairTable(
        tuple(source[row.ravel() == i] for i in range(len(rows))),
        tuple(target[column.ravel() == j] for j in range(len(columns))),
        cost[np.ix_(rows, columns)],
        time[np.ix_(rows, columns)],
    )


def _tree_surcharges(problem: Problem, edge: int, source: Ints, target: Ints) -> Iterator[Surcharge]:
    """The walk from the WAN down to the site, for all options of the source at once."""
    topology, site = problem.topology, problem.options.site
    width = topology.shard_width[site[source]]
    alone = np.ones_like(width)
    outer = np.stack(_meeting_ticks(problem, edge, source, WAN, width))
    outer_alone = np.stack(_meeting_ticks(problem, edge, source, WAN, alone))
    for tier in (*reversed(range(WAN)), SITE):
        group = topology.group[tier] if tier != SITE else np.arange(topology.S)
        here = group[site[source]] >= 0
        if not here.any():
            continue
        if tier == SITE:
            inner = inner_alone = np.zeros_like(outer)
        else:
            inner = np.where(here, np.stack(_meeting_ticks(problem, edge, source, tier, width)), outer)
            inner_alone = np.where(here, np.stack(_meeting_ticks(problem, edge, source, tier, alone)), outer_alone)
        inside = _by_group(group[site[target]], target)
        for rows, g, cost, time in _classes(here, group[site[source]], outer - inner):
            yield Surcharge(tier, source[rows], inside.get(g, target[:0]), cost, time)
        excess = (outer_alone - outer) - (inner_alone - inner)
        for k in np.unique(width[width > 1]).tolist():
            same = target[topology.shard_width[site[target]] == k]
            for rows, g, cost, time in _classes(here & (width == k), group[site[source]], excess):
                yield Surcharge(tier, source[rows], np.union1d(inside.get(g, target[:0]), same), cost, time)
        outer, outer_alone = inner, inner_alone


def _meeting_ticks(problem: Problem, edge: int, source: Ints, tier: int, k: Ints) -> tuple[Ints, Ints]:
    """Cost and time (n,) of meeting at a tier with shards of width k; any value where the source has no group there."""
    topology, edges = problem.topology, problem.edges
    at = 0 if tier == WAN else topology.group[tier, problem.options.site[source]]
    latency, rate = topology.latency[tier][at], topology.seconds_per_byte[tier][at]
    size = edges.bytes[edge] / k
    seconds = latency + size * rate
    hidden = edges.hidden[edge]
    if hidden is not None:
        least = latency + np.minimum(edges.chunk[edge] / k, size) * rate
        seconds = np.maximum(seconds - hidden[source - problem.options.ptr[edges.source[edge]]], least)
    return cost_ticks(problem, edge, seconds), time_ticks(seconds)


def _by_group(group: Ints, options: Ints) -> dict[int, Ints]:
    if not group.size:
        return {}
    order = np.argsort(group, kind="stable")
    labels, starts = np.unique(group[order], return_index=True)
    return dict(zip(labels.tolist(), np.split(options[order], starts[1:]), strict=True))


def _classes(here: npt.NDArray[np.bool_], group: Ints, amount: Ints) -> Iterator[tuple[Ints, int, int, int]]:
    """Rows of equal group, cost and time, where the amount is not zero."""
    rows = np.flatnonzero(here & amount.any(axis=0))
    if not rows.size:
        return
    keys = np.stack([group[rows], amount[0, rows], amount[1, rows]])
    order = np.lexsort(keys)
    keys = keys[:, order]
    cuts = np.flatnonzero((keys[:, 1:] != keys[:, :-1]).any(axis=0)) + 1
    for part in np.split(np.arange(len(rows)), cuts):
        g, cost, time = keys[:, part[0]].tolist()
        yield np.sort(rows[order[part]]), g, cost, time
