"""Priorities and pins of the list schedules of the literature, compiled: where a walk (``kernels.walk``) begins.

None of them is the best everywhere, and all together take less time than to find out which is. In their order: the
given ranks; upward ranks (HEFT of Topcuoglu, Hariri, Wu 2002); all stages on one site; path lengths with the critical
path on one site (CPOP, there too); stages as they come, the shortest first, the longest first (MCT, MinMin and MaxMin
of Braun et al. 2001); the earliest first; upward ranks and path lengths once more, with the link of a site to itself,
which costs nothing, among those of which transfers take the mean: how likely it is that two stages share a site is
open, and either may make the better plan.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import kernel, part

__all__ = ["KERNELS", "OPENINGS", "openings"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Layout = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""As in ``kernels``."""

OPENINGS = 10


@part
def _mean_transfers(layout: Layout, sites: int) -> Floats:
    """(E,) ticks of an edge's transfer in the mean over pairs of different sites, from a sample of sources."""
    moved = layout[10]
    edges = len(layout[6])
    mean = np.zeros(edges)
    sampled = min(sites, 8)
    for e in range(edges):
        total = 0.0
        for i in range(sampled):
            a = i * (sites - 1) // max(1, sampled - 1)
            for b in range(sites):
                total += moved[(e * sites + a) * sites + b]
        mean[e] = total / max(1, sampled * (sites - 1))
    return mean


@part
def _mean_ranks(layout: Layout, moved: Floats, order: Ints, up: Floats, down: Floats) -> None:
    """Longest paths over mean times and transfers (E,), to the end with the stage itself and from the start without it.

    ``order`` receives the stages, predecessors first.
    """
    ptr, time, in_ptr, in_edge, in_source, out_ptr, out_target = (
        layout[0], layout[3], layout[5], layout[6], layout[7], layout[8], layout[9],
    )  # fmt: skip
    V = len(ptr) - 1
    missing = np.empty(V, dtype=np.int64)
    last = 0
    for v in range(V):
        missing[v] = in_ptr[v + 1] - in_ptr[v]
        up[v] = 0.0
        down[v] = 0.0
        if missing[v] == 0:
            order[last] = v
            last += 1
    for k in range(V):
        v = order[k]
        for i in range(out_ptr[v], out_ptr[v + 1]):
            w = out_target[i]
            missing[w] -= 1
            if missing[w] == 0:
                order[last] = w
                last += 1
    own = np.empty(V)
    for v in range(V):
        own[v] = time[ptr[v] : ptr[v + 1]].mean()
    for v in order:
        for i in range(in_ptr[v], in_ptr[v + 1]):
            u = in_source[i]
            down[v] = max(down[v], down[u] + own[u] + moved[in_edge[i]])
    for v in order[::-1]:
        up[v] += own[v]
        for i in range(in_ptr[v], in_ptr[v + 1]):
            up[in_source[i]] = max(up[in_source[i]], up[v] + moved[in_edge[i]])


@part
def _on_one_site(layout: Layout, sites: int, among: Any, pinned: Ints) -> None:
    """Pin some stages to the site on which their times sum to the least; none where no site can do all."""
    ptr, site, time = layout[0], layout[1], layout[3]
    V = len(ptr) - 1
    option = np.full((V, sites), -1, dtype=np.int64)
    total, able = np.zeros(sites), np.zeros(sites, dtype=np.int64)
    count = 0
    for v in range(V):
        if among[v]:
            count += 1
            for o in range(ptr[v], ptr[v + 1]):
                known = option[v, site[o]]
                if known < 0 or time[o] < time[known]:
                    option[v, site[o]] = o
            for s in range(sites):
                if option[v, s] >= 0:
                    able[s] += 1
                    total[s] += time[option[v, s]]
    best = -1
    for s in range(sites):
        if able[s] == count and (best < 0 or total[s] < total[best]):
            best = s
    pinned[:] = -1
    if best >= 0:
        pinned[:] = option[:, best]


@kernel
def openings(layout: Layout, sites: int, ranks: Floats, priorities: Floats, pins: Ints) -> None:
    """Fill priorities and pins (``OPENINGS``, V): positions among the options, −1 for none."""
    ptr, time = layout[0], layout[3]
    V = len(ptr) - 1
    order, up, down = np.empty(V, dtype=np.int64), np.empty(V), np.empty(V)
    moved = _mean_transfers(layout, sites)
    pins[:] = -1
    _mean_ranks(layout, moved * (sites - 1) / (sites + 1), order, up, down)
    _on_one_site(layout, sites, up + down >= (up + down).max() * (1 - 1e-9), pins[9])
    priorities[8] = up
    priorities[9] = up + down
    _mean_ranks(layout, moved, order, up, down)
    _on_one_site(layout, sites, up >= 0.0, pins[2])
    _on_one_site(layout, sites, up + down >= (up + down).max() * (1 - 1e-9), pins[3])
    for i in range(V):
        v = order[i]
        least = time[ptr[v] : ptr[v + 1]].min()
        priorities[0, v] = ranks[v]
        priorities[1, v] = up[v]
        priorities[2, v] = up[v]
        priorities[3, v] = up[v] + down[v]
        priorities[4, v] = -i
        priorities[5, v] = -least
        priorities[6, v] = least
        priorities[7, v] = -down[v]


KERNELS: dict[str, tuple[Any, str]] = {
    "openings": (
        openings,
        "void(UniTuple(int64[::1], 12), int64, float64[::1], float64[:, ::1], int64[:, ::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
