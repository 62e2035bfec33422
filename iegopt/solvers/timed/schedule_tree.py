"""Branch and bound over the schedules of a few stages, compiled: what proves a plan the best in milliseconds.

A schedule grows in the order of its starts: a stage whose inputs are known takes an option, and starts as soon as these
are there and its device is free, not before the last one did. For any options and orders of the devices the soonest
schedule is among these, each once (semi-active schedules; Sprecher, Kolisch, Drexl 1995). No partial one ends before

- any stage that is left, on its best option, and the longest path of least times behind it;
- Σ_d y_d · free_d + Σ_v min_o y_d(o) · time_o, over the stages left, for any y that sums to 1: dual to sharing them
  out among the devices in parts (Lenstra, Shmoys, Tardos 1990). Here y_d is inverse to what device d would take for
  everything, which is best where every stage is as many times quicker on one device than on another.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import kernel, part

__all__ = ["KERNELS", "explore"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Layout = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""As in ``kernels``."""
_CHOSEN, _START, _FINISH = 0, 1, 2
"""Rows of a plan (3, V), the option −1 where it is open."""
_ORDER, _PLACE, _LEAST, _CHEAPEST, _TAIL, _SOONEST = 0, 1, 2, 3, 4, 5
"""Rows of what is known of stages (6, V): all in an order that keeps the edges, and the place of each in it; least time
and cost of its options; the longest path of least times behind it; its soonest finish in the schedule at hand."""
_NEXT, _COUNT, _CHILDREN = 0, 1, 2
"""Columns of a frame: which child is next, how many there are (−1: not known yet), and their options."""
_ROUNDING = 1 - 1e-12
"""The share of a bound in floats that surely holds."""


@part
def _figures(
    ptr: Ints, device: Ints, time: Ints, cost: Ints, in_ptr: Ints, out_ptr: Ints, out_target: Ints, stages: Ints,
    rate: Floats, work: Floats,
) -> None:  # fmt: skip
    """Fill in ``stages``, y in ``rate`` (D,), and min_o y · time in ``work`` (V,)."""
    V, last = len(ptr) - 1, 0
    order, place = stages[_ORDER], stages[_PLACE]
    missing = in_ptr[1:] - in_ptr[:-1]
    for v in range(V):
        stages[_LEAST, v] = time[ptr[v] : ptr[v + 1]].min()
        stages[_CHEAPEST, v] = cost[ptr[v] : ptr[v + 1]].min()
        stages[_TAIL, v] = 0
        if missing[v] == 0:
            order[last] = v
            last += 1
    for k in range(V):
        v = order[k]
        place[v] = k
        for i in range(out_ptr[v], out_ptr[v + 1]):
            w = out_target[i]
            missing[w] -= 1
            if missing[w] == 0:
                order[last] = w
                last += 1
    for v in order[::-1]:
        for i in range(out_ptr[v], out_ptr[v + 1]):
            w = out_target[i]
            stages[_TAIL, v] = max(stages[_TAIL, v], stages[_LEAST, w] + stages[_TAIL, w])
    rate[:] = 0.0
    work[:] = 0.0
    if len(rate) > 0:
        for o in range(len(time)):
            rate[device[o]] += time[o]
        total = 0.0
        for d in range(len(rate)):
            rate[d] = 1.0 / rate[d] if rate[d] > 0.0 else 0.0
            total += rate[d]
        if total > 0.0:
            rate /= total
        for v in range(V):
            work[v] = rate[device[ptr[v]]] * time[ptr[v]]
            for o in range(ptr[v] + 1, ptr[v + 1]):
                work[v] = min(work[v], rate[device[o]] * time[o])


@part
def _costs_of_time(times: int, parts: int, makespan: int) -> int:
    """⌈times · makespan / parts⌉."""
    return (times * makespan + parts - 1) // parts


