"""A walk over list schedules as a loop that numba compiles (the extra ``fast``; see ``exact.kernels``).

What it walks over is a priority of every stage, and for some of them an option that they have to take. From these, list
scheduling makes a plan: stages by priority once their predecessors are placed, each at the first gap of its device, on
its own option or else the one of least score. A step changes a few of both; a plan that is not much worse may be the
next to start from (threshold accepting), and after many steps without a better one the best is.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import kernel, part, uniform

__all__ = ["KERNELS", "Layout", "schedules", "walk"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Layout = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""What stages, options, edges and links look like.

- options: ptr (V + 1,), site, device, time and cost (K,) of the allowed ones;
- edges into a stage: in_ptr (V + 1,), in_edge and in_source (E,); out of one: out_ptr (V + 1,), out_target (E,);
- ticks of transfer and what they cost: moved and paid (E · S · S,), the last empty where nothing is paid.
"""


@part
def _gap(begin: Ints, end: Ints, count: int, at: int, length: int) -> Any:
    """The first moment from ``at`` on that none of the spans, in their order, keeps from lasting ``length``."""
    if count == 0 or at >= end[count - 1]:
        return at
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if at < end[middle]:
            high = middle
        else:
            low = middle + 1
    for k in range(low, count):
        if begin[k] >= at + length:
            return at
        at = end[k]
    return at


@part
def _occupy(begin: Ints, end: Ints, count: int, at: int, finish: int) -> None:
    """Enter a span in its order."""
    k = count
    while k > 0 and begin[k - 1] > at:
        begin[k] = begin[k - 1]
        end[k] = end[k - 1]
        k -= 1
    begin[k] = at
    end[k] = finish


@part
def _comes_before(priority: Floats, v: int, w: int) -> bool:
    return bool(priority[v] > priority[w] or (priority[v] == priority[w] and v < w))


@part
def _build(
    layout: Layout, sites: int, weight: float, priority: Floats, pinned: Ints, noise: float, state: Any, begin: Any,
    end: Any, count: Ints, missing: Ints, ready: Ints, chosen: Ints, start: Ints, finish: Ints,
) -> float:  # fmt: skip
    """Fill in ``chosen`` (positions among the K options) and the times; what the plan costs, in ticks."""
    ptr, site, device, time, cost, in_ptr, in_edge, in_source, out_ptr, out_target, moved, paid = layout
    V = len(ptr) - 1
    count[:] = 0
    total = 0.0
    makespan = 0
    known = 0
    for v in range(V):
        missing[v] = in_ptr[v + 1] - in_ptr[v]
        if missing[v] == 0:
            ready[known] = v
            known += 1
    for _ in range(V):
        first_of_all = 0
        for k in range(1, known):
            if _comes_before(priority, ready[k], ready[first_of_all]):
                first_of_all = k
        v = ready[first_of_all]
        known -= 1
        ready[first_of_all] = ready[known]
        first, last = ptr[v], ptr[v + 1]
        if pinned[v] >= 0:
            first, last = pinned[v], pinned[v] + 1
        best = -1
        best_score = 0.0
        best_at = 0
        best_cost = 0.0
        for o in range(first, last):
            at = 0
            spent = float(cost[o])
            for i in range(in_ptr[v], in_ptr[v + 1]):
                u = in_source[i]
                link = (in_edge[i] * sites + site[chosen[u]]) * sites + site[o]
                at = max(at, finish[u] + moved[link])
                if len(paid) > 0:
                    spent += paid[link]
            if best >= 0 and noise == 0.0 and spent + weight * (at + time[o]) >= best_score:
                continue
            if time[o] > 0 and len(count) > 0:
                d = device[o]
                at = _gap(begin[d], end[d], count[d], at, time[o])
            score = spent + weight * (at + time[o])
            if noise > 0.0:
                score += noise * uniform(state)
            if best < 0 or score < best_score:
                best = o
                best_score = score
                best_at = at
                best_cost = spent
        chosen[v] = best
        start[v] = best_at
        finish[v] = best_at + time[best]
        total += best_cost
        makespan = max(makespan, finish[v])
        if time[best] > 0 and len(count) > 0:
            d = device[best]
            _occupy(begin[d], end[d], count[d], best_at, finish[v])
            count[d] += 1
        for i in range(out_ptr[v], out_ptr[v + 1]):
            w = out_target[i]
            missing[w] -= 1
            if missing[w] == 0:
                ready[known] = w
                known += 1
    return total + weight * makespan


@part
def _change(ptr: Ints, ranks: Floats, priority: Floats, pinned: Ints, state: Any) -> None:
    """One to three small changes of priorities and pins."""
    V = len(ptr) - 1
    for _ in range(1 + int(uniform(state) * 3)):
        v = int(uniform(state) * V)
        kind = uniform(state)
        if kind < 0.1:
            priority[v] = ranks[v]
        elif kind < 0.55:
            priority[v] *= 0.7 + 0.7 * uniform(state)
        elif kind < 0.8:
            pinned[v] = ptr[v] + int(uniform(state) * (ptr[v + 1] - ptr[v]))
        else:
            pinned[v] = -1


