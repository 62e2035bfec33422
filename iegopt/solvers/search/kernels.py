"""Ruin and recreate (``rebuild.py``) as a loop that numba compiles (the extra ``fast``; see ``exact.kernels``).

For every placed stage a row of ``met`` keeps over which link its site meets every other, so that an edge to it costs
one look into a table. A plan that would be too much worse to be kept is given up as soon as that is certain: what is
placed already and the cheapest options of what is not yet placed cost too much.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import kernel, part, uniform

__all__ = ["KERNELS", "Graph", "Layout", "Prices", "rebuild"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

TICKS_PER_SECOND = 10**9

Layout = tuple[
    Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints
]  # fmt: skip
Prices = tuple[Ints, Floats, Floats, Bools, Floats, Floats]
"""Both as in ``exact.kernels``."""
Graph = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""What stages and options look like beside that.

- around (V + 1,): the edges of every stage; edge, and the stage at its other end;
- offered (V + 1,): the options that a stage may take; offer, the cheapest first;
- site, cost and share (O,) of all options;
- device_ptr (S + 1,): the devices of every site; device.
"""


@part
def _meet(at: int, met: Any, layout: Layout) -> None:
    """For every site the link over which it meets the one at a position; −1 for that site itself."""
    _, up, link, first, last, _, _, _, _, _, _, _, _, _, _ = layout
    met[at] = -1
    start, stop, node = at, at + 1, at
    while node < len(link) - 1:
        node = up[node]
        met[first[node] : start] = link[node]
        met[stop : last[node]] = link[node]
        start, stop = first[node], last[node]


@part
def _paid_at_large(v: int, option: int, choice: Ints, met: Any, layout: Layout, prices: Prices, graph: Graph) -> Any:
    """What an option costs with its edges to placed stages, in any problem."""
    _, _, _, _, _, _, ptr, position, width, source, hidden_at, _, _, _, widths = layout
    ticks, raw, least, _, weight, hidden = prices
    around, edge, end = graph[0], graph[1], graph[2]
    total = graph[6][option]
    for i in range(around[v], around[v + 1]):
        other, e = choice[end[i]], edge[i]
        by = met[end[i], position[option]]
        if other < 0 or by < 0:
            continue
        k = 0
        for j in range(1, len(widths)):
            if width[option] == width[other] == widths[j]:
                k = j
        if hidden_at[e] < 0:
            total += ticks[k, e, by]
        else:
            hides = hidden[hidden_at[e] + (option if source[e] == v else other) - ptr[source[e]]]
            total += np.int64(np.rint(weight[e] * max(raw[k, e, by] - hides, least[k, e, by]) * TICKS_PER_SECOND))
    return total


@part
def _cheapest(
    v: int, below: int, choice: Ints, free: Ints, met: Any, layout: Layout, prices: Prices, graph: Graph, state: Any
) -> tuple[int, int]:
    """The cheapest option that fits, now and then another, and what it costs; −1 where none costs less than that.

    Holds where no shards are parallel and no transfer overlaps. Its loops call nothing that takes arrays: counting
    references to them would take longer than all else.
    """
    around, edge, end, offered, offer, site, cost, share, device_ptr, device = graph
    position, ticks = layout[7], prices[0]
    found = -1
    for k in range(offered[v], offered[v + 1]):
        o = offer[k]
        if cost[o] >= below:
            break
        fits = True
        for i in range(device_ptr[site[o]], device_ptr[site[o] + 1]):
            fits &= share[o] <= free[device[i]]
        if not fits:
            continue
        total = cost[o]
        for i in range(around[v], around[v + 1]):
            if total >= below:
                break
            by = met[end[i], position[o]]
            if choice[end[i]] >= 0 and by >= 0:
                total += ticks[0, edge[i], by]
        if total < below and uniform(state) >= 0.02:
            found, below = o, total
    return found, below


@part
def _cheapest_at_large(
    v: int, below: int, choice: Ints, free: Ints, met: Any, layout: Layout, prices: Prices, graph: Graph, state: Any
) -> tuple[int, int]:
    """As ``_cheapest``, in any problem."""
    offered, offer, site, cost, share, device_ptr, device = graph[3:]
    found = -1
    for k in range(offered[v], offered[v + 1]):
        o = offer[k]
        if cost[o] >= below:
            break
        fits = True
        for i in range(device_ptr[site[o]], device_ptr[site[o] + 1]):
            fits &= share[o] <= free[device[i]]
        if not fits:
            continue
        total = _paid_at_large(v, o, choice, met, layout, prices, graph)
        if total < below and uniform(state) >= 0.02:
            found, below = o, total
    return found, below


@part
def _bear(option: int, sign: int, free: Ints, graph: Graph) -> None:
    """Take an option's share from its devices, or give it back."""
    site, share, device_ptr, device = graph[5], graph[7], graph[8], graph[9]
    for i in range(device_ptr[site[option]], device_ptr[site[option] + 1]):
        free[device[i]] -= sign * share[option]