@part
def _offer(
    site: Ints, device: Ints, time: Ints, cost: Ints, in_ptr: Ints, in_edge: Ints, in_source: Ints, moved: Ints,
    paid: Ints, sites: int, plan: Ints, free: Ints, v: int, o: int,
) -> tuple[int, int]:  # fmt: skip
    """The soonest start of a stage on an option, its inputs being placed, and what it costs with these."""
    at, spent = 0, cost[o]
    for i in range(in_ptr[v], in_ptr[v + 1]):
        u = in_source[i]
        link = (in_edge[i] * sites + site[plan[_CHOSEN, u]]) * sites + site[o]
        at = max(at, plan[_FINISH, u] + moved[link])
        if len(paid) > 0:
            spent += paid[link]
    if time[o] > 0 and len(free) > 0:
        at = max(at, free[device[o]])
    return at, spent


@part
def _look(
    ptr: Ints, site: Ints, device: Ints, time: Ints, cost: Ints, in_ptr: Ints, in_edge: Ints, in_source: Ints,
    moved: Ints, paid: Ints, sites: int, times: int, parts: int, stages: Ints, rate: Floats, work: Floats, plan: Ints,
    free: Ints, spent: int, last: int, known: int, keys: Ints, frame: Ints,
) -> None:  # fmt: skip
    """Fill a frame with the options that can follow stage ``last`` (−1: none), the first to end first.

    Those are left out, and all where none can, that lead to nothing better than ``known``.
    """
    now, place = (plan[_START, last], stages[_PLACE, last]) if last >= 0 else (0, -1)
    frame[_NEXT], frame[_COUNT] = 0, 0
    shared, cheapest = 0.0, 0
    for d in range(len(free)):
        shared += rate[d] * max(free[d], now)
    for v in range(len(ptr) - 1):
        if plan[_CHOSEN, v] < 0:
            shared += work[v]
            cheapest += stages[_CHEAPEST, v]
    ends = int(np.ceil(shared * _ROUNDING))
    for v in stages[_ORDER]:
        if plan[_CHOSEN, v] >= 0:
            ends = max(ends, plan[_FINISH, v])
            continue
        ready, soonest = True, now
        for i in range(in_ptr[v], in_ptr[v + 1]):
            u = in_source[i]
            if plan[_CHOSEN, u] < 0:
                ready = False
                soonest = max(soonest, stages[_SOONEST, u])
            else:
                soonest = max(soonest, plan[_FINISH, u])
        finish = -1 if ready else soonest + stages[_LEAST, v]
        for o in range(ptr[v], ptr[v + 1] if ready else ptr[v]):
            at, extra = _offer(
                site, device, time, cost, in_ptr, in_edge, in_source, moved, paid, sites, plan, free, v, o
            )  # fmt: skip
            end = max(at, now) + time[o]
            finish = end if finish < 0 else min(finish, end)
            if at < now or (at == now and stages[_PLACE, v] < place):
                continue
            least = spent + extra + cheapest - stages[_CHEAPEST, v]
            if least + _costs_of_time(times, parts, end + stages[_TAIL, v]) >= known:
                continue
            k = frame[_COUNT]
            frame[_COUNT] += 1
            while k > 0 and keys[k - 1] > end:
                keys[k], frame[_CHILDREN + k] = keys[k - 1], frame[_CHILDREN + k - 1]
                k -= 1
            keys[k], frame[_CHILDREN + k] = end, o
        stages[_SOONEST, v] = finish
        ends = max(ends, finish + stages[_TAIL, v])
    if spent + cheapest + _costs_of_time(times, parts, ends) >= known:
        frame[_COUNT] = 0


@part
def _value(
    site: Ints, cost: Ints, in_ptr: Ints, in_edge: Ints, in_source: Ints, paid: Ints, sites: int, times: int,
    parts: int, chosen: Ints, finish: Ints,
) -> int:  # fmt: skip
    """What a whole plan costs, in ticks."""
    total = _costs_of_time(times, parts, finish.max())
    for v in range(len(chosen)):
        total += cost[chosen[v]]
        if len(paid) > 0:
            for i in range(in_ptr[v], in_ptr[v + 1]):
                total += paid[(in_edge[i] * sites + site[chosen[in_source[i]]]) * sites + site[chosen[v]]]
    return total


