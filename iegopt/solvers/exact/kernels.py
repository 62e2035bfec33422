"""The messages of ``messages.py`` and ``relaxation.py`` as loops that numba compiles (the extra ``fast``).

What numpy does edge by edge and level by level is here a loop over the nodes of the topology tree (``FlatTree``):
sites first, then the groups of every level, so that children stand before their parents and the children of a group
together. Every result is bit-equal to numpy's.

Importing this module imports numba; ``compiled.py`` does so, and decides when. Kernels have fixed signatures and a
cache on disk, which numba keys by this file, by its own version and Python's, and by the processor: constants are
therefore literals here, and nothing of other modules is compiled in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from iegopt.solvers import compiling
from iegopt.solvers.compiling import part

__all__ = [
    "KERNELS",
    "TICKS_PER_SECOND",
    "UNREACHABLE",
    "Layout",
    "Prices",
    "Room",
    "backward",
    "choose",
    "forward",
    "kernel",
    "solve_many",
]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
F = TypeVar("F", bound=Callable[..., Any])

UNREACHABLE = 1 << 61
TICKS_PER_SECOND = 10**9
_NOWHERE = (1 << 63) - 1

Layout = tuple[
    Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints
]  # fmt: skip
"""What stages, edges and tree look like.

- tree, as in ``FlatTree``: child, up, link, first, last, base;
- options: ptr (V + 1,), position (O,), width (O,), the last empty where no transfer is in parallel;
- edges: source (E,), hidden_at (E,): where in ``hidden`` the seconds of the source's options start, −1 for none;
- forest, as in ``Forest``: order, parent, via;
- widths (K,) that links are priced for, the first 1.
"""
Prices = tuple[Ints, Floats, Floats, Bools, Floats, Floats]
"""ticks, raw, least (K, E, links), least empty where nothing is hidden; monotone (K, E); weight (E,); hidden."""
Room = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""share, weight_key, weight_share and site of the options, empty where memory does not count; where the devices of a
site start (S + 1,), and these; free (D,), which changes."""

_ARGUMENTS = (
    "UniTuple(int64[::1], 15), "
    "Tuple((int64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], boolean[:, ::1], float64[::1], float64[::1]))"
)
"""The types of ``Layout`` and ``Prices``."""

KERNELS: dict[str, tuple[Any, str]] = {}
"""Name -> numba's dispatcher, and the signature to compile it for."""


def kernel(signature: str) -> Callable[[F], F]:
    """Enter a function in ``KERNELS``."""

    def register(function: F) -> F:
        dispatcher = compiling.kernel(function)
        KERNELS[function.__name__] = dispatcher, signature
        return dispatcher

    return register


@part
def _ticks(seconds: float, weight: float) -> Any:
    return np.int64(np.rint(weight * seconds * TICKS_PER_SECOND))


@part
def _fold(theta: Ints, near: Ints, best: Ints, sites: int) -> None:
    """The best option on every site."""
    if len(near) == sites:
        elsewhere = 0
        for i in range(sites):
            elsewhere |= near[i] ^ i
        if elsewhere == 0:
            for s in range(sites):
                best[s] = theta[s]
            return
    best[:sites] = UNREACHABLE
    for i in range(len(near)):
        best[near[i]] = min(best[near[i]], theta[i])


@part
def _gather(best: Ints, up: Ints) -> None:
    """The best of every group, from those of the sites; siblings stand together and before their group."""
    group, least = up[0], best[0]
    for node in range(len(best) - 1):
        if up[node] != group:
            best[group] = least
            group, least = up[node], best[node]
        least = min(least, best[node])
    best[group] = least


@part
def _siblings(best: Ints, rest: Ints, start: int, stop: int) -> None:
    """For every child of a group the best among the others."""
    least, second = UNREACHABLE, UNREACHABLE
    for c in range(start, stop):
        second = min(second, max(best[c], least))
        least = min(least, best[c])
    for c in range(start, stop):
        rest[c] = second if best[c] == least else least


@part
def _reach(best: Ints, reach: Ints, tree: Layout, cost: Ints, monotone: bool) -> None:
    """What arrives at every site, from ``best`` of all nodes and the cost of every link."""
    child, up, link, sites, root = tree[0], tree[1], tree[2], tree[5][1], len(best) - 1
    if monotone:
        reach[root] = best[root] + (cost[link[root]] if root >= sites else 0)
        for g in range(root - 1, sites - 1, -1):
            reach[g] = min(best[g] + cost[link[g]], reach[up[g]])
        for s in range(sites):
            reach[s] = min(best[s], reach[up[s]])
        return
    reach[root] = _NOWHERE
    for g in range(root, sites - 1, -1):
        outside, own = reach[g], cost[link[g]]
        _siblings(best, reach, child[g], child[g + 1])
        for c in range(child[g], child[g + 1]):
            reach[c] = min(reach[c] + own, outside)
    for s in range(sites):
        reach[s] = min(reach[s], best[s])


