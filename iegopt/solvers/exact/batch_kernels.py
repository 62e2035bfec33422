"""The relaxation of many requests at once, as loops that numba compiles (see ``kernels.py``).

Requests share graph, options and links and differ in the costs of options. They are taken ``_WIDTH`` at a time, as the
last axis of every array: a number that the compiler knows, so that each step over them is a few vector instructions.
The choice goes down the tree instead of through all options: the best of every group is kept, and led to from where
the parent's site meets it.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.kernels import ARGUMENTS, Layout, Prices, kernel, part

__all__ = ["solve_many"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_UNREACHABLE = 1 << 61
_NOWHERE = (1 << 63) - 1
_WIDTH = 8


@part
def _take(costs: Ints, allowed: Bools, ptr: Ints, first: int, theta: Ints, possible: Bools) -> None:
    """The next requests, and whether every stage of theirs has an option; columns beyond the last repeat it."""
    possible[:] = True
    least = np.empty(_WIDTH, np.int64)
    for v in range(len(ptr) - 1):
        least[:] = _UNREACHABLE
        for b in range(_WIDTH):
            row = costs[min(first + b, len(costs) - 1)]
            for o in range(ptr[v], ptr[v + 1]):
                theta[o, b] = min(row[o], _UNREACHABLE) if allowed[o] else _UNREACHABLE
                least[b] = min(least[b], theta[o, b])
            possible[b] &= least[b] < _UNREACHABLE


@part
def _fold(theta: Ints, start: int, stop: int, position: Ints, child: Ints, sites: int, best: Ints) -> None:
    """(nodes, requests) the best option of a stage on every site and in every group."""
    best[:] = _UNREACHABLE
    for o in range(start, stop):
        s = position[o]
        for b in range(_WIDTH):
            best[s, b] = min(best[s, b], theta[o, b])
    for g in range(sites, len(best)):
        for c in range(child[g], child[g + 1]):
            for b in range(_WIDTH):
                best[g, b] = min(best[g, b], best[c, b])


@part
def _reach(best: Ints, reach: Ints, child: Ints, link: Ints, cost: Ints, sites: int, monotone: bool) -> None:
    """(nodes, requests) what arrives at every site, itself included."""
    reach[len(best) - 1] = _NOWHERE
    second = np.empty(_WIDTH, np.int64)
    for g in range(len(best) - 1, sites - 1, -1):
        own = cost[link[g]]
        if monotone:
            for b in range(_WIDTH):
                reach[g, b] = min(reach[g, b], best[g, b] + own)
            for c in range(child[g], child[g + 1]):
                for b in range(_WIDTH):
                    reach[c, b] = reach[g, b]
        else:
            _second(best, child[g], child[g + 1], second)
            for c in range(child[g], child[g + 1]):
                for b in range(_WIDTH):
                    others = second[b] if best[c, b] == best[g, b] else best[g, b]
                    reach[c, b] = min(reach[g, b], others + own)
    for s in range(sites):
        for b in range(_WIDTH):
            reach[s, b] = min(reach[s, b], best[s, b])


@part
def _second(best: Ints, start: int, stop: int, second: Ints) -> None:
    """(requests,) the second of a group's children, equal to the best where two are."""
    least = best[start].copy()
    second[:] = _UNREACHABLE
    for c in range(start + 1, stop):
        for b in range(_WIDTH):
            second[b] = min(second[b], max(least[b], best[c, b]))
            least[b] = min(least[b], best[c, b])


@part
def _options_in(node: int, v: int, layout: Layout) -> tuple[int, int]:
    """The options of a stage below a node, as a slice."""
    first, last, ptr, position = layout[3], layout[4], layout[6], layout[7]
    own = position[ptr[v] : ptr[v + 1]]
    return ptr[v] + np.searchsorted(own, first[node]), ptr[v] + np.searchsorted(own, last[node])


@part
def _best_in(node: int, theta: Ints, groups: Ints, b: int, v: int, layout: Layout) -> int:
    """The first of the best options of a stage below a group."""
    child, sites = layout[0], layout[5][1]
    while child[node] >= sites:
        c = child[node]
        while groups[c - sites, b] != groups[node - sites, b]:
            c += 1
        node = c
    start, stop = _options_in(node, v, layout)
    found = start
    for o in range(start + 1, stop):
        if theta[o, b] < theta[found, b]:
            found = o
    return found


@part
def _best_for(at: int, cost: Ints, theta: Ints, groups: Ints, b: int, v: int, layout: Layout) -> int:
    """The first of the best options of a stage for the site of its neighbour."""
    child, up, link, first, sites = layout[0], layout[1], layout[2], layout[3], layout[5][1]
    position, nodes = layout[7], len(layout[2])
    lowest, found, place = _NOWHERE, layout[6][v], -1
    start, stop = _options_in(up[at] if nodes > 1 else at, v, layout)
    near = cost[link[up[at]]] if nodes > 1 else 0
    for o in range(start, stop):
        total = theta[o, b] + (0 if position[o] == at else near)
        if total < lowest:
            lowest, found, place = total, o, position[o]
    node, inside = up[at], -1
    while node < nodes - 1:
        group = up[node]
        for c in range(child[group], child[group + 1]):
            total = groups[c - sites, b] + cost[link[group]]
            if c != node and (total < lowest or (total == lowest and first[c] < place)):
                lowest, inside, place = total, c, first[c]
        node = group
    return found if inside < 0 else _best_in(inside, theta, groups, b, v, layout)


@kernel(f"void(int64[:, ::1], boolean[::1], {ARGUMENTS}, int64[::1], int64[:, ::1])")
def solve_many(costs: Ints, allowed: Bools, layout: Layout, prices: Prices, bound: Ints, choice: Ints) -> None:
    """Fill ``bound`` (B,) and ``choice`` (B, V) for costs (B, O), where every stage has an option.

    Options of a stage must stand in tree order, nothing may be hidden, and no transfer be in parallel.
    """
    child, _, link, _, _, base, ptr, position, _, _, _, order, parent, via, _ = layout
    ticks, _, _, monotone, _, _ = prices
    sites, nodes = base[1], len(link)
    theta = np.empty((len(position), _WIDTH), np.int64)
    groups = np.empty((len(order), nodes - sites, _WIDTH), np.int64)
    best, reach = np.empty((nodes, _WIDTH), np.int64), np.empty((nodes, _WIDTH), np.int64)
    possible = np.empty(_WIDTH, np.bool_)
    for first in range(0, len(bound), _WIDTH):
        _take(costs, allowed, ptr, first, theta, possible)
        for v in order[::-1]:
            u = parent[v]
            _fold(theta, ptr[v], ptr[v + 1], position, child, sites, best)
            groups[v] = best[sites:]
            if u >= 0:
                _reach(best, reach, child, link, ticks[0, via[v]], sites, monotone[0, via[v]])
                for o in range(ptr[u], ptr[u + 1]):
                    for b in range(_WIDTH):
                        theta[o, b] += reach[position[o], b]
        for b in range(min(_WIDTH, len(bound) - first)):
            if not possible[b]:
                continue
            chosen = choice[first + b]
            bound[first + b] = 0
            for v in order:
                if parent[v] < 0:
                    chosen[v] = _best_in(nodes - 1, theta, groups[v], b, v, layout)
                    bound[first + b] += theta[chosen[v], b]
                else:
                    at = position[chosen[parent[v]]]
                    chosen[v] = _best_for(at, ticks[0, via[v]], theta, groups[v], b, v, layout)
