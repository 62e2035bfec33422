"""``send`` of links as loops that numba compiles: messages of an edge for many nodes of a search (``kernels.py``).

Nodes are the last axis. Over the topology tree every step is one over all of them; over a table they go one by one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import kernel

__all__ = ["send_columns", "send_table"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_UNREACHABLE = 1 << 61
_NOWHERE = (1 << 63) - 1


@part
def _two_best(best: Ints, second: Ints, start: int, stop: int, group: int) -> None:
    """The best and the second best (equal where two are) of the children of a group, for every node."""
    for c in range(start, stop):
        for b in range(best.shape[1]):
            value = best[c, b]
            second[group, b] = min(second[group, b], max(value, best[group, b]))
            best[group, b] = min(best[group, b], value)


@part
def _reach(best: Ints, second: Ints, reach: Ints, start: int, stop: int, group: int, cost: Ints) -> None:
    """What arrives at the children of a group from outside of them."""
    for c in range(start, stop):
        for b in range(best.shape[1]):
            others = second[group, b] if best[c, b] == best[group, b] else best[group, b]
            reach[c, b] = min(reach[group, b], others + cost[b])


@kernel(
    "void(int64[:, ::1], int64[::1], int64[::1], UniTuple(int64[::1], 2), int64, int64[:, ::1], boolean[::1], "
    "int64[:, ::1])"
)
def send_columns(
    theta: Ints, near: Ints, far: Ints, tree: tuple[Ints, Ints], sites: int, cost: Ints, apart: Bools, out: Ints
) -> None:
    """Fill ``out`` (m, B) with the message from θ (n, B).

    Parameters
    ----------
    near (n,), far (m,)
        Positions of the options of both ends.
    tree
        ``child`` and ``link`` of the ``FlatTree``.
    cost (1 + R, B) or (1 + R, 1)
        On one site, then on every link.
    apart (S,)
        Positions where the two stages do not fit together.
    """
    child, link = tree
    nodes, columns = len(link), theta.shape[1]
    best = np.full((nodes, columns), _UNREACHABLE)
    second = np.full((nodes, columns), _UNREACHABLE)
    reach = np.full((nodes, columns), _NOWHERE)
    each = np.empty(columns, np.int64)
    for i in range(len(near)):
        for b in range(columns):
            best[near[i], b] = min(best[near[i], b], theta[i, b])
    for g in range(sites, nodes):
        _two_best(best, second, child[g], child[g + 1], g)
    for g in range(nodes - 1, sites - 1, -1):
        each[:] = cost[1 + link[g]]
        _reach(best, second, reach, child[g], child[g + 1], g, each)
    each[:] = cost[0]
    for i in range(len(far)):
        s = far[i]
        for b in range(columns):
            home = _UNREACHABLE if apart[s] else best[s, b] + each[b]
            out[i, b] = min(home, min(reach[s, b], _UNREACHABLE))


@kernel("void(int64[:, ::1], int64[:, ::1], boolean, boolean, int64[:, ::1])")
def send_table(table: Ints, theta: Ints, forward: bool, gains: bool, out: Ints) -> None:
    """Fill ``out`` (m, B) with the message from θ (n, B) over a table, (n, m) where it goes forward, else (m, n).

    ``gains``: whether a pair may cost less than nothing.
    """
    given, least = np.empty(len(theta), np.int64), np.empty(len(out), np.int64)
    for b in range(theta.shape[1]):
        given[:] = theta[:, b]
        least[:] = _UNREACHABLE
        if forward:
            for i in range(len(given)):
                if gains or given[i] < _UNREACHABLE:
                    for j in range(len(least)):
                        least[j] = min(least[j], given[i] + table[i, j])
        else:
            for j in range(len(least)):
                lowest = _UNREACHABLE
                for i in range(len(given)):
                    lowest = min(lowest, given[i] + table[j, i])
                least[j] = lowest
        out[:, b] = least