@part
def _drawn(most: int, groups: Any, choice: Ints, graph: Graph, state: Any, out: Ints, taken: Ints) -> int:
    """Fill ``out`` with stages that are connected, or that stand in one group; how many."""
    around, end, site = graph[0], graph[2], graph[5]
    V = len(choice)
    want = 2 + int(uniform(state) * (most - 1))
    taken[:] = 0
    out[0] = int(uniform(state) * V)
    taken[out[0]] = 1
    count = 1
    if len(groups) == 0 or uniform(state) < 0.5:
        for _ in range(4 * want):
            v = out[int(uniform(state) * count)]
            degree = around[v + 1] - around[v]
            if count == want or degree == 0:
                continue
            w = end[around[v] + int(uniform(state) * degree)]
            if taken[w] == 0:
                taken[w] = 1
                out[count] = w
                count += 1
        return count
    level = groups[int(uniform(state) * len(groups))]
    here = level[site[choice[out[0]]]]
    first = int(uniform(state) * V)
    for i in range(V):
        w = (first + i) % V
        if count < want and taken[w] == 0 and level[site[choice[w]]] == here:
            taken[w] = 1
            out[count] = w
            count += 1
    return count


@part
def _order(out: Ints, count: int, before: Ints, rank: Floats, graph: Graph, state: Any) -> None:
    """Order stages by how they are placed again: at random, the largest first, or the dearest first."""
    offered, offer, cost, share = graph[3], graph[4], graph[6], graph[7]
    kind = uniform(state)
    for i in range(count):
        v = out[i]
        own = uniform(state)
        if kind >= 0.8:
            own = -float(cost[offer[offered[v]]])
        elif kind >= 0.4:
            own -= float(share[before[v]])
        k = i
        while k > 0 and rank[k - 1] > own:
            rank[k] = rank[k - 1]
            out[k] = out[k - 1]
            k -= 1
        rank[k] = own
        out[k] = v


@kernel
def rebuild(
    layout: Layout, prices: Prices, graph: Graph, groups: Any, most: int, heat: float, steps: int, state: Any,
    values: Ints, free: Ints, choice: Ints, best: Ints,
) -> None:  # fmt: skip
    """Take steps from a plan.

    Parameters
    ----------
    groups (L, S)
        The group of every site at some levels.
    most
        Stages that are taken off at once, at least 2.
    heat
        Ticks by which a plan may be worse to be kept with a chance of 1 / e.
    state
        Of the random numbers.
    values
        Ticks of the current and of the best plan.
    free (D,), choice, best (V,)
        What the current plan leaves free, its options, and those of the best plan.
    """
    V = len(choice)
    offered, offer, cost = graph[3], graph[4], graph[6]
    position, plain = layout[7], len(layout[14]) == 1 and len(prices[5]) == 0
    out, taken = np.empty(V, dtype=np.int64), np.empty(V, dtype=np.int64)
    before, rank = np.empty(V, dtype=np.int64), np.empty(V, dtype=np.float64)
    met = np.empty((V, layout[5][1]), dtype=np.int32)
    for v in range(V):
        _meet(position[choice[v]], met[v], layout)
    for _ in range(steps):
        count = _drawn(most, groups, choice, graph, state, out, taken)
        change = 0
        rest = 0
        for i in range(count):
            v = out[i]
            change -= _paid_at_large(v, choice[v], choice, met, layout, prices, graph)
            rest += cost[offer[offered[v]]]
            before[v] = choice[v]
            _bear(choice[v], -1, free, graph)
            choice[v] = -1
        limit = int(-heat * np.log(1.0 - uniform(state)))
        _order(out, count, before, rank, graph, state)
        placed = 0
        while placed < count:
            v = out[placed]
            rest -= cost[offer[offered[v]]]
            below = limit + 1 - change - rest
            if plain:
                found, paid = _cheapest(v, below, choice, free, met, layout, prices, graph, state)
            else:
                found, paid = _cheapest_at_large(v, below, choice, free, met, layout, prices, graph, state)
            if found < 0:
                break
            choice[v] = found
            _meet(position[found], met[v], layout)
            _bear(found, 1, free, graph)
            change += paid
            placed += 1
        if placed == count:
            values[0] += change
            if values[0] < values[1]:
                values[1] = values[0]
                best[:] = choice
            continue
        for i in range(count):
            v = out[i]
            if i < placed:
                _bear(choice[v], -1, free, graph)
                _meet(position[before[v]], met[v], layout)
            choice[v] = before[v]
            _bear(choice[v], 1, free, graph)


KERNELS: dict[str, tuple[Any, str]] = {
    "rebuild": (
        rebuild,
        "void(UniTuple(int64[::1], 15), Tuple((int64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], "
        "boolean[:, ::1], float64[::1], float64[::1])), UniTuple(int64[::1], 10), int64[:, ::1], int64, float64, "
        "int64, uint64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
