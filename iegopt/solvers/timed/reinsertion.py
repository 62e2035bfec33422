"""Local search over the orders of the devices, compiled: a stage that the end waits for goes where it does least harm.

A plan is here an option of every stage and the order of the stages of every device; each stage runs as soon as its
inputs and the one before it are done. A step takes one stage out. From then on, nothing before it moves, so the longest
path through it is exact for every option and every place that closes no circle: after all stages of a device that it
depends on, before all that depend on it (Mastrolilli, Gambardella 2000). The best one is taken, also where it is worse
than the one left by a certain share (threshold accepting), and the stage then stays for some steps; after many steps
without a better plan the best is the next to start from.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import kernel, part, uniform

__all__ = ["KERNELS", "reinsert"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Layout = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""As in ``kernels``."""
_STAGE, _IN, _OUT = 0, 1, 2
_SITE, _DEVICE, _TIME, _COST = 0, 1, 2, 3
_EDGE, _END = 0, 1
_CHOSEN, _LENGTH, _NEXT, _PREVIOUS, _ORDER, _PLACE, _FINISH, _TAIL = 0, 1, 2, 3, 4, 5, 6, 7
"""Rows of what the parts below work on: a tuple of arrays would have its references counted at every call, which takes
longer than the rest.

- ptr (3, V + 1): where the options of a stage and the edges into it and out of it begin;
- option (4, K): site, device, ticks of time and of cost;
- into and out (2, E): edges by their targets and by their sources, each with the stage at the other end;
- plan (8, V): the chosen option, ticks it takes; the stages after and before on its device, −1 for none; all stages in
  an order that keeps all of these, and the place of a stage in it; its finish, and the longest path from there to the
  end of all;
- lag (E,): ticks of transfer under the plan; first (D,): the first stage of a device, −1 for none.
"""


@part
def _packed(layout: Layout, ptr: Ints, option: Ints, into: Ints, out: Ints) -> None:
    ptr[_STAGE], ptr[_IN], ptr[_OUT] = layout[0], layout[5], layout[8]
    option[_SITE], option[_DEVICE], option[_TIME], option[_COST] = layout[1], layout[2], layout[3], layout[4]
    into[_EDGE], into[_END] = layout[6], layout[7]
    filled = layout[8][:-1].copy()
    for w in range(ptr.shape[1] - 1):
        for i in range(ptr[_IN, w], ptr[_IN, w + 1]):
            u = into[_END, i]
            out[_EDGE, filled[u]], out[_END, filled[u]] = into[_EDGE, i], w
            filled[u] += 1


@part
def _spent(
    ptr: Ints, option: Ints, into: Ints, out: Ints, paid: Ints, sites: int, plan: Ints, v: int, o: int, both: bool
) -> float:  # fmt: skip
    """What an option of a stage costs with the transfers to it, and with those from it where ``both``."""
    total = float(option[_COST, o])
    if len(paid) == 0:
        return total
    here = option[_SITE, o]
    for i in range(ptr[_IN, v], ptr[_IN, v + 1]):
        total += paid[(into[_EDGE, i] * sites + option[_SITE, plan[_CHOSEN, into[_END, i]]]) * sites + here]
    if both:
        for i in range(ptr[_OUT, v], ptr[_OUT, v + 1]):
            total += paid[(out[_EDGE, i] * sites + here) * sites + option[_SITE, plan[_CHOSEN, out[_END, i]]]]
    return total


@part
def _choose(
    ptr: Ints, option: Ints, into: Ints, out: Ints, moved: Ints, sites: int, plan: Ints, lag: Ints, v: int, o: int
) -> None:  # fmt: skip
    """Give a stage an option: its time and its transfers."""
    here = option[_SITE, o]
    plan[_CHOSEN, v], plan[_LENGTH, v] = o, option[_TIME, o]
    for i in range(ptr[_IN, v], ptr[_IN, v + 1]):
        e = into[_EDGE, i]
        lag[e] = moved[(e * sites + option[_SITE, plan[_CHOSEN, into[_END, i]]]) * sites + here]
    for i in range(ptr[_OUT, v], ptr[_OUT, v + 1]):
        e = out[_EDGE, i]
        lag[e] = moved[(e * sites + here) * sites + option[_SITE, plan[_CHOSEN, out[_END, i]]]]