@part
def _arrive(reach: Ints, far: Ints, only: int, width: Ints, out: Ints) -> None:
    """Lower ``out`` to what arrives at the site of every option (of a width, where ``only`` names one)."""
    for i in range(len(far)):
        if only == 1 or width[i] == only:
            out[i] = min(out[i], reach[far[i]])


@part
def _lower_hidden(
    theta: Ints, near: Ints, far: Ints, only: int, width: Ints, forward: bool, hidden: Floats,
    raw: Floats, least: Floats, weight: float, layout: Layout, best: Ints, reach: Ints, out: Ints,
) -> None:  # fmt: skip
    """Lower ``out`` where the cost depends on the option of the edge's source too: level by level."""
    child, up, link, base = layout[0], layout[1], layout[2], layout[5]
    sites = base[1]
    _fold(theta, near, best, sites)
    if not forward:
        _gather(best, up)
    _arrive(best, far, only, width, out)
    below = np.arange(sites)  # the child of the level's group that holds a site
    for level in range(1, len(base) - 1):
        if forward:
            best[base[level - 1] : base[level]] = UNREACHABLE
            for i in range(len(near)):
                c = below[near[i]]
                by = link[up[c]]
                best[c] = min(best[c], theta[i] + _ticks(max(raw[by] - hidden[i], least[by]), weight))
        for g in range(base[level], base[level + 1]):
            _siblings(best, reach, child[g], child[g + 1])
        for i in range(len(far)):
            if only == 1 or width[i] == only:
                c = below[far[i]]
                value = reach[c]
                if not forward:
                    by = link[up[c]]
                    value += _ticks(max(raw[by] - hidden[i], least[by]), weight)
                out[i] = min(out[i], value)
        for s in range(sites):
            below[s] = up[below[s]]


@part
def _send(
    given: Ints, u: int, v: int, e: int, layout: Layout, prices: Prices, best: Ints, reach: Ints, out: Ints
) -> None:
    """The message of an edge from ``given`` (options of u,) to ``out`` (options of v,)."""
    _, _, _, _, _, base, ptr, position, width, source, hidden_at, _, _, _, widths = layout
    ticks, raw, least, monotone, weight, hidden = prices
    sites = base[1]
    near, far = position[ptr[u] : ptr[u + 1]], position[ptr[v] : ptr[v + 1]]
    far_width = width[ptr[v] : ptr[v + 1]]
    hides = hidden[hidden_at[e] :]
    if hidden_at[e] < 0 and len(widths) == 1:  # the common case, without what the others take
        _fold(given, near, best, sites)
        _gather(best, layout[1])
        _reach(best, reach, layout, ticks[0, e], monotone[0, e])
        for i in range(len(far)):
            out[i] = reach[far[i]]
        return
    out[:] = _NOWHERE
    for k in range(len(widths)):
        theta = given
        if k > 0:
            theta = np.where(width[ptr[u] : ptr[u + 1]] == widths[k], given, UNREACHABLE)
        if hidden_at[e] < 0:
            _fold(theta, near, best, sites)
            _gather(best, layout[1])
            _reach(best, reach, layout, ticks[k, e], monotone[k, e])
            _arrive(reach, far, widths[k], far_width, out)
        else:
            _lower_hidden(
                theta, near, far, widths[k], far_width, source[e] == u, hides,
                raw[k, e], least[k, e], weight[e], layout, best, reach, out,
            )  # fmt: skip


@kernel(f"void(int64[::1], {_ARGUMENTS}, int64, int64)")
def forward(theta: Ints, layout: Layout, prices: Prices, start: int, stop: int) -> None:
    """Messages to the parents, from ``order[stop - 1]`` down to ``order[start]``; θ (O,) grows by what it receives."""
    ptr, order, parent, via = layout[6], layout[11], layout[12], layout[13]
    best, reach = np.empty(len(layout[2]), np.int64), np.empty(len(layout[2]), np.int64)
    for i in range(stop - 1, start - 1, -1):
        u = order[i]
        v = parent[u]
        if v >= 0:
            message = np.empty(ptr[v + 1] - ptr[v], np.int64)
            _send(theta[ptr[u] : ptr[u + 1]], u, v, via[u], layout, prices, best, reach, message)
            theta[ptr[v] : ptr[v + 1]] += message


@kernel(f"void(int64[::1], int64[::1], {_ARGUMENTS})")
def backward(theta: Ints, belief: Ints, layout: Layout, prices: Prices) -> None:
    """Messages from the parents, added to ``belief`` (O,), which starts as what ``forward`` left in θ.

    What a parent knows without its child is its belief less the child's message, which is sent once more for that.
    """
    ptr, order, parent, via = layout[6], layout[11], layout[12], layout[13]
    best, reach = np.empty(len(layout[2]), np.int64), np.empty(len(layout[2]), np.int64)
    for v in order:
        u = parent[v]
        if u >= 0:
            rest = np.empty(ptr[u + 1] - ptr[u], np.int64)
            _send(theta[ptr[v] : ptr[v + 1]], v, u, via[v], layout, prices, best, reach, rest)
            rest = np.minimum(belief[ptr[u] : ptr[u + 1]] - rest, UNREACHABLE)
            message = np.empty(ptr[v + 1] - ptr[v], np.int64)
            _send(rest, u, v, via[v], layout, prices, best, reach, message)
            belief[ptr[v] : ptr[v + 1]] += message


