"""The quick plan (``quick.py``) as one loop that numba compiles (the extra ``fast``; see ``exact.kernels``).

It takes the place of dozens of operations on small arrays, each of which costs more to begin than to do.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import kernel, part
from iegopt.solvers.search.fit_kernel import edges_of

__all__ = ["KERNELS", "quick_fit"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Options = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""ptr, site, cost, time, share, weight_key, weight_share, as in ``Options`` of a problem."""
Levels = tuple[Floats, Floats, Floats, Floats, Floats]
Tree = tuple[tuple[Ints, Ints], Ints, Levels, Levels, tuple[Floats, Floats], bool]
"""Of a topology device_ptr and device_index; group; latency and seconds per byte by level, and of measured pairs (where
there are none, empty); whether shards move in parallel."""
Rules = tuple[Ints, Ints, Ints, Ints]
"""Where the stages of a required affinity begin among those of all; these; its level; 1: apart, 0: together."""

_TICKS = 1e9


@part
def _room(start: Ints, index: Ints, free: Ints, s: int) -> int:
    """What is free on the fullest device of a site."""
    room = free[index[start[s]]]
    for d in range(start[s] + 1, start[s + 1]):
        room = min(room, free[index[d]])
    return int(room)


@part
def _between(tree: Tree, sites: Ints, others: Ints) -> tuple[Floats, Floats, Floats]:
    """(n,) latency and seconds per byte from sites to others, and shards that move in parallel; 0, 0, 1 within one."""
    (start, _), group, levels, rates, (pair_latency, pair_rate), parallel = tree
    offset = np.zeros(len(levels) + 1, dtype=np.int64)
    for level in range(len(levels)):
        offset[level + 1] = offset[level] + len(levels[level])
    of_link, rate_of_link = np.empty(offset[-1]), np.empty(offset[-1])
    for level in range(len(levels)):
        of_link[offset[level] : offset[level + 1]] = levels[level]
        rate_of_link[offset[level] : offset[level + 1]] = rates[level]
    n = len(sites)
    latency, rate, shards = np.zeros(n), np.zeros(n), np.ones(n)
    for i in range(n):
        a, b = sites[i], others[i]
        if a == b:
            continue
        if len(pair_latency):
            latency[i], rate[i] = pair_latency[a, b], pair_rate[a, b]
        else:
            link = len(of_link) - 1
            for level in range(len(group)):
                if group[level, a] == group[level, b] and group[level, a] >= 0:
                    link = offset[level] + group[level, a]
                    break
            latency[i], rate[i] = of_link[link], rate_of_link[link]
        if parallel and start[a + 1] - start[a] == start[b + 1] - start[b]:
            shards[i] = start[a + 1] - start[a]
    return latency, rate, shards


