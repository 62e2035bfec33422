"""Tables of what pairs of options cost (``pair_tables.py``), all couplings in one loop that numba compiles."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import kernel

__all__ = ["fill_tables"]

Ints = npt.NDArray[np.int64]

_UNREACHABLE = 1 << 61


@part
def _level(a: int, b: int, site: Ints, group: Ints) -> Any:
    """Where the sites of two options meet: 0 at home, else one more than the levels at which their groups differ."""
    level = len(group)
    while level > 0 and group[level - 1, a] == group[level - 1, b]:
        level -= 1
    return level + 1 if level > 0 or site[a] != site[b] else 0


@part
def _clash(taken: Ints, a: int, devices: Ints, together: int, capacity: Ints) -> bool:
    """Whether one of some devices is ``taken`` by option a, and has less than two options take of it together."""
    i = 0
    while i < len(devices) and not (taken[devices[i]] == a and together > capacity[devices[i]]):
        i += 1
    return i < len(devices)


@kernel(
    "void(int64[:, ::1], int64[::1], UniTuple(int64[:, ::1], 2), UniTuple(int64[::1], 2), int64, int64[:, ::1], "
    "int64[:, ::1], int64[:, ::1], UniTuple(int64[::1], 4), int64[::1], int64[::1])"
)
def fill_tables(
    ends: Ints, site: Ints, nested: tuple[Ints, Ints], flat: tuple[Ints, Ints], kinds: int, cost: Ints, time: Ints,
    devices: Ints, memory: tuple[Ints, Ints, Ints, Ints], out: Ints, out_time: Ints,
) -> None:  # fmt: skip
    """Fill ``out``, and ``out_time`` where ``time`` has rows, with one table after the other.

    Parameters
    ----------
    ends (C, 5)
        Edge of every coupling, −1 for none; start and stop of the options of its source, and of its target.
    site (n,)
        Of every option.
    nested
        Group of every site per level but the widest (levels − 1, S); what it adds to a level's number (levels + 1, S).
    flat
        First number of every level (levels + 1,); number of every site's width (S,).
    kinds
        How many widths there are.
    cost, time (E, numbers)
        Ticks.
    devices (n, K)
        Padded with the last of ``capacity``.
    memory
        What an option takes with its shared weights, these, and their key (n,), −1 without any; capacity (D + 1,).
    """
    group, own = nested
    first, kind = flat
    need, weight, key, capacity = memory
    least = capacity.min()
    around = np.empty((len(group), len(site)), np.int64)
    for i in range(len(group)):
        for a in range(len(site)):
            around[i, a] = group[i, site[a]]
    of_width = kind[site]
    taken = np.full(len(capacity), -1)
    at = 0
    for c in range(len(ends)):
        e = ends[c, 0]
        for a in range(ends[c, 1], ends[c, 2]):
            taken[devices[a]] = a
            taken[-1] = -1
            for b in range(ends[c, 3], ends[c, 4]):
                number, out[at] = 0, 0
                if e >= 0:
                    level = _level(a, b, site, around)
                    number = (first[level] + own[level, site[a]]) * kinds
                    number += of_width[a] if of_width[a] == of_width[b] else 0
                    out[at] = cost[e, number]
                if len(time) > 0:
                    out_time[at] = time[e, number] if e >= 0 else 0
                together = need[a] + need[b]
                if key[a] >= 0 and key[a] == key[b]:
                    together -= weight[b]
                if together > least and _clash(taken, a, devices[b], together, capacity):
                    out[at] = _UNREACHABLE
                at += 1