@part
def _link(option: Ints, plan: Ints, first: Ints, v: int, before: int, after: int) -> None:
    """Enter a stage between two of its device."""
    plan[_PREVIOUS, v], plan[_NEXT, v] = before, after
    if len(first) == 0 or plan[_LENGTH, v] == 0:
        return
    if before >= 0:
        plan[_NEXT, before] = v
    else:
        first[option[_DEVICE, plan[_CHOSEN, v]]] = v
    if after >= 0:
        plan[_PREVIOUS, after] = v


@part
def _unlink(option: Ints, plan: Ints, first: Ints, v: int) -> None:
    if len(first) == 0 or plan[_LENGTH, v] == 0:
        return
    before, after = plan[_PREVIOUS, v], plan[_NEXT, v]
    if before >= 0:
        plan[_NEXT, before] = after
    else:
        first[option[_DEVICE, plan[_CHOSEN, v]]] = after
    if after >= 0:
        plan[_PREVIOUS, after] = before


@part
def _adopt(
    ptr: Ints, option: Ints, into: Ints, out: Ints, moved: Ints, paid: Ints, sites: int, plan: Ints, lag: Ints,
    first: Ints, chosen: Ints, start: Ints,
) -> float:  # fmt: skip
    """Take over a plan with its start times; what it costs without the makespan."""
    plan[_CHOSEN] = chosen
    first[:] = -1
    total = 0.0
    for v in range(len(chosen)):
        o = chosen[v]
        _choose(ptr, option, into, out, moved, sites, plan, lag, v, o)
        total += _spent(ptr, option, into, out, paid, sites, plan, v, o, False)
        before, after = -1, -1
        if len(first) > 0 and option[_TIME, o] > 0:
            after = first[option[_DEVICE, o]]
            while after >= 0 and start[after] < start[v]:
                before, after = after, plan[_NEXT, after]
        _link(option, plan, first, v, before, after)
    return total


@part
def _time(ptr: Ints, into: Ints, out: Ints, plan: Ints, lag: Ints, missing: Ints, critical: Ints) -> Any:
    """Order and times of all stages; the makespan, and how many stages, first in ``critical``, it waits for."""
    V = plan.shape[1]
    known = 0
    for v in range(V):
        missing[v] = ptr[_IN, v + 1] - ptr[_IN, v] + (plan[_PREVIOUS, v] >= 0)
        if missing[v] == 0:
            plan[_ORDER, known] = v
            known += 1
    makespan = 0
    for k in range(V):
        v = plan[_ORDER, k]
        plan[_PLACE, v] = k
        before = plan[_PREVIOUS, v]
        at = 0 if before < 0 else plan[_FINISH, before]
        for i in range(ptr[_IN, v], ptr[_IN, v + 1]):
            at = max(at, plan[_FINISH, into[_END, i]] + lag[into[_EDGE, i]])
        plan[_FINISH, v] = at + plan[_LENGTH, v]
        makespan = max(makespan, plan[_FINISH, v])
        last = ptr[_OUT, v + 1]
        for i in range(ptr[_OUT, v], last + 1):
            w = out[_END, i] if i < last else plan[_NEXT, v]
            if w >= 0:
                missing[w] -= 1
                if missing[w] == 0:
                    plan[_ORDER, known] = w
                    known += 1
    count = 0
    for k in range(V - 1, -1, -1):
        v = plan[_ORDER, k]
        w = plan[_NEXT, v]
        after = 0 if w < 0 else plan[_LENGTH, w] + plan[_TAIL, w]
        for i in range(ptr[_OUT, v], ptr[_OUT, v + 1]):
            w = out[_END, i]
            after = max(after, lag[out[_EDGE, i]] + plan[_LENGTH, w] + plan[_TAIL, w])
        plan[_TAIL, v] = after
        if plan[_FINISH, v] + after == makespan:
            critical[count] = v
            count += 1
    return makespan, count


