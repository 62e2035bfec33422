"""Tables of what pairs of options cost (``pair_tables.py``), all couplings in one loop that numba compiles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import kernel

__all__ = ["fill_tables"]

Ints = npt.NDArray[np.int64]

_UNREACHABLE = 1 << 61


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
    n, K = devices.shape
    around = np.empty((len(group) + 1, n), np.int64)
    around[-1] = site
    for i in range(len(group)):
        for a in range(n):
            around[i, a] = group[i, site[a]]
    width = kind[site]
    codes, value = np.empty(n, np.int64), np.zeros((2, 2 * len(first)), np.int64)
    head, follow = np.full(len(memory[3]), -1), np.empty(n * K, np.int64)
    at = 0
    for c in range(len(ends)):
        e, far = ends[c, 0], (ends[c, 3], ends[c, 4])
        size = far[1] - far[0]
        for b in range(far[0], far[1]):
            for k in range(K):
                follow[b * K + k] = head[devices[b, k]]
                head[devices[b, k]] = b * K + k
        head[-1] = -1
        code = codes[:size]
        for a in range(ends[c, 1], ends[c, 2]):
            out[at : at + size] = 0
            if e >= 0:
                _meet(a, far[0], around, width, code)
                for level in range(len(first)):
                    base = (first[level] + own[level, site[a]]) * kinds
                    for same in range(2):
                        number = base + same * width[a]
                        value[0, 2 * level + same] = cost[e, number]
                        value[1, 2 * level + same] = time[e, number] if len(time) > 0 else 0
                for j in range(size):
                    out[at + j] = value[0, code[j]]
            if len(time) > 0:
                for j in range(size):
                    out_time[at + j] = value[1, code[j]] if e >= 0 else 0
            _clash(a, far[0], devices, memory, head, follow, out[at : at + size])
            at += size
        for b in range(far[0], far[1]):
            for k in range(K):
                head[devices[b, k]] = -1


@part
def _meet(a: int, start: int, around: Ints, width: Ints, code: Ints) -> None:
    """Twice the levels at which options from ``start`` on stand apart from option a, and one more of equal widths."""
    wide, own = width[start : start + len(code)], width[a]
    for j in range(len(code)):
        code[j] = 1 if wide[j] == own else 0
    for i in range(len(around)):
        level, own = around[i, start : start + len(code)], around[i, a]
        for j in range(len(code)):
            code[j] += 2 if level[j] != own else 0


@part
def _clash(
    a: int, start: int, devices: Ints, memory: tuple[Ints, Ints, Ints, Ints], head: Ints, follow: Ints, row: Ints
) -> None:
    """Mark the options from ``start`` on that do not fit with option a on a device of both: these are listed by it."""
    need, weight, key, capacity = memory
    K = devices.shape[1]
    for device in devices[a]:
        i = head[device]
        while i >= 0:
            b = i // K
            together = need[a] + need[b]
            if key[a] >= 0 and key[a] == key[b]:
                together -= weight[b]
            if together > capacity[device]:
                row[b - start] = _UNREACHABLE
            i = follow[i]
