"""The figures of a planner's first plan (``planner.first_figures``) as a loop that numba compiles (the extra ``fast``).

Where stages have no model and links no overlap: roofline, best fit and starts in one call, in place of the dozens of
operations on small arrays that they take in numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import kernel, part
from iegopt.solvers.search.fit_kernel import edges_of, fit

__all__ = ["KERNELS", "first_plan"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Sites = tuple[Ints, Ints, Ints, Ints]
"""kind (m,), degree (K,), start (m + 1,) and devices of every site."""


@part
def _time_on(amounts: Floats, rates: Floats, k: int) -> tuple[float, int]:
    """T0 of a stage on a kind, infinite where it does not run there, and what bounds it."""
    if np.isnan(rates[0, k]):
        return np.inf, 0
    longest, term = 0.0, 0
    for i in range(3):
        if amounts[i] > 0.0:
            seconds = amounts[i] / rates[i, k] if rates[i, k] > 0.0 else np.inf
            if seconds > longest:
                longest, term = seconds, i
    return longest + amounts[3], 3 if amounts[3] > longest else term


@part
def _loads(sites: Sites, device_load: Floats) -> Floats:
    """(m,) T/T0 of every site: that of its most loaded device."""
    _, _, start, devices = sites
    load = np.empty(len(start) - 1)
    for p in range(len(load)):
        load[p] = device_load[devices[start[p]]]
        for d in range(start[p] + 1, start[p + 1]):
            load[p] = max(load[p], device_load[devices[d]])
    return load


@part
def _starts(order: Ints, source: Ints, target: Ints, raw: Floats, figures: Floats) -> None:
    """The earliest start of every stage along the graph."""
    begin, edges = edges_of(source, target, len(order))
    for v in order:
        figures[2, v] = 0.0
        for e in edges[begin[v] : begin[v + 1]]:
            if target[e] == v:
                u = source[e]
                figures[2, v] = max(figures[2, v], figures[2, u] + figures[1, u] + raw[e])


@kernel
def first_plan(
    amounts: Floats, number: Ints, rates: Floats, slas: Floats, order: Ints, source: Ints, target: Ints,
    sizes: Floats, sites: Sites, worth: Floats, links: Floats, device_load: Floats, device_free: Ints,
    weights: Floats, place: Ints, figures: Floats, raw: Floats,
) -> bool:  # fmt: skip
    """Place all stages, in the order of the graph, else the largest first; whether there is room for all.

    Parameters
    ----------
    amounts (V, 5), number (V,), rates (N, 3, K)
        As in ``spec.figures``; row of rates of every stage; rates as in ``cost.rows``.
    sites, worth (m,), links (m, 2, m)
        As in ``planner.promising``.
    weights (4,)
        α, β, γ, λ.
    place (V,), figures (7, V), raw (E,)
        To be filled: site of every stage; its T0, time, start, index of what bounds it, bytes held, share of the site's
        free memory, money in seconds; seconds of every transfer.
    """
    kind, degree, start, devices = sites
    V, m, K = len(order), len(kind), len(degree)
    load = _loads(sites, device_load)
    cost, need = np.full((V, m), np.inf), np.zeros((V, m), dtype=np.int64)
    least = np.full(V, np.inf)
    t0, each = np.empty(K), np.empty(K)
    for v in range(V):
        for k in range(K):
            t0[k], _ = _time_on(amounts[v], rates[number[v]], k)
            each[k] = np.ceil(np.ceil(amounts[v, 4]) / degree[k])
            if t0[k] < np.inf:
                least[v] = min(least[v], each[k])
        for p in range(m):
            seconds = t0[kind[p]]
            if seconds < np.inf and seconds * load[p] <= slas[v]:
                cost[v, p] = seconds * (weights[0] + weights[1] * load[p] + weights[2] * worth[p])
                need[v, p] = np.int64(each[kind[p]])
    factor = np.empty((len(source), 2))
    factor[:, 0] = weights[3]
    factor[:, 1] = weights[3] * sizes
    placed = False
    for largest_first in range(2):
        by = np.argsort(-least, kind="mergesort") if largest_first else order
        free = device_free.copy()
        place[:] = -1
        placed = fit(by, cost, need, start, devices, links, source, target, factor, free, place)
        if placed:
            break
    if not placed:
        return False
    for e in range(len(source)):
        a, b = place[source[e]], place[target[e]]
        raw[e] = links[a, 0, b] + sizes[e] * links[a, 1, b]
    for v in range(V):
        p = place[v]
        seconds, term = _time_on(amounts[v], rates[number[v]], kind[p])
        room = device_free[devices[start[p]]]
        for d in range(start[p] + 1, start[p + 1]):
            room = min(room, device_free[devices[d]])
        room *= start[p + 1] - start[p]
        held = np.ceil(amounts[v, 4])
        figures[0, v], figures[1, v], figures[3, v] = seconds, seconds * load[p], term
        figures[4, v], figures[5, v] = held, held / room if room > 0 else 0.0
        figures[6, v] = seconds * worth[p]
    _starts(order, source, target, raw, figures)
    return True


KERNELS: dict[str, tuple[Any, str]] = {
    "first_plan": (
        first_plan,
        "boolean(float64[:, ::1], int64[::1], float64[:, :, ::1], float64[::1], int64[::1], int64[::1], int64[::1], "
        "float64[::1], UniTuple(int64[::1], 4), float64[::1], float64[:, :, ::1], float64[::1], int64[::1], "
        "float64[::1], int64[::1], float64[:, ::1], float64[::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
