"""Ruin and recreate (``rebuild.py``) as a loop that numba compiles (the extra ``fast``; see ``exact.kernels``).

The cheapest place of a stage is looked for down the topology tree: which link an edge takes to a placed stage is the
same for all sites below a node that the other end is not below, so that the edges settled at a node and the least cost
of the options below it bound what these can cost (depth-first branch and bound). A plan that would be too much worse
to be kept is given up as soon as that is certain: what is placed already and the cheapest options of what is not yet
placed cost too much.
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
- offered (V · S + 1,): the options that a stage may take at a position; offer, the cheapest first;
- site, cost and share (O,) of all options;
- device_ptr (S + 1,): the devices of every site; device.
"""
Least = tuple[Ints, Ints]
"""What no option below a node costs less than (V, N), and what no edge pays less on a link (E, links)."""


@part
def _paid(v: int, option: int, choice: Ints, layout: Layout, prices: Prices, graph: Graph) -> Any:
    """What an option costs with its edges to placed stages."""
    _, up, link, first, last, _, ptr, position, width, source, hidden_at, _, _, _, widths = layout
    ticks, raw, least, _, weight, hidden = prices
    around, edge, end = graph[0], graph[1], graph[2]
    total = graph[6][option]
    for i in range(around[v], around[v + 1]):
        other, e = choice[end[i]], edge[i]
        if other < 0 or position[other] == position[option]:
            continue
        node, to = up[position[option]], position[other]
        while to < first[node] or to >= last[node]:
            node = up[node]
        k = 0
        for j in range(1, len(widths)):
            if width[option] == width[other] == widths[j]:
                k = j
        if hidden_at[e] < 0:
            total += ticks[k, e, link[node]]
        else:
            hides = hidden[hidden_at[e] + (option if source[e] == v else other) - ptr[source[e]]]
            seconds = max(raw[k, e, link[node]] - hides, least[k, e, link[node]])
            total += np.int64(np.rint(weight[e] * seconds * TICKS_PER_SECOND))
    return total


@part
def _cheapest(
    v: int, below: int, plain: bool, choice: Ints, free: Ints, layout: Layout, prices: Prices, graph: Graph,
    least: Least, state: Any, ways: Any,
) -> tuple[int, int]:  # fmt: skip
    """The cheapest option that fits, now and then another, and what it costs; −1 where none costs less than that.

    ``plain`` says that no shards are parallel and no transfer overlaps: edges then pay the least. ``ways`` (3, nodes)
    is room for nodes to look below, what is settled above each, and for edges. The loops call nothing that takes
    arrays where that holds: counting references to them would take longer than all else.
    """
    around, edge, end, offered, offer, site, cost, share, device_ptr, device = graph
    child, link, first, last, position = layout[0], layout[2], layout[3], layout[4], layout[7]
    sites, root = layout[5][1], len(layout[2]) - 1
    own, price = least
    found, height = -1, 1
    ways[0, 0], ways[1, 0] = root, 0
    while height > 0:
        height -= 1
        node, paid = ways[0, height], ways[1, height]
        if paid + own[v, node] >= below:
            continue
        if node < sites:
            for k in range(offered[v * sites + node], offered[v * sites + node + 1]):
                o = offer[k]
                if paid + cost[o] >= below:
                    break
                fits = True
                for i in range(device_ptr[site[o]], device_ptr[site[o] + 1]):
                    fits &= share[o] <= free[device[i]]
                if fits:
                    total = paid + cost[o] if plain else _paid(v, o, choice, layout, prices, graph)
                    if total < below and uniform(state) >= 0.02:
                        found, below = o, total
            continue
        near = 0
        for i in range(around[v], around[v + 1]):
            other = choice[end[i]]
            if other >= 0 and first[node] <= position[other] < last[node]:
                paid += price[edge[i], link[node]]
                ways[2, near] = i
                near += 1
        lowest, best = below, -1
        for c in range(child[node], child[node + 1]):
            settled = paid
            for j in range(near):
                i = ways[2, j]
                if first[c] <= position[choice[end[i]]] < last[c]:
                    settled -= price[edge[i], link[node]]
            if settled + own[v, c] >= below:
                continue
            ways[0, height], ways[1, height] = c, settled
            if settled + own[v, c] < lowest:
                lowest, best = settled + own[v, c], height
            height += 1
        if best >= 0:  # the most promising comes next
            c, settled = ways[0, best], ways[1, best]
            ways[0, best], ways[1, best] = ways[0, height - 1], ways[1, height - 1]
            ways[0, height - 1], ways[1, height - 1] = c, settled
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
def _order(out: Ints, count: int, before: Ints, rank: Floats, own: Ints, graph: Graph, state: Any) -> None:
    """Order stages by how they are placed again: at random, the largest first, or the dearest first."""
    share = graph[7]
    kind = uniform(state)
    for i in range(count):
        v = out[i]
        key = uniform(state)
        if kind >= 0.8:
            key = -float(own[v, -1])
        elif kind >= 0.4:
            key -= float(share[before[v]])
        k = i
        while k > 0 and rank[k - 1] > key:
            rank[k] = rank[k - 1]
            out[k] = out[k - 1]
            k -= 1
        rank[k] = key
        out[k] = v


@kernel
def rebuild(
    layout: Layout, prices: Prices, graph: Graph, least: Least, groups: Any, most: int, heat: float, steps: int,
    state: Any, values: Ints, free: Ints, choice: Ints, best: Ints,
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
    own, plain = least[0], len(layout[14]) == 1 and len(prices[5]) == 0
    out, taken = np.empty(V, dtype=np.int64), np.empty(V, dtype=np.int64)
    before, rank = np.empty(V, dtype=np.int64), np.empty(V, dtype=np.float64)
    ways = np.empty((3, max(len(layout[2]), len(graph[1]))), dtype=np.int64)
    for _ in range(steps):
        count = _drawn(most, groups, choice, graph, state, out, taken)
        change = 0
        rest = 0
        for i in range(count):
            v = out[i]
            change -= _paid(v, choice[v], choice, layout, prices, graph)
            rest += own[v, -1]
            before[v] = choice[v]
            _bear(choice[v], -1, free, graph)
            choice[v] = -1
        limit = int(-heat * np.log(1.0 - uniform(state)))
        _order(out, count, before, rank, own, graph, state)
        placed = 0
        while placed < count:
            v = out[placed]
            rest -= own[v, -1]
            below = limit + 1 - change - rest
            found, paid = _cheapest(v, below, plain, choice, free, layout, prices, graph, least, state, ways)
            if found < 0:
                break
            choice[v] = found
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
            choice[v] = before[v]
            _bear(choice[v], 1, free, graph)


KERNELS: dict[str, tuple[Any, str]] = {
    "rebuild": (
        rebuild,
        "void(UniTuple(int64[::1], 15), Tuple((int64[:, :, ::1], float64[:, :, ::1], float64[:, :, ::1], "
        "boolean[:, ::1], float64[::1], float64[::1])), UniTuple(int64[::1], 10), UniTuple(int64[:, ::1], 2), "
        "int64[:, ::1], int64, float64, "
        "int64, uint64[::1], int64[::1], int64[::1], int64[::1], int64[::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
