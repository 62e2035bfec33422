"""Best fit (``best_fit.py``) as a loop that numba compiles (the extra ``fast``; see ``exact.kernels``).

Sites are few, so that a stage looks at all of them: it costs less than to keep them in order.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part

__all__ = ["edges_of", "fit"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@part
def edges_of(source: Ints, target: Ints, stages: int) -> tuple[Ints, Ints]:
    """Where the edges of every stage begin among all of them, in their order, and these."""
    begin = np.zeros(stages + 2, dtype=np.int64)
    for e in range(len(source)):
        begin[source[e] + 2] += 1
        begin[target[e] + 2] += 1
    begin = np.cumsum(begin)
    edges = np.empty(2 * len(source), dtype=np.int64)
    for e in range(len(source)):
        for v in (source[e], target[e]):
            edges[begin[v + 1]] = e
            begin[v + 1] += 1
    return begin, edges


@part
def fit(
    order: Ints, cost: Floats, need: Ints, start: Ints, devices: Ints, links: Floats, source: Ints, target: Ints,
    factor: Floats, free: Ints, place: Ints,
) -> bool:  # fmt: skip
    """Place stages in an order, each where it costs least with its edges to those placed before it.

    Parameters
    ----------
    cost, need (V, m)
        Seconds of every stage on every site (infinite: not to be had) and what it takes of each device.
    start (m + 1,), devices
        The devices of every site, by their index into ``free``.
    links (m, 2, m)
        Latency, and seconds per byte, between every two sites.
    source, target (E,), factor (E, 2)
        Stages at both ends of every edge; weight, and weight · bytes.
    free, place (V,)
        Changed in place: what is left of every device; site of every placed stage, −1 for others.

    Returns
    -------
    bool
        Whether all are placed, and none fits nowhere.
    """
    m = len(links)
    moved = np.empty(m)
    edge_start, edges = edges_of(source, target, len(place))
    for v in order:
        moved[:] = 0.0
        for e in edges[edge_start[v] : edge_start[v + 1]]:
            other = place[target[e] if source[e] == v else source[e]]
            if other >= 0:
                for p in range(m):
                    moved[p] += factor[e, 0] * links[other, 0, p] + factor[e, 1] * links[other, 1, p]
        best, least = -1, np.inf
        for p in range(m):
            score = cost[v, p] + moved[p]
            if score < least:
                fits = True
                for d in range(start[p], start[p + 1]):
                    fits = fits and free[devices[d]] >= need[v, p]
                if fits:
                    best, least = p, score
        if best < 0:
            return False
        place[v] = best
        for d in range(start[best], start[best + 1]):
            free[devices[d]] -= need[v, best]
    return True