@part
def _without(ptr: Ints, into: Ints, out: Ints, plan: Ints, lag: Ints, v: int, rest: Ints) -> Any:
    """The makespan of the others where a stage is taken out, and in ``rest`` (3, V) their finish, tail and side.

    The side tells who depends on the stage (1), and on whom it depends (−1), the orders of the devices counted in.
    """
    place, makespan = plan[_PLACE, v], 0
    for k in range(place):
        u = plan[_ORDER, k]
        rest[0, u], rest[2, u] = plan[_FINISH, u], 0
        makespan = max(makespan, rest[0, u])
    for k in range(place + 1, plan.shape[1]):
        w = plan[_ORDER, k]
        u = plan[_PREVIOUS, w]
        at = 0 if u < 0 else rest[0, u]
        side = 0 if u < 0 else max(0, rest[2, u])
        for i in range(ptr[_IN, w], ptr[_IN, w + 1]):
            u = into[_END, i]
            if u == v:
                side = 1
            else:
                at = max(at, rest[0, u] + lag[into[_EDGE, i]])
                side = max(side, rest[2, u])
        rest[0, w], rest[1, w], rest[2, w] = at + plan[_LENGTH, w], plan[_TAIL, w], side
        makespan = max(makespan, rest[0, w])
    for k in range(place - 1, -1, -1):
        u = plan[_ORDER, k]
        w = plan[_NEXT, u]
        after = 0 if w < 0 else plan[_LENGTH, w] + rest[1, w]
        side = 0 if w < 0 else min(0, rest[2, w])
        for i in range(ptr[_OUT, u], ptr[_OUT, u + 1]):
            w = out[_END, i]
            if w == v:
                side = -1
            else:
                after = max(after, lag[out[_EDGE, i]] + plan[_LENGTH, w] + rest[1, w])
                side = min(side, rest[2, w])
        rest[1, u], rest[2, u] = after, side
    return makespan


@part
def _best_place(
    ptr: Ints, option: Ints, into: Ints, out: Ints, moved: Ints, paid: Ints, sites: int, weight: float, plan: Ints,
    first: Ints, v: int, others: float, makespan: int, rest: Ints, state: Any, found: Ints,
) -> float:  # fmt: skip
    """What the plan costs with stage v at its best other place; the option, the stages before and after in ``found``.

    ``others`` is what all else costs and ``makespan`` when it ends. Of equals, the place with the shortest path through
    v, and then any.
    """
    best, shortest, ties = np.inf, 0, 1.0
    for o in range(ptr[_STAGE, v], ptr[_STAGE, v + 1]):
        here, time = option[_SITE, o], option[_TIME, o]
        arrival, behind = 0, 0
        for i in range(ptr[_IN, v], ptr[_IN, v + 1]):
            u = into[_END, i]
            link = (into[_EDGE, i] * sites + option[_SITE, plan[_CHOSEN, u]]) * sites + here
            arrival = max(arrival, rest[0, u] + moved[link])
        for i in range(ptr[_OUT, v], ptr[_OUT, v + 1]):
            w = out[_END, i]
            link = (out[_EDGE, i] * sites + here) * sites + option[_SITE, plan[_CHOSEN, w]]
            behind = max(behind, moved[link] + plan[_LENGTH, w] + rest[1, w])
        spent = others + _spent(ptr, option, into, out, paid, sites, plan, v, o, True)
        if spent + weight * max(makespan, arrival + time + behind) > best:
            continue
        before, after = -1, -1
        if len(first) > 0 and time > 0:
            after = first[option[_DEVICE, o]]
        u = after
        while u >= 0 and rest[2, u] <= 0:
            if rest[2, u] < 0:
                before, after = u, plan[_NEXT, u]
            u = plan[_NEXT, u]
        while True:
            path = arrival if before < 0 else max(arrival, rest[0, before])
            path += time + (behind if after < 0 else max(behind, plan[_LENGTH, after] + rest[1, after]))
            value = spent + weight * max(makespan, path)
            own = o == plan[_CHOSEN, v] and before == plan[_PREVIOUS, v] and after == plan[_NEXT, v]
            if value <= best and not own:
                if value < best or path < shortest:
                    ties = 0.0
                if ties == 0.0 or path == shortest:
                    ties += 1.0
                    if uniform(state) * ties < 1.0:
                        best, shortest = value, path
                        found[0], found[1], found[2] = o, before, after
            if after < 0 or rest[2, after] > 0:
                break
            before, after = after, plan[_NEXT, after]
    return best


