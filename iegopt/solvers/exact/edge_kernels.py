"""What an edge adds to partial plans of a beam, as loops that numba compiles (``kernels.py``): to bound and cost.

Partial plans of a group have the same options at all stages that later ones depend on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import kernel

__all__ = ["rise_between", "rise_by_table", "rise_by_tree", "spend_by_table", "spend_by_tree"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Tree = tuple[Ints, Ints, Ints, Ints, Ints]
"""``up``, ``link``, ``first``, ``last`` of the ``FlatTree``; (1 + R,) cost on one site, then on every link."""

_UNREACHABLE = 1 << 61


@part
def _over_tree(a: int, b: int, tree: Tree, apart: Bools) -> int:
    """What an edge between two positions costs."""
    up, link, cost = tree[0], tree[1], tree[4]
    if a == b:
        return _UNREACHABLE if apart[a] else cost[0]
    while a != b:
        a = up[a]
        b = up[b]
    return cost[1 + link[a]]  # type: ignore[no-any-return]


@part
def _row(at: int, target: Ints, tree: Tree, apart: Bools, row: Ints) -> None:
    """Fill ``row`` (m,) with what an edge costs from one position to others, which are ascending."""
    up, link, first, last, cost = tree
    low = np.searchsorted(target, at)
    high, node = low, at
    while high < len(row) and target[high] == at:
        row[high] = _UNREACHABLE if apart[at] else cost[0]
        high += 1
    while low > 0 or high < len(row):
        node = up[node]
        own = cost[1 + link[node]]
        while low > 0 and target[low - 1] >= first[node]:
            low -= 1
            row[low] = own
        while high < len(row) and target[high] < last[node]:
            row[high] = own
            high += 1


@kernel("void(int64[:, ::1], int64[:, ::1], int64[::1], int64, int64[:, :], int64[::1], int64[::1])")
def rise_by_table(
    rise: Ints, chosen: Ints, first: Ints, stage: int, table: Ints, near: Ints, far: Ints
) -> None:  # fmt: skip
    """Add to ``rise`` (G, m) what an edge costs more than is known of it.

    Parameters
    ----------
    chosen (N, V), first (G,)
        Partial plans, and the first of every group.
    stage
        The end that is placed.
    table (a, m), near (a,), far (m,)
        What the edge costs, and what of that is known: over the options of ``stage``, and of the stage to come.
    """
    for g in range(len(first)):
        at = chosen[first[g], stage]
        for o in range(len(far)):
            rise[g, o] = min(rise[g, o] + (table[at, o] - near[at] - far[o]), _UNREACHABLE)


@kernel(
    "void(int64[:, ::1], int64[:, ::1], int64[::1], int64, int64[::1], int64[::1], UniTuple(int64[::1], 5), "
    "boolean[::1], int64[::1], int64[::1])"
)
def rise_by_tree(
    rise: Ints, chosen: Ints, first: Ints, stage: int, source: Ints, target: Ints, tree: Tree, apart: Bools,
    near: Ints, far: Ints,
) -> None:  # fmt: skip
    """``rise_by_table`` for an edge that costs by the topology tree, between positions (a,) and (m,)."""
    row = np.empty(len(far), np.int64)
    for g in range(len(first)):
        at = chosen[first[g], stage]
        _row(source[at], target, tree, apart, row)
        for o in range(len(far)):
            rise[g, o] = min(rise[g, o] + (row[o] - near[at] - far[o]), _UNREACHABLE)


@kernel("void(int64[:, ::1], int64[:, ::1], int64[::1], int64, int64, int64[:, :])")
def rise_between(rise: Ints, chosen: Ints, first: Ints, one: int, other: int, sent: Ints) -> None:
    """Take from ``rise`` (G, m) what was sent to two stages in common."""
    for g in range(len(first)):
        rise[g] -= sent[chosen[first[g], one], chosen[first[g], other]]


@kernel("void(int64[::1], int64[:, ::1], int64[::1], int64[::1], int64, int64[:, :])")
def spend_by_table(spent: Ints, chosen: Ints, plan: Ints, option: Ints, stage: int, table: Ints) -> None:
    """Add to ``spent`` (P,) what the edge from ``stage`` costs of plans that take an option each."""
    for i in range(len(plan)):
        spent[i] += table[chosen[plan[i], stage], option[i]]


@kernel(
    "void(int64[::1], int64[:, ::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], "
    "UniTuple(int64[::1], 5), boolean[::1])"
)
def spend_by_tree(
    spent: Ints, chosen: Ints, plan: Ints, option: Ints, stage: int, source: Ints, target: Ints, tree: Tree,
    apart: Bools,
) -> None:  # fmt: skip
    """``spend_by_table`` for an edge that costs by the topology tree."""
    for i in range(len(plan)):
        spent[i] += _over_tree(source[chosen[plan[i], stage]], target[option[i]], tree, apart)
