"""Exchanges (``exchange.py``) as loops that numba compiles (``kernels.py``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part, uniform
from iegopt.solvers.exact.kernels import kernel

__all__ = ["exchange"]

Ints = npt.NDArray[np.int64]

_NOWHERE = (1 << 63) - 1
_NO_PAIR, _ALL_PAIRS = 1 << 55, 1 << 61
"""Ticks of a pair that does not go together at most, and of all pairs of a plan: these are added up."""
_OF_PAIR = 50
"""Looks at options that a pair of stages takes beyond its own."""
_TRIES = 20
"""Random options of a stage that are tried for room."""

Costs = tuple[Ints, Ints, Ints, Ints, Ints]
"""Where the options of every stage start (V + 1,); cost (n,); the tables of pairs of stages, one after the other, where
each starts (T + 1,), and its least cell (T,)."""
Pairs = tuple[Ints, Ints]
"""table (V, V): one more than the number of the table of a stage's options and another's, negative where those are its
columns, 0 where there is none; near (V, most): the neighbours of every stage, −1 behind the last."""
Sums = tuple[Ints, Ints]
"""sums (n,): the cost of an option with all neighbours of its stage; low (V,): the least of every stage."""
Memory = tuple[Ints, Ints, Ints]
"""need (n,) of every device of an option, devices (n, K) of all options, and free (D + 1,), which changes."""


@part
def _cells(u: int, v: int, ptr: Ints, start: Ints, table: Ints) -> Any:
    """Where the table of two neighbours starts, and the steps to the next option of either: what they cost together.

    Numbers, and no function that looks up a cell: counting references to arrays would take most of the time.
    """
    t = table[u, v]
    if t > 0:
        return start[t - 1], ptr[v + 1] - ptr[v], 1
    return start[-t - 1], 1, ptr[u + 1] - ptr[u]


@part
def _alone(v: int, beside: int, at: int, costing: Sums, costs: Costs, table: Ints, out: Ints) -> Any:
    """What the options of a stage cost with all neighbours but one stage, which has its option ``at``; the least."""
    ptr, _, tables, start, _ = costs
    sums, low = costing
    own = sums[ptr[v] : ptr[v + 1]]
    if table[v, beside] == 0:
        return own, low[v]
    first, step, other_step = _cells(v, beside, ptr, start, table)
    first += at * other_step
    least = _NOWHERE
    for a in range(len(own)):
        out[a] = own[a] - tables[first + a * step]
        least = min(least, out[a])
    return out[: len(own)], least


@part
def _put(v: int, at: int, plan: Ints, costing: Sums, costs: Costs, pairs: Pairs, memory: Memory) -> None:
    """Move a stage to its option ``at``, whether there is room or not."""
    ptr, _, tables, start, _ = costs
    sums, low = costing
    table, near = pairs
    _take(ptr[v] + plan[v], -1, memory)
    _take(ptr[v] + at, 1, memory)
    if at != plan[v]:
        for w in near[v]:
            if w < 0:
                break
            first, step, other_step = _cells(v, w, ptr, start, table)
            new, old, least = first + at * step, first + plan[v] * step, _NOWHERE
            for b in range(ptr[w + 1] - ptr[w]):
                sums[ptr[w] + b] += tables[new + b * other_step] - tables[old + b * other_step]
                least = min(least, sums[ptr[w] + b])
            low[w] = least
    plan[v] = at


@part
def _fits(option: int, memory: Memory) -> bool:
    need, devices, free = memory
    k, K = 0, devices.shape[1]
    while k < K and free[devices[option, k]] >= need[option]:
        k += 1
    return bool(k == K)


@part
def _take(option: int, sign: int, memory: Memory) -> None:
    need, devices, free = memory
    for k in range(devices.shape[1]):
        free[devices[option, k]] -= sign * need[option]


@part
def _move(
    u: int, v: int, plan: Ints, costing: Sums, costs: Costs, pairs: Pairs, memory: Memory, spare: Ints, looks: Ints
) -> bool:  # fmt: skip
    """Put two stages where they cost least together, as far as ``looks`` (1,) go; whether that is less than before."""
    ptr, _, tables, start, least = costs
    table = pairs[0]
    at_u, at_v = plan[u], plan[v]
    own, least_own = _alone(u, v, at_v, costing, costs, table, spare[0])
    other, least_other = _alone(v, u, at_u, costing, costs, table, spare[1])
    joined = table[u, v] != 0
    first, step, other_step = _cells(u, v, ptr, start, table) if joined else (0, 0, 0)
    between = least[abs(table[u, v]) - 1] if joined else 0
    best = own[at_u] + other[at_v] + (tables[first + at_u * step + at_v * other_step] if joined else 0)
    before = best
    looks[0] -= len(own) + len(other)
    if least_own + least_other + between >= best:
        return False
    _take(ptr[u] + at_u, -1, memory)
    _take(ptr[v] + at_v, -1, memory)
    places, least_other, count = spare[2], _NOWHERE, 0
    for b in range(len(other)):
        if least_own + other[b] + between < best and _fits(ptr[v] + b, memory):
            places[count] = b
            count += 1
            least_other = min(least_other, other[b])
    for a in range(len(own)):
        if count == 0 or own[a] + least_other + between >= best or not _fits(ptr[u] + a, memory):
            continue
        if looks[0] <= 0:
            break
        looks[0] -= count
        _take(ptr[u] + a, 1, memory)
        for b in places[:count]:
            if own[a] + other[b] + between < best:
                total = own[a] + other[b] + (tables[first + a * step + b * other_step] if joined else 0)
                if total < best and _fits(ptr[v] + b, memory):
                    best, at_u, at_v = total, a, b
        _take(ptr[u] + a, -1, memory)
    _take(ptr[u] + plan[u], 1, memory)
    _take(ptr[v] + plan[v], 1, memory)
    if best == before:
        return False
    looks[0] -= pairs[1].shape[1] * (len(own) + len(other))
    _put(u, at_u, plan, costing, costs, pairs, memory)
    _put(v, at_v, plan, costing, costs, pairs, memory)
    return True


@part
def _descend(
    plan: Ints, costing: Sums, costs: Costs, pairs: Pairs, memory: Memory, spare: Ints, looks: Ints
) -> None:  # fmt: skip
    """Move pairs of stages until none gets cheaper, or there were as many ``looks`` (1,) at options."""
    V, ptr, table, (sums, low) = len(plan), costs[0], pairs[0], costing
    u, v, idle = 0, 1, 0
    while idle < V * (V - 1) // 2 and looks[0] > 0:
        looks[0] -= _OF_PAIR
        apart = table[u, v] == 0
        if apart and low[u] + low[v] >= sums[ptr[u] + plan[u]] + sums[ptr[v] + plan[v]]:
            idle += 1
        else:
            idle = 0 if _move(u, v, plan, costing, costs, pairs, memory, spare, looks) else idle + 1
        v += 1
        if v == V:
            u = u + 1 if u + 2 < V else 0
            v = u + 1


@part
def _total(plan: Ints, costs: Costs, pairs: Pairs) -> Any:
    ptr, cost, tables, start, _ = costs
    table, near = pairs
    total = 0
    for v in range(len(plan)):
        total += cost[ptr[v] + plan[v]]
        for w in near[v]:
            if w > v:
                first, step, other_step = _cells(v, w, ptr, start, table)
                total += tables[first + plan[v] * step + plan[w] * other_step]
    return total


@part
def _kick(
    stages: int, plan: Ints, costing: Sums, costs: Costs, pairs: Pairs, memory: Memory, state: Any
) -> None:  # fmt: skip
    """Put some stages, each a neighbour of the one before, on random options with room."""
    ptr, near = costs[0], pairs[1]
    v = int(uniform(state) * len(plan))
    for _ in range(stages):
        _take(ptr[v] + plan[v], -1, memory)
        to = plan[v]
        for _ in range(_TRIES):
            a = int(uniform(state) * (ptr[v + 1] - ptr[v]))
            if _fits(ptr[v] + a, memory):
                to = a
                break
        _take(ptr[v] + plan[v], 1, memory)
        _put(v, to, plan, costing, costs, pairs, memory)
        around = 0
        while around < near.shape[1] and near[v, around] >= 0:
            around += 1
        v = near[v, int(uniform(state) * around)] if around > 0 else int(uniform(state) * len(plan))


@part
def _paired(ends: Ints, V: int) -> Pairs:
    table, count = np.zeros((V, V), np.int64), np.zeros(V, np.int64)
    for t in range(len(ends)):
        u, v = ends[t]
        table[u, v], table[v, u] = t + 1, -t - 1
        count[u] += 1
        count[v] += 1
    near = np.full((V, max(1, count.max())), -1)
    count[:] = 0
    for u, v in ends:
        near[u, count[u]], near[v, count[v]] = v, u
        count[u] += 1
        count[v] += 1
    return table, near


@kernel(
    "int64(int64[::1], int64, int64, UniTuple(int64[::1], 4), int64[:, ::1], "
    "Tuple((int64[::1], int64[:, ::1], int64[::1])), uint64[::1], int64[::1])"
)
def exchange(
    plan: Ints, kicks: int, stages: int, given: tuple[Ints, Ints, Ints, Ints], ends: Ints, memory: Memory, state: Any,
    looks: Ints,
) -> int:  # fmt: skip
    """Move pairs of stages until none gets cheaper, again after every kick of some stages; the least cost.

    Parameters
    ----------
    plan (V,)
        Places among the options of every stage; becomes what costs that.
    given
        The first four of ``Costs``; what the tables hold is lowered to what can be added up.
    ends (T, 2)
        Stages whose options are the rows and the columns of every table, no two the same.
    looks (1,)
        How many options may be looked at; counts down.
    """
    ptr, cost, tables, start = given
    least, most_of_pair = np.empty(len(ends), np.int64), min(_NO_PAIR, _ALL_PAIRS // (len(ends) + 1))
    for t in range(len(ends)):
        least[t] = most_of_pair
        for i in range(start[t], start[t + 1]):
            tables[i] = min(tables[i], most_of_pair)
            least[t] = min(least[t], tables[i])
    costs = (ptr, cost, tables, start, least)
    pairs = _paired(ends, len(plan))
    most, sums = 0, cost.copy()
    for v in range(len(plan)):
        most = max(most, ptr[v + 1] - ptr[v])
        for w in pairs[1][v]:
            if w >= 0:
                first, step, other_step = _cells(v, w, ptr, start, pairs[0])
                for a in range(ptr[v + 1] - ptr[v]):
                    sums[ptr[v] + a] += tables[first + a * step + plan[w] * other_step]
    low, spare = np.empty(len(plan), np.int64), np.empty((3, most), np.int64)
    for v in range(len(plan)):
        low[v] = sums[ptr[v] : ptr[v + 1]].min()
    costing = (sums, low)
    _descend(plan, costing, costs, pairs, memory, spare, looks)
    best, cheapest = plan.copy(), _total(plan, costs, pairs)
    for _ in range(kicks):
        if looks[0] <= 0:
            break
        _kick(stages, plan, costing, costs, pairs, memory, state)
        _descend(plan, costing, costs, pairs, memory, spare, looks)
        total = _total(plan, costs, pairs)
        if total < cheapest:
            best[:] = plan
            cheapest = total
        else:
            for v in range(len(plan)):
                _put(v, best[v], plan, costing, costs, pairs, memory)
    return int(cheapest)