@kernel
def reinsert(
    layout: Layout, sites: int, devices: int, weight: float, slack: float, anywhere: float, steps: int, state: Any,
    values: Floats, plans: Ints,
) -> None:  # fmt: skip
    """Take steps from the best plan.

    Parameters
    ----------
    slack
        By what share a plan may be worse and still be the next.
    anywhere
        Share of the steps that take a stage for which the end does not have to wait.
    values, plans
        As in ``kernels.walk``, the best plan alone.
    """
    moved, paid = layout[10], layout[11]
    V, E = len(layout[0]) - 1, len(layout[6])
    ptr, option = np.empty((3, V + 1), dtype=np.int64), np.empty((4, len(layout[1])), dtype=np.int64)
    into, out = np.empty((2, E), dtype=np.int64), np.empty((2, E), dtype=np.int64)
    _packed(layout, ptr, option, into, out)
    plan, rest = np.empty((8, V), dtype=np.int64), np.empty((3, V), dtype=np.int64)
    lag, first, found = np.empty(E, dtype=np.int64), np.empty(devices, dtype=np.int64), np.empty(3, dtype=np.int64)
    critical, missing, rests = np.empty(V, dtype=np.int64), np.empty(V, dtype=np.int64), np.zeros(V, dtype=np.int64)
    stale = -1
    total, value, count = 0.0, 0.0, 0
    for step in range(steps):
        if stale < 0 or stale > 20 * V:
            total = _adopt(ptr, option, into, out, moved, paid, sites, plan, lag, first, plans[2], plans[3])
            makespan, count = _time(ptr, into, out, plan, lag, missing, critical)
            value = total + weight * makespan
            stale = 0
        stale += 1
        v = int(uniform(state) * V) if uniform(state) < anywhere else critical[int(uniform(state) * count)]
        if step < rests[v]:
            continue
        before, after = plan[_PREVIOUS, v], plan[_NEXT, v]
        _unlink(option, plan, first, v)
        others = total - _spent(ptr, option, into, out, paid, sites, plan, v, plan[_CHOSEN, v], True)
        makespan = _without(ptr, into, out, plan, lag, v, rest)
        best = _best_place(
            ptr, option, into, out, moved, paid, sites, weight, plan, first, v, others, makespan, rest, state, found
        )
        if best > value * (1.0 + slack):
            _link(option, plan, first, v, before, after)
            continue
        rests[v] = step + 4
        _choose(ptr, option, into, out, moved, sites, plan, lag, v, found[0])
        _link(option, plan, first, v, found[1], found[2])
        makespan, count = _time(ptr, into, out, plan, lag, missing, critical)
        total = others + _spent(ptr, option, into, out, paid, sites, plan, v, found[0], True)
        value = total + weight * makespan
        if value < values[1]:
            stale = 0
            values[1] = value
            plans[2], plans[4] = plan[_CHOSEN], plan[_FINISH]
            plans[3] = plan[_FINISH] - plan[_LENGTH]


KERNELS: dict[str, tuple[Any, str]] = {
    "reinsert": (
        reinsert,
        "void(UniTuple(int64[::1], 12), int64, int64, float64, float64, float64, int64, uint64[::1], float64[::1], "
        "int64[:, ::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