@kernel
def walk(
    layout: Layout, sites: int, devices: int, weight: float, mean: float, ranks: Floats, slack: float, steps: int,
    state: Any, values: Floats, priorities: Floats, plans: Ints,
) -> None:  # fmt: skip
    """Take steps from the current plan.

    Parameters
    ----------
    sites, devices
        How many; 0 devices where stages may overlap.
    weight
        Of a tick of makespan.
    mean
        Ticks: the mean time of a stage.
    ranks (V,)
        Priorities to which changed ones return.
    slack
        By what share a plan may be worse and still be the next.
    state
        Of the random numbers.
    values
        Costs of the current and of the best plan in ticks, and steps since a better one; infinite at the start.
    priorities (2, V)
        Of the current and the best plan.
    plans (5, V)
        Pins of the current and the best plan (positions among the K options, −1 for none); chosen options, start and
        finish of the best.
    """
    ptr = layout[0]
    V = len(ptr) - 1
    begin = np.empty((devices, V), dtype=np.int64)
    end = np.empty((devices, V), dtype=np.int64)
    count = np.empty(devices, dtype=np.int64)
    missing, ready = np.empty(V, dtype=np.int64), np.empty(V, dtype=np.int64)
    chosen = np.empty(V, dtype=np.int64)
    start = np.empty(V, dtype=np.int64)
    finish = np.empty(V, dtype=np.int64)
    priority = priorities[0].copy()
    pinned = plans[0].copy()
    for _ in range(steps):
        noise = 0.0
        if values[0] < np.inf:
            priority[:] = priorities[0]
            pinned[:] = plans[0]
            _change(ptr, ranks, priority, pinned, state)
            kind = uniform(state)
            if kind < 0.1:
                pinned[:] = -1
            if kind < 0.3:
                amount = uniform(state)
                noise = mean * weight * (0.001 if amount < 0.34 else 0.1 if amount < 0.67 else 0.5)
        value = _build(
            layout, sites, weight, priority, pinned, noise, state, begin, end, count, missing, ready, chosen, start,
            finish,
        )  # fmt: skip
        values[2] += 1
        if value <= values[0] * (1.0 + slack):
            values[0] = value
            priorities[0] = priority
            plans[0] = pinned if noise == 0.0 else chosen
        if value < values[1]:
            values[1] = value
            values[2] = 0
            priorities[1] = priority
            plans[1] = plans[0]
            plans[2] = chosen
            plans[3] = start
            plans[4] = finish
        elif values[2] > 20.0 * V:
            values[0] = values[1]
            values[2] = 0
            priorities[0] = priorities[1]
            plans[0] = plans[1]


@kernel
def schedules(
    layout: Layout, sites: int, devices: int, weight: float, openings: Floats, pins: Ints, values: Floats,
    priorities: Floats, plans: Ints,
) -> None:  # fmt: skip
    """The list schedules of given priorities and pins (openings, V), the best of which is where a walk goes on.

    The other parameters are as in ``walk``.
    """
    V = len(layout[0]) - 1
    begin = np.empty((devices, V), dtype=np.int64)
    end = np.empty((devices, V), dtype=np.int64)
    count = np.empty(devices, dtype=np.int64)
    missing, ready = np.empty(V, dtype=np.int64), np.empty(V, dtype=np.int64)
    chosen, start, finish = np.empty(V, dtype=np.int64), np.empty(V, dtype=np.int64), np.empty(V, dtype=np.int64)
    state = np.zeros(1, dtype=np.uint64)
    for each in range(len(openings)):
        value = _build(
            layout, sites, weight, openings[each], pins[each], 0.0, state, begin, end, count, missing, ready, chosen,
            start, finish,
        )  # fmt: skip
        if value < values[1]:
            values[1] = value
            priorities[1] = openings[each]
            plans[1] = pins[each]
            plans[2] = chosen
            plans[3] = start
            plans[4] = finish
    values[0] = values[1]
    priorities[0] = priorities[1]
    plans[0] = plans[1]


KERNELS: dict[str, tuple[Any, str]] = {
    "schedules": (
        schedules,
        "void(UniTuple(int64[::1], 12), int64, int64, float64, float64[:, ::1], int64[:, ::1], float64[::1], "
        "float64[:, ::1], int64[:, ::1])",
    ),
    "walk": (
        walk,
        "void(UniTuple(int64[::1], 12), int64, int64, float64, float64, float64[::1], float64, int64, uint64[::1], "
        "float64[::1], float64[:, ::1], int64[:, ::1])",
    ),
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
