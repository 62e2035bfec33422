"""Best fit over a few sites: stage by stage where it costs least, with its edges to the stages placed before it.

Latency and seconds per byte of every pair of the sites are tables, so that placing a stage takes a handful of
operations on arrays of some hundred elements, or a loop that is compiled (``fit_kernel.py``). Every stage has one
option on every site: a planner's first plan, before anything is compiled into a problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.compiled import kernels

__all__ = ["Board", "Neighbours", "best_fit"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_POLLED = 8
"""Stages placed between two looks at the clock."""


@dataclass(frozen=True, eq=False)
class Board:
    """The sites that stages are placed on.

    Attributes
    ----------
    links (m, 2, m)
        Latency (s), and seconds per byte of the whole transfer, of all pairs: ``kept_links``.
    start (m,), devices
        Where every site begins in the list of the devices of all.
    width (m,)
        Devices of every site.
    """

    links: Floats
    start: Ints
    devices: Ints
    width: Ints


@dataclass(frozen=True, eq=False)
class Neighbours:
    """Edges from both ends: those of stage v are ``ptr[v]:ptr[v + 1]``.

    ``near`` (2 E,) is the other end, ``factor`` (2 E, 2) what a second of latency and a second per byte cost.
    """

    ptr: Ints
    near: Ints
    factor: Floats

    @classmethod
    def of(cls, count: int, ends: Ints, sizes: Floats, weight: float) -> Neighbours:
        """Of ``count`` stages, with ``ends`` (E, 2), bytes of every edge, and the weight of a second of transfer."""
        own = ends.T.reshape(-1)
        order = own.argsort(kind="stable")
        factor = np.empty((len(own), 2))
        factor[:, 0] = weight
        factor[:, 1] = weight * np.tile(sizes, 2)[order]
        ptr = np.zeros(count + 1, dtype=np.int64)
        np.cumsum(np.bincount(own, minlength=count), out=ptr[1:])
        return cls(ptr, ends[:, ::-1].T.reshape(-1)[order], factor)


def best_fit(
    board: Board, cost: Floats, need: Floats, edges: Neighbours, free: Floats, order: Sequence[int], clock: Clock
) -> Ints | None:
    """(V,) the place of every stage; ``None`` where one fits nowhere, or the clock ends first.

    Parameters
    ----------
    cost, need (V, m), in C order
        Seconds of weighted cost on every site, infinite where a stage cannot run there; bytes on each of its devices.
    free (D,)
        Bytes; changed in place.
    """
    place = np.full(len(cost), -1)
    compiled = kernels()
    if compiled is None:
        return place if _fit(board, cost, need, edges, free, order, clock, place) else None
    done = compiled.fit(
        cost, need, board.links, board.start, board.devices, board.width, edges.ptr, edges.near, edges.factor,
        np.array(order), free, place,
    )  # fmt: skip
    return place if done else None


def _fit(
    board: Board, cost: Floats, need: Floats, edges: Neighbours, free: Floats, order: Sequence[int], clock: Clock,
    place: Ints,
) -> bool:  # fmt: skip
    """The kernel in numpy, with a look at the clock now and then."""
    start, devices, links = board.start, board.devices, board.links
    begins, widths = start.tolist(), board.width.tolist()
    single = len(devices) == len(start)
    ptr, near = edges.ptr.tolist(), edges.near.tolist()
    chosen = [-1] * len(place)
    for i, v in enumerate(order):
        if i % _POLLED == 0 and clock.left <= 0.0:
            return False
        room = free[devices] if single else np.minimum.reduceat(free[devices], start)
        score = np.where(need[v] <= room, cost[v], np.inf)
        for e in range(ptr[v], ptr[v + 1]):
            u = chosen[near[e]]
            if u >= 0:
                latency, rate = edges.factor[e]
                score += latency * links[u, 0] + rate * links[u, 1]
        best = int(score.argmin())
        if not score[best] < np.inf:
            return False
        chosen[v] = best
        free[devices[begins[best] : begins[best] + widths[best]]] -= need[v, best]
    place[:] = chosen
    return True