@kernel
def explore(
    layout: Layout, sites: int, devices: int, weight: float, times: int, parts: int, steps: int, values: Floats,
    plans: Ints, frames: Ints, depth: Ints,
) -> None:  # fmt: skip
    """Look at so many partial schedules, from where the last call ended.

    Parameters
    ----------
    times, parts
        The weight of the makespan as a fraction; ``times`` · any makespan is below 2⁶².
    steps
        How many.
    values, plans
        As in ``kernels.walk``, the best plan alone, which there is.
    frames (V, 2 + K)
        The way from the empty schedule to the one at hand: per stage of it the options that may come next. At first −1.
    depth (1,)
        Stages of the schedule at hand, 0 at first; −1 when all are done: there is no better plan than the best.
    """
    ptr, site, device, time, cost, in_ptr, in_edge, in_source, out_ptr, out_target, moved, paid = layout
    V = len(ptr) - 1
    stages, rate, work = np.empty((6, V), dtype=np.int64), np.empty(devices), np.empty(V)
    _figures(ptr, device, time, cost, in_ptr, out_ptr, out_target, stages, rate, work)
    known = _value(site, cost, in_ptr, in_edge, in_source, paid, sites, times, parts, plans[2], plans[4])
    owner = np.empty(len(site), dtype=np.int64)
    for v in range(V):
        owner[ptr[v] : ptr[v + 1]] = v
    plan, free = np.full((3, V), -1, dtype=np.int64), np.zeros(devices, dtype=np.int64)
    keys = np.empty(len(site), dtype=np.int64)
    spent, freed = np.zeros(V + 1, dtype=np.int64), np.zeros(V, dtype=np.int64)
    path = np.full(V + 1, -1, dtype=np.int64)
    level, target = 0, depth[0]
    while level >= 0:
        frame = frames[level]
        if level < target:  # to where the last call ended
            k = frame[_NEXT] - 1
        else:
            target = -1
            if frame[_COUNT] < 0:
                if steps == 0:
                    break
                steps -= 1
                _look(
                    ptr, site, device, time, cost, in_ptr, in_edge, in_source, moved, paid, sites, times, parts, stages,
                    rate, work, plan, free, spent[level], path[level], known, keys, frame,
                )  # fmt: skip
            k = frame[_NEXT]
            frame[_NEXT] += 1
        if k == frame[_COUNT]:
            frame[_COUNT] = -1
            level -= 1
        else:
            o = frame[_CHILDREN + k]
            v = owner[o]
            at, extra = _offer(
                site, device, time, cost, in_ptr, in_edge, in_source, moved, paid, sites, plan, free, v, o
            )  # fmt: skip
            plan[_CHOSEN, v], plan[_START, v], plan[_FINISH, v] = o, at, at + time[o]
            spent[level + 1] = spent[level] + extra
            if time[o] > 0 and devices > 0:
                freed[level] = free[device[o]]
                free[device[o]] = at + time[o]
            level += 1
            path[level] = v
            if level < V:
                continue
            makespan = plan[_FINISH].max()
            value = spent[V] + _costs_of_time(times, parts, makespan)
            if value < known:
                known = value
                values[1] = spent[V] + weight * makespan
                plans[2], plans[3], plans[4] = plan[_CHOSEN], plan[_START], plan[_FINISH]
            level -= 1
        if level >= 0:
            v = path[level + 1]
            o = plan[_CHOSEN, v]
            plan[_CHOSEN, v] = -1
            if time[o] > 0 and devices > 0:
                free[device[o]] = freed[level]
    depth[0] = level


KERNELS: dict[str, tuple[Any, str]] = {
    "explore": (
        explore,
        "void(UniTuple(int64[::1], 12), int64, int64, float64, int64, int64, int64, float64[::1], int64[:, ::1], "
        "int64[:, ::1], int64[::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
