"""Messages of ``node_kernels.py`` between a stage and its parents: loops over tables, compiled into its kernels."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import UNREACHABLE

__all__ = ["Order", "add_links", "costs_of_pairs", "from_parent", "onto_pair", "towards_parent"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Order = tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints, Ints]
"""``Slots`` of ``table_passes.py``, in the order of its attributes."""


@part
def add_links(
    order: Order, tables: tuple[Ints, Ints], rate: Floats, b: int, slot: int, taken: bool, whole: Ints
) -> None:
    """Complete a table, which has what was taken onto the pair, by what its links cost."""
    ptr, parent, first, coupling, at, start = order[0], order[2], order[3], order[4], order[5], order[7][slot]
    v, p = slot // 2, parent[slot]
    table = whole[start : start + (ptr[v + 1] - ptr[v]) * (ptr[p + 1] - ptr[p])]
    for c in range(first[slot], first[slot + 1]):
        own = tables[0][at[c] : at[c] + len(table)]
        paid = rate[coupling[c], b] if len(rate) > 0 else 0.0
        time = tables[1][at[c] : at[c] + len(table)] if paid > 0 else own
        for j in range(len(table)):
            cost = own[j] + np.int64(time[j] * paid) if paid > 0 else own[j]
            table[j] = min(table[j] + cost, UNREACHABLE) if taken else cost
        taken = True


@part
def costs_of_pairs(order: Order, table: Ints, slot: int, whole: Ints) -> Ints:
    """The table of a pair without a price on time that is not turned, or the completed one."""
    ptr, parent, first, at, at_whole = order[0], order[2], order[3], order[5], order[7]
    v, p = slot // 2, parent[slot]
    cells = (ptr[v + 1] - ptr[v]) * (ptr[p + 1] - ptr[p])
    if at_whole[slot] >= 0:
        return whole[at_whole[slot] : at_whole[slot] + cells]
    start = at[first[slot]]
    return table[start : start + cells]


@part
def onto_pair(own: Ints, of_near: Ints, of_far: Ints, near: int, far: int, message: Ints) -> None:
    """Fill a message (far, near) to two parents: the least over the options of the stage."""
    message[:] = UNREACHABLE
    for o in range(len(own)):
        if own[o] >= UNREACHABLE:
            continue
        for j in range(far):
            start = own[o] + of_far[o * far + j]
            if start < UNREACHABLE:
                for a in range(near):  # without slices, which take longer than a short row
                    message[j * near + a] = min(message[j * near + a], start + of_near[o * near + a])


@part
def towards_parent(
    order: Order, tables: tuple[Ints, Ints], rate: Floats, b: int, slot: int, own: Ints, whole: Ints, message: Ints
) -> None:
    """Fill a message to the one parent from the options of a stage."""
    first, coupling, at, turned, at_whole = order[3], order[4], order[5], order[6], order[7]
    cells = len(own) * len(message)
    if at_whole[slot] >= 0:
        table = whole[at_whole[slot] : at_whole[slot] + cells]
        _down_columns(table, table, 0.0, own, message)
        return
    c = first[slot]
    paid = rate[coupling[c], b] if len(rate) > 0 else 0.0
    table = tables[0][at[c] : at[c] + cells]
    time = tables[1][at[c] : at[c] + cells] if paid > 0 else table
    if turned[slot] > 0:
        _along_rows(table, time, paid, own, message)
    else:
        _down_columns(table, time, paid, own, message)


@part
def from_parent(
    order: Order, tables: tuple[Ints, Ints], rate: Floats, b: int, slot: int, rest: Ints, message: Ints
) -> None:
    """Fill a message to the options of a stage from its one parent, over one link."""
    first, coupling, at, turned = order[3], order[4], order[5], order[6]
    cells = len(rest) * len(message)
    c = first[slot]
    paid = rate[coupling[c], b] if len(rate) > 0 else 0.0
    table = tables[0][at[c] : at[c] + cells]
    time = tables[1][at[c] : at[c] + cells] if paid > 0 else table
    if turned[slot] > 0:
        _down_columns(table, time, paid, rest, message)
    else:
        _along_rows(table, time, paid, rest, message)


@part
def _down_columns(table: Ints, time: Ints, paid: float, given: Ints, message: Ints) -> None:
    """The least of every column of a table (given, message) with ``given``, at most ``UNREACHABLE``."""
    m = len(message)
    message[:] = UNREACHABLE
    for i in range(len(given)):
        start = given[i]
        if start >= UNREACHABLE:
            continue
        row = table[i * m : (i + 1) * m]
        if paid > 0:
            moved = time[i * m : (i + 1) * m]
            for j in range(m):
                message[j] = min(message[j], start + (row[j] + np.int64(moved[j] * paid)))
        else:
            for j in range(m):
                message[j] = min(message[j], start + row[j])


@part
def _along_rows(table: Ints, time: Ints, paid: float, given: Ints, message: Ints) -> None:
    """The least of every row of a table (message, given) with ``given``, at most ``UNREACHABLE``."""
    m = len(given)
    for j in range(len(message)):
        row = table[j * m : (j + 1) * m]
        least = UNREACHABLE
        if paid > 0:
            moved = time[j * m : (j + 1) * m]
            for i in range(m):
                least = min(least, given[i] + (row[i] + np.int64(moved[i] * paid)))
        else:
            for i in range(m):
                least = min(least, given[i] + row[i])
        message[j] = least