@part
def _score(
    options: Options, limit: Ints, tree: Tree, capacity: Ints, figures: tuple[Floats, Floats], step: int
) -> Floats:
    """(S,) what sites cost the probes, counting the transfer from the cheapest of all."""
    ptr, site, cost, time, share, key, extra = options
    start, index = tree[0]
    S, V, largest = len(start) - 1, len(limit), 0
    for v in range(V):
        if share[ptr[v]] > share[ptr[largest]]:
            largest = v
    score, probes = np.zeros(S), 0
    for i in range(-1, -(-V // step)):
        v = largest if i < 0 else i * step
        if i >= 0 and v == largest:
            continue
        worst = 0.0
        for o in range(ptr[v], ptr[v + 1]):
            worst = max(worst, 2.0 * (cost[o] / _TICKS))
        own = np.full(S, worst)
        for o in range(ptr[v], ptr[v + 1]):
            s, need = site[o], share[o] + (extra[o] if key[o] >= 0 else 0)
            if time[o] <= limit[v] and cost[o] / _TICKS < own[s] and need <= _room(start, index, capacity, s):
                own[s] = cost[o] / _TICKS
        score += own
        probes += 1
    score /= probes
    weight, size = figures
    E = len(weight)
    if E:
        weights, sizes = 0.0, 0.0
        for e in range(E):
            weights += weight[e]
            sizes += size[e]
        latency, rate, shards = _between(tree, np.full(S, np.argmin(score)), np.arange(S))
        for s in range(S):
            score[s] += weights / E * (latency[s] + sizes / E * (rate[s] / shards[s]))
    return score


@part
def _least(score: Floats, count: int) -> Ints:
    """The sites of the least scores, of equal ones the first, ascending."""
    kept, found = np.empty(count, dtype=np.int64), 0
    for s in range(len(score)):
        if found == count and score[s] >= score[kept[-1]]:
            continue
        found = min(found + 1, count)
        i = found - 1
        while i > 0 and score[kept[i - 1]] > score[s]:
            kept[i] = kept[i - 1]
            i -= 1
        kept[i] = s
    return np.sort(kept)


@part
def _links(tree: Tree, sites: Ints) -> Floats:
    """(m, 2, m) as ``problem.transfer.links_among``."""
    m = len(sites)
    latency, rate, shards = _between(tree, np.repeat(sites, m), np.repeat(sites, m).reshape(m, m).T.copy().ravel())
    links = np.empty((m, 2, m))
    links[:, 0] = latency.reshape(m, m)
    links[:, 1] = (rate / shards).reshape(m, m)
    return links


@part
def _rules_of(rules: Rules, stages: int) -> tuple[Ints, Ints]:
    """Where the affinities of every stage begin among all, and these."""
    start, members, _, _ = rules
    begin, found = np.zeros(stages + 2, dtype=np.int64), np.empty(len(members), dtype=np.int64)
    for v in members:
        begin[v + 2] += 1
    begin = np.cumsum(begin)
    for r in range(len(start) - 1):
        for v in members[start[r] : start[r + 1]]:
            found[begin[v + 1]] = r
            begin[v + 1] += 1
    return begin, found


@part
def _bar(tree: Tree, rules: Rules, r: int, place: Ints, sites: Ints, barred: Bools) -> None:
    """Bar the sites that break an affinity with one of its stages placed before."""
    start, members, level, apart = rules
    group = tree[1]
    for u in members[start[r] : start[r + 1]]:
        if place[u] >= 0:
            there = sites[place[u]]
            for p in range(len(sites)):
                s = sites[p]
                same = s == there
                if level[r] >= 0 and group[level[r], s] >= 0:
                    same = group[level[r], s] == group[level[r], there]
                if same == (apart[r] > 0):
                    barred[p] = True


@part
def _anywhere(
    options: Options, start: Ints, index: Ints, free: Ints, v: int, limit: int, packed: bool
) -> int:  # fmt: skip
    """Of all options of a stage that fit the cheapest, or where least room is left; −1: there is none."""
    ptr, site, cost, time, share, key, extra = options
    best, least = -1, np.int64(0)
    for o in range(ptr[v], ptr[v + 1]):
        if time[o] > limit or (not packed and best >= 0 and cost[o] >= least):
            continue
        left = _room(start, index, free, site[o]) - share[o] - (extra[o] if key[o] >= 0 else 0)
        score = left if packed else cost[o]
        if left >= 0 and (best < 0 or score < least):
            best, least = o, score
    return best


@part
def _value(options: Options, tree: Tree, ends: tuple[Ints, Ints], figures: tuple[Floats, Floats], plan: Ints) -> int:
    """Σ option costs + Σ edge costs in ticks, where no producer hides a transfer."""
    total, site, cost, (weight, size) = np.int64(0), options[1], options[2], figures
    for o in plan:
        total += cost[o]
    latency, rate, shards = _between(tree, site[plan[ends[0]]], site[plan[ends[1]]])
    for e in range(len(weight)):
        total += np.int64(np.rint(weight[e] * (latency[e] + size[e] / shards[e] * rate[e]) * _TICKS))
    return int(total)


@kernel
def quick_fit(
    options: Options, capacity: Ints, limits: tuple[Ints, Ints], deadline: int, tree: Tree, kept: Floats,
    ends: tuple[Ints, Ints], figures: tuple[Floats, Floats], rules: Rules, order: Ints, most: int, step: int,
    packed: bool, plan: Ints,
) -> int:  # fmt: skip
    """Place stages in an order, each where it costs least with its edges to those placed before it.

    Parameters
    ----------
    packed
        Whether it is to be where least room is left instead.
    limits (V,), deadline
        Ticks: SLAs, and by when stages and all are to be done.
    kept (S, 2, S)
        Links of all pairs of sites; empty: those of the sample are looked up.
    ends, figures (E,)
        Stages at both ends of every edge; its weight and bytes.
    most
        Sites of the sample.
    step
        Every so many stages one is a probe.
    plan (V,)
        To be filled: option of every stage.

    Returns
    -------
    int
        The plan's value in ticks, but for affinities, makespan and what producers hide; −1: a stage fits nowhere.
    """
    ptr, site, cost, time, share, key, extra = options
    (start, index), (source, target), (weight, size) = tree[0], ends, figures
    limit = np.minimum(np.minimum(limits[0], limits[1]), deadline)
    V, S = len(limit), len(start) - 1
    everywhere = most >= S or len(kept) > 0
    sites = np.arange(S) if everywhere else _least(_score(options, limit, tree, capacity, figures, step), most)
    links = kept if len(kept) > 0 else _links(tree, sites)
    m, free, place, place_of = len(sites), capacity.copy(), np.full(V, -1), np.full(S, -1)
    for p in range(m):
        place_of[sites[p]] = p
    moved, barred = np.empty(m), np.zeros(m, dtype=np.bool_)
    begin, edges = edges_of(source, target, V)
    ruled, of_stage = _rules_of(rules, V)
    for v in order:
        moved[:] = 0.0
        for e in edges[begin[v] : begin[v + 1]]:
            other = place[target[e] if source[e] == v else source[e]]
            if other >= 0:
                for p in range(m):
                    moved[p] += weight[e] * links[other, 0, p] + weight[e] * size[e] * links[other, 1, p]
        barred[:] = False
        for r in of_stage[ruled[v] : ruled[v + 1]]:
            _bar(tree, rules, r, place, sites, barred)
        best, least = -1, np.inf
        for o in range(ptr[v], ptr[v] if packed else ptr[v + 1]):
            p = place_of[site[o]]
            if p >= 0 and time[o] <= limit[v] and not barred[p]:
                score = cost[o] / _TICKS + moved[p]
                need = share[o] + (extra[o] if key[o] >= 0 else 0)
                if score < least and need <= _room(start, index, free, site[o]):
                    best, least = o, score
        if best < 0:
            best = _anywhere(options, start, index, free, v, limit[v], packed)
            if best < 0:
                return -1
        plan[v], place[v] = best, place_of[site[best]]
        need = share[best] + (extra[best] if key[best] >= 0 else 0)
        for d in range(start[site[best]], start[site[best] + 1]):
            free[index[d]] -= need
    return _value(options, tree, ends, figures, plan)


KERNELS: dict[str, tuple[Any, str]] = {
    "quick_fit": (
        quick_fit,
        "int64(UniTuple(int64[::1], 7), int64[::1], UniTuple(int64[::1], 2), int64, "
        "Tuple((UniTuple(int64[::1], 2), int64[:, ::1], UniTuple(float64[::1], 5), UniTuple(float64[::1], 5), "
        "UniTuple(float64[:, ::1], 2), boolean)), "
        "float64[:, :, ::1], UniTuple(int64[::1], 2), UniTuple(float64[::1], 2), UniTuple(int64[::1], 4), "
        "int64[::1], int64, int64, boolean, int64[::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
