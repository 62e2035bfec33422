"""Ejection chains (``chains.py``) as loops that numba compiles (the extra ``fast``; see ``exact.kernels``).

What runs in the inner loops takes arrays one by one, and no tuples of them: counting references to these would take
longer than all else.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import kernel, part, uniform

__all__ = ["KERNELS", "chains"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_LEAST_GAIN = 0.5
"""Ticks: what is less may be what floats lose."""
_DEARER, _CHEAPER = 1.03, 0.985
"""What the price of a device becomes where it is overloaded, and that of all devices where none is."""
_PRICE_RANGE = 1e3
"""How far a price may leave what it started with, either way."""


@part
def _over(price: float, free: int) -> Any:
    """Ticks for what a device lacks."""
    return price * -free if free < 0 else 0.0


@part
def _shift(
    v: int, to: int, device: Ints, cost: Ints, need: Ints, free: Ints, plan: Ints, member: Ints, count: Ints, at: Ints
) -> Any:  # fmt: skip
    """Give a stage an option; what that adds to the cost."""
    before = plan[v]
    d, e = device[before], device[to]
    free[d] += need[before]
    free[e] -= need[to]
    plan[v] = to
    if d != e:
        count[d] -= 1
        last = member[d, count[d]]
        member[d, at[v]] = last
        at[last] = at[v]
        member[e, count[e]] = v
        at[v] = count[e]
        count[e] += 1
    return cost[to] - cost[before]


@part
def _keep(free: Ints, plan: Ints, best: Ints, values: Ints) -> None:
    """Take the plan for the best one where it is better and fits."""
    if values[0] < values[1] and free.min() >= 0:
        values[1] = values[0]
        best[:] = plan


@part
def _best_chain(
    v: int, ptr: Ints, device: Ints, cost: Ints, need: Ints, free: Ints, price: Floats, plan: Ints, member: Ints,
    count: Ints, least: Ints, looks: Ints,
) -> tuple[int, int, int]:  # fmt: skip
    """The shift of a stage that gains most, alone or with one that it ejects from where it goes.

    Its option, or −1 where nothing gains; the stage ejected, or −1; and that one's option.
    """
    option, ejected, its = -1, -1, -1
    best = -_LEAST_GAIN
    now = plan[v]
    home = device[now]
    room = free[home] + need[now]
    over_home, over_room = _over(price[home], free[home]), _over(price[home], room)
    for o in range(ptr[v], ptr[v + 1]):
        d = device[o]
        if o == now:
            continue
        if d == home:
            gain = cost[o] - cost[now] + _over(price[home], room - need[o]) - over_home
            if gain < best:
                best, option, ejected = gain, o, -1
            continue
        looks[0] -= 1 + count[d]
        left = free[d] - need[o]
        moved = cost[o] - cost[now] + over_room - over_home - _over(price[d], free[d])
        if moved + _over(price[d], left) < best:
            best, option, ejected = moved + _over(price[d], left), o, -1
        for i in range(count[d]):
            w = member[d, i]
            without = moved + _over(price[d], left + need[plan[w]]) - cost[plan[w]]
            if without + least[w] - over_room >= best:
                continue
            for p in range(ptr[w], ptr[w + 1]):
                e = device[p]
                if e == d:
                    continue
                gain = without + cost[p]
                if e == home:
                    gain += _over(price[e], room - need[p]) - over_room
                else:
                    gain += _over(price[e], free[e] - need[p]) - _over(price[e], free[e])
                if gain < best:
                    best, option, ejected, its = gain, o, w, p
    return option, ejected, its


@kernel
def chains(
    ptr: Ints, device: Ints, cost: Ints, need: Ints, first: Floats, price: Floats, free: Ints, plan: Ints, best: Ints,
    values: Ints, kicked: int, looks: Ints, state: Any,
) -> None:  # fmt: skip
    """Chains until none gains, and again after kicks, which begin at the best plan that fits.

    Parameters
    ----------
    ptr (V + 1,)
        Where the options of every stage begin.
    device, cost, need (O,)
        The one device of every option, its ticks, and what it takes of the device.
    first, price (D,)
        Ticks per unit that a device lacks: at the beginning of all, and now.
    free (D,), plan (V,)
        What the plan leaves of every device, below 0 where that is overloaded; its options.
    best (V,), values (3,)
        The best plan that fits, −1 without one; ticks of the plan and of the best one, and how many chains were made.
    kicked
        Stages that a kick puts on a random option, at most.
    looks (1,)
        How many stages that may be ejected are looked at; counts down.
    state
        Of the random numbers.
    """
    V, D = len(plan), len(free)
    member, count, at = np.empty((D, V), np.int64), np.zeros(D, np.int64), np.empty(V, np.int64)
    least, order = np.empty(V, np.int64), np.arange(V)
    for v in range(V):
        d = device[plan[v]]
        member[d, count[d]] = v
        at[v] = count[d]
        count[d] += 1
        least[v] = cost[ptr[v] : ptr[v + 1]].min()
    while looks[0] > 0:
        looks[0] -= V
        for i in range(V - 1, 0, -1):
            j = int(uniform(state) * (i + 1))
            order[i], order[j] = order[j], order[i]
        _keep(free, plan, best, values)
        i = idle = 0
        while idle < V and looks[0] > 0:
            v, idle = order[i], idle + 1
            i = i + 1 if i + 1 < V else 0
            option, ejected, its = _best_chain(
                v, ptr, device, cost, need, free, price, plan, member, count, least, looks
            )
            if option < 0:
                continue
            idle = 0
            values[2] += 1
            values[0] += _shift(v, option, device, cost, need, free, plan, member, count, at)
            if ejected >= 0:
                values[0] += _shift(ejected, its, device, cost, need, free, plan, member, count, at)
            _keep(free, plan, best, values)
        if looks[0] <= 0:
            break
        fits = free.min() >= 0
        for d in range(D):
            changed = price[d] * (_CHEAPER if fits else _DEARER if free[d] < 0 else 1.0)
            price[d] = min(max(changed, first[d] / _PRICE_RANGE), first[d] * _PRICE_RANGE)
        if best[0] >= 0:
            for v in range(V):
                if plan[v] != best[v]:
                    values[0] += _shift(v, best[v], device, cost, need, free, plan, member, count, at)
        for _ in range(1 + int(uniform(state) * kicked)):
            v = int(uniform(state) * V)
            to = ptr[v] + int(uniform(state) * (ptr[v + 1] - ptr[v]))
            values[0] += _shift(v, to, device, cost, need, free, plan, member, count, at)


KERNELS: dict[str, tuple[Any, str]] = {
    "chains": (
        chains,
        "void(int64[::1], int64[::1], int64[::1], int64[::1], float64[::1], float64[::1], int64[::1], int64[::1], "
        "int64[::1], int64[::1], int64, int64[::1], uint64[::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
