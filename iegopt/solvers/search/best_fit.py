"""Best fit over a few sites: stage by stage where it costs least, with its edges to the stages placed before it.

Sites of one kind differ in price and load alone, so that they stand in one order for all stages:

    cost(v, p) = t0[v, kind(p)] · factor[p] + Σ_u weight[u, v] · transfer(u, v, place(u), p)

Transfers cost nothing within a site and no less than nothing elsewhere. A stage thus looks at the sites of its
neighbours, then at the kinds from the one with the cheapest site on, at each one's from the cheapest on, and at no more
of either once their own cost is no better than the best so far: a handful of sites in place of all. Every stage has
one option on a site: a planner's first plan, before anything is compiled into a problem.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Affinity
from iegopt.solvers.clock import Clock

__all__ = ["Board", "Offers", "Rules", "Weights", "best_fit", "neighbours", "offers", "tied_first"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_POLLED = 8
"""Stages placed between two looks at the clock."""
_MOST = 1e300
"""In the place of infinity, where it may be multiplied by nothing."""

Neighbours = Sequence[Sequence[tuple[int, float, float]]]
"""Of every stage: (the other end of an edge, what a second of latency costs, what a second per byte costs)."""
Rules = Sequence[Sequence[tuple[Sequence[int], Sequence[int], bool]]]
"""Of every stage the affinities it has to keep: (their stages, a label per site, whether labels must differ)."""
Weights = Mapping[tuple[int, int], tuple[str, int]]
"""(stage, kind) -> a variant and the bytes of its weights on each device, which stages on a site share."""


@dataclass(frozen=True, eq=False)
class Board:
    """The m sites that stages are placed on, in their present state.

    Attributes
    ----------
    latency, rate (m, m)
        Seconds, and seconds per byte of the whole transfer, between every two sites.
    devices
        Per site the numbers of its devices.
    kind (m,), ranked
        Kind of every site, and per kind its sites by ``factor``.
    factor, load (m,)
        What a second of T0 costs on a site, infinite where nothing runs; T/T0.
    """

    latency: Sequence[Sequence[float]]
    rate: Sequence[Sequence[float]]
    devices: Sequence[Sequence[int]]
    kind: Sequence[int]
    ranked: Sequence[Sequence[int]]
    factor: Sequence[float]
    load: Sequence[float]


@dataclass(frozen=True, eq=False)
class Offers:
    """What every stage takes on every kind of site.

    Attributes
    ----------
    t0, each (V, K)
        Seconds, infinite where a kind does not run the stage, and bytes on each device.
    kinds, least (V, K)
        Per stage the kinds by what their cheapest site costs without transfers, and that cost.
    """

    t0: Sequence[Sequence[float]]
    each: Sequence[Sequence[float]]
    kinds: Sequence[Sequence[int]]
    least: Sequence[Sequence[float]]


def offers(board: Board, t0: Floats, each: Floats | Ints) -> Offers:
    """Of (V, K) seconds and bytes."""
    factor = [min(board.factor[sites[0]], _MOST) if sites else _MOST for sites in board.ranked]
    own = t0 * np.array(factor)
    kinds = own.argsort(axis=1)
    least = own[np.arange(len(own))[:, None], kinds]
    return Offers(t0.tolist(), each.tolist(), kinds.tolist(), least.tolist())


def neighbours(count: int, ends: Sequence[tuple[int, int]], sizes: Sequence[float], weight: float) -> Neighbours:
    """Of ``count`` stages, with both ends and bytes of every edge, and the weight of a second of transfer."""
    found: list[list[tuple[int, float, float]]] = [[] for _ in range(count)]
    for (u, v), size in zip(ends, sizes, strict=True):
        found[u].append((v, weight, weight * size))
        found[v].append((u, weight, weight * size))
    return found


def best_fit(
    board: Board, offers: Offers, slas: Sequence[float], edges: Neighbours, free: list[float],
    order: Sequence[int], clock: Clock, weights: Weights | None = None, rules: Rules | None = None,
) -> list[int] | None:  # fmt: skip
    """The site of every stage; ``None`` where one fits nowhere, or the clock ends first.

    Parameters
    ----------
    slas
        Most seconds of every stage under load.
    free
        Bytes by number of device; changed in place.
    weights
        Bytes beyond those of ``offers``, where any are shared.
    rules
        Where there are any.
    """
    latency, rate, factor, load, devices = board.latency, board.rate, board.factor, board.load, board.devices
    kind, ranked = board.kind, board.ranked
    place = [-1] * len(slas)
    resident: set[tuple[int, str]] = set()
    for i, v in enumerate(order):
        if i % _POLLED == 0 and clock.left <= 0.0:
            return None
        near = [(place[u], a, b) for u, a, b in edges[v] if place[u] >= 0]
        t0_of, each_of, kinds, sla = offers.t0[v], offers.each[v], offers.kinds[v], slas[v]
        beside = [((q,), kind[q], 0.0) for q, _, _ in near]
        best, least, taken = -1, math.inf, 0.0
        kept = _kept(rules[v], place) if rules is not None else ()
        for sites, k, own in chain(beside, zip(map(ranked.__getitem__, kinds), kinds, offers.least[v], strict=True)):
            if own >= least:
                break
            t0, alone = t0_of[k], each_of[k]
            shared = weights.get((v, k)) if weights is not None else None
            for p in sites:
                score = t0 * factor[p]
                if score >= least:
                    break
                if t0 * load[p] > sla:
                    continue
                for q, a, b in near:
                    if q != p:
                        score += a * latency[q][p] + b * rate[q][p]
                if score < least and (not kept or _keeps(kept, p)):
                    each = alone if shared is None or (p, shared[0]) in resident else alone + shared[1]
                    for d in devices[p]:
                        if free[d] < each:
                            break
                    else:
                        best, least, taken = p, score, each
        if best < 0:
            return None
        place[v] = best
        for d in devices[best]:
            free[d] -= taken
        if weights is not None and (v, kind[best]) in weights:
            resident.add((best, weights[v, kind[best]][0]))
    return place


def tied_first(affinities: Iterable[Affinity], order: Sequence[int]) -> list[int]:
    """The stages of an order (V,), first those that have to be apart, then those that have to be together, else as they
    were: what comes last finds no place where the ones before leave it none that all its affinities allow.
    """
    required = [rule for rule in affinities if rule.required]
    apart = {v for rule in required if rule.apart for v in rule.stages}
    tied = {v for rule in required for v in rule.stages}
    return sorted(order, key=lambda v: (v not in apart, v not in tied))


_Kept = Sequence[tuple[Sequence[int], int, bool]]
"""A label per site, the one of a stage that is placed, and whether another must have another one."""


def _kept(rules: Sequence[tuple[Sequence[int], Sequence[int], bool]], place: Sequence[int]) -> _Kept:
    """The rules of one stage with the stages that are placed already."""
    return [(label, label[place[u]], apart) for stages, label, apart in rules for u in stages if place[u] >= 0]


def _keeps(kept: _Kept, site: int) -> bool:
    return all((label[site] == other) != apart for label, other, apart in kept)