@kernel(f"int64(int64[::1], int64[::1], UniTuple(int64[::1], 7), boolean[::1], {_ARGUMENTS})")
def choose(value: Ints, choice: Ints, room: Room, allowed: Bools, layout: Layout, prices: Prices) -> np.int64:
    """Fill ``choice`` (V,) from what ``forward`` left in θ, parents first; of equals the first is taken.

    Returns the cost of the roots' trees, the bound where no ``room`` is to be kept. A stage that finds no room gets −1,
    and ends it.
    """
    ptr, order, parent, via = layout[6], layout[11], layout[12], layout[13]
    site, start, devices, free = room[3:]
    met, score = np.empty(layout[5][1], np.int64), np.empty(len(value) if len(site) else 0, np.int64)
    bound = np.int64(0)
    for v in order:
        at = _cheapest(value, score, v, choice, via[v], layout, prices, met)
        if len(site) > 0:
            at = -1
            for o in range(ptr[v], ptr[v + 1]):
                if (at < 0 or score[o] < score[at]) and allowed[o] and _fits(o, room):
                    at = o
        choice[v] = at
        if at < 0:
            break
        if len(site) > 0:
            for d in devices[start[site[at]] : start[site[at] + 1]]:
                free[d] -= _need(at, room)
        if parent[v] < 0:
            bound += value[at]
    return bound


@part
def _need(option: int, room: Room) -> Any:
    """What an option takes of each of its devices: shared weights are charged every time, which is safe."""
    share, key, weight = room[:3]
    return share[option] + (weight[option] if key[option] >= 0 else 0)


@part
def _fits(option: int, room: Room) -> bool:
    site, start, devices, free = room[3:]
    need, fits = _need(option, room), True
    for d in devices[start[site[option]] : start[site[option] + 1]]:
        fits = fits and free[d] >= need
    return fits


@kernel(f"void(int64[:, ::1], boolean[::1], {_ARGUMENTS}, int64[::1], int64[:, ::1])")
def solve_many(costs: Ints, allowed: Bools, layout: Layout, prices: Prices, bound: Ints, choice: Ints) -> None:
    """Fill ``bound`` (B,) and ``choice`` (B, V) for costs (B, O) of the options, where every stage has one."""
    ptr = layout[6]
    theta = np.empty(len(allowed), np.int64)
    none = theta[:0]
    room = (none, none, none, none, none, none, none)
    for b in range(len(bound)):
        possible = True
        for v in range(len(ptr) - 1):
            least = UNREACHABLE
            for o in range(ptr[v], ptr[v + 1]):
                theta[o] = costs[b, o] if allowed[o] else UNREACHABLE
                least = min(least, theta[o])
            possible &= least < UNREACHABLE
        if possible:
            forward(theta, layout, prices, 0, len(ptr) - 1)
            bound[b] = choose(theta, choice[b], room, allowed, layout, prices)


@part
def _cheapest(
    value: Ints, score: Ints, v: int, choice: Ints, e: int, layout: Layout, prices: Prices, met: Ints
) -> Any:  # fmt: skip
    """The first of v's options with the least value and cost of the edge to the parent's choice.

    ``score`` (O,) takes these of all options, where it is not empty.
    """
    ptr, position, width, source, hidden_at, widths = layout[6], layout[7], layout[8], layout[9], layout[10], layout[14]
    ticks, raw, least, _, weight, hidden = prices
    u, at, lowest = layout[12][v], int(ptr[v]), _NOWHERE
    plain, own, given = hidden_at[e] < 0 and len(widths) == 1, 0, choice[max(u, 0)]
    if u < 0:
        met[:] = -1
    else:
        _meet(position[given], met, layout)
    for k in range(1, len(widths)):
        if width[given] == widths[k]:
            own = k
    for o in range(ptr[v], ptr[v + 1]):
        total, by = value[o], met[position[o]]
        if by >= 0 and plain:
            total += ticks[0, e, by]
        elif by >= 0:
            k = own if own > 0 and width[o] == width[given] else 0
            if hidden_at[e] < 0:
                total += ticks[k, e, by]
            else:
                hides = hidden[hidden_at[e] + (given - ptr[u] if source[e] == u else o - ptr[v])]
                total += _ticks(max(raw[k, e, by] - hides, least[k, e, by]), weight[e])
        if total < lowest:
            at, lowest = o, total
        if len(score) > 0:
            score[o] = total
    return at


@part
def _meet(at: int, met: Ints, layout: Layout) -> None:
    """For every site the link over which it meets the one at ``at``; −1 for that site itself."""
    up, link, first, last = layout[1], layout[2], layout[3], layout[4]
    met[at] = -1
    start, stop, node = at, at + 1, at
    while node < len(link) - 1:
        node = up[node]
        met[first[node] : start] = link[node]
        met[stop : last[node]] = link[node]
        start, stop = first[node], last[node]
