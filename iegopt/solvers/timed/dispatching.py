"""List schedules whose next stage depends on what is placed already, compiled: more openings of a walk.

Each step compares all stages whose predecessors are placed, on all their options, and places one of them, behind all
that its device has by then. The rules differ in the stage they take: the one that is done first (MinMin), last
(MaxMin), or that loses most if it has to take its second best option (Sufferage), the three of Maheswaran et al. 1999;
the one that can start first (ETF of Hwang et al. 1989); the one with most ahead of it, where that starts first (FCP of
Radulescu and van Gemund 1999); the one with most ahead of it less its start (dynamic levels of Sih and Lee 1993).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import kernel, part

__all__ = ["KERNELS", "RULES", "dispatched"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Layout = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""As in ``kernels``."""

RULES = 6
"""In their order: MinMin, MaxMin, Sufferage, ETF, FCP, dynamic levels."""


@part
def _look(
    ptr: Ints, site: Ints, device: Ints, time: Ints, cost: Ints, in_ptr: Ints, in_edge: Ints, in_source: Ints,
    moved: Ints, paid: Ints, sites: int, weight: float, lasts: float, v: int, chosen: Ints, finish: Ints, free: Ints,
    scores: Any, offers: Ints,
) -> None:  # fmt: skip
    """What stage v can do now.

    In ``scores`` (3, V) what its best option costs with its start and the share ``lasts`` of its time, how much more
    the second best would, and what the best costs by itself; in ``offers`` (4, V) the best option, its start, its
    device and that of the second best, −1 for none.
    """
    best, second = np.inf, np.inf
    offers[3, v] = -1
    for o in range(ptr[v], ptr[v + 1]):
        moment = 0
        spent = float(cost[o])
        for i in range(in_ptr[v], in_ptr[v + 1]):
            u = in_source[i]
            link = (in_edge[i] * sites + site[chosen[u]]) * sites + site[o]
            moment = max(moment, finish[u] + moved[link])
            if len(paid) > 0:
                spent += paid[link]
        if spent + weight * (moment + lasts * time[o]) >= second:
            continue
        if time[o] > 0 and len(free) > 0:
            moment = max(moment, free[device[o]])
        score = spent + weight * (moment + lasts * time[o])
        if score < best:
            second = best
            best = score
            offers[3, v] = offers[2, v]
            offers[0, v], offers[1, v], offers[2, v] = o, moment, device[o]
            scores[2, v] = spent
        elif score < second:
            second = score
            offers[3, v] = device[o]
    scores[0, v] = best
    scores[1, v] = 0.0 if second == np.inf else second - best


@part
def _urgency(rule: int, scores: Any, offers: Ints, rank: float, ease: float, v: int) -> Any:
    """How early a stage comes by a rule: the highest first."""
    if rule == 0:
        return -scores[0, v]
    if rule == 1:
        return scores[0, v]
    if rule == 2:
        return scores[1, v]
    if rule == 3:
        return -float(offers[1, v]) + 1e-9 * rank
    if rule == 4:
        return rank
    return rank - offers[1, v] + ease


@part
def _dispatch(
    layout: Layout, sites: int, devices: int, weight: float, rule: int, ranks: Floats, means: Floats, chosen: Ints,
    start: Ints, finish: Ints,
) -> Any:  # fmt: skip
    """Fill in a plan by a rule; what it costs, in ticks."""
    ptr, site, device, time, cost, in_ptr, in_edge, in_source, out_ptr, out_target, moved, paid = layout
    V = len(in_ptr) - 1
    # The soonest start, and the time only between equals.
    lasts = 1e-3 if rule == 3 or rule == 4 else 1.0
    free = np.zeros(devices, dtype=np.int64)
    missing = in_ptr[1:] - in_ptr[:-1]
    ready, known = np.empty(V, dtype=np.int64), 0
    scores, offers = np.empty((3, V)), np.empty((4, V), dtype=np.int64)
    for v in range(V):
        if missing[v] == 0:
            _look(
                ptr, site, device, time, cost, in_ptr, in_edge, in_source, moved, paid, sites, weight, lasts, v,
                chosen, finish, free, scores, offers,
            )  # fmt: skip
            ready[known] = v
            known += 1
    total, makespan = 0.0, 0
    for _ in range(V):
        taken, urgency = -1, 0.0
        for k in range(known):
            v = ready[k]
            mine = _urgency(rule, scores, offers, ranks[v], means[v] - time[offers[0, v]], v)
            if taken < 0 or mine > urgency:
                taken, urgency = k, mine
        v = ready[taken]
        known -= 1
        ready[taken] = ready[known]
        chosen[v], start[v] = offers[0, v], offers[1, v]
        finish[v] = start[v] + time[chosen[v]]
        total += scores[2, v]
        makespan = max(makespan, finish[v])
        if finish[v] > start[v] and devices > 0:
            d = device[chosen[v]]
            free[d] = finish[v]
            # A device only ever gets busier, so that what is best stays so where it is elsewhere.
            for k in range(known):
                w = ready[k]
                if offers[2, w] == d or (rule == 2 and offers[3, w] == d):
                    _look(
                        ptr, site, device, time, cost, in_ptr, in_edge, in_source, moved, paid, sites, weight, lasts,
                        w, chosen, finish, free, scores, offers,
                    )  # fmt: skip
        for i in range(out_ptr[v], out_ptr[v + 1]):
            w = out_target[i]
            missing[w] -= 1
            if missing[w] == 0:
                _look(
                    ptr, site, device, time, cost, in_ptr, in_edge, in_source, moved, paid, sites, weight, lasts, w,
                    chosen, finish, free, scores, offers,
                )  # fmt: skip
                ready[known] = w
                known += 1
    return total + weight * makespan


@kernel
def dispatched(
    layout: Layout, sites: int, devices: int, weight: float, ranks: Floats, values: Floats, plans: Ints
) -> None:  # fmt: skip
    """Make the plans of all rules, and keep the best.

    ``ranks`` (V,) are what lies ahead of every stage in the mean, in ticks; the rest is as in ``kernels.walk``.
    """
    ptr, time = layout[0], layout[3]
    V = len(ptr) - 1
    chosen, start, finish = np.empty(V, dtype=np.int64), np.empty(V, dtype=np.int64), np.empty(V, dtype=np.int64)
    means = np.empty(V)
    for v in range(V):
        means[v] = time[ptr[v] : ptr[v + 1]].mean()
    for rule in range(RULES):
        value = _dispatch(layout, sites, devices, weight, rule, ranks, means, chosen, start, finish)
        if value < values[1]:
            values[1] = value
            plans[2] = chosen
            plans[3] = start
            plans[4] = finish


KERNELS: dict[str, tuple[Any, str]] = {
    "dispatched": (
        dispatched,
        "void(UniTuple(int64[::1], 12), int64, int64, float64, float64[::1], float64[::1], int64[:, ::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
