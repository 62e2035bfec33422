"""The step of a beam that places a stage (``plain_steps.py``, ``dominance.py``) as loops that numba compiles.

Partial plans of a group have the same options at all stages that later ones depend on, and stand next to each other.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import kernel

__all__ = ["place_stage"]

Ints = npt.NDArray[np.int64]

_HASH_BASE = 0x9E3779B97F4A7C15 - (1 << 64)
_COMPARED, _MANY_FALL = 32, 0.25
"""As with numpy: of ``problem.hashing``, and of ``dominance``."""
_RUN = 8
"""Plans that are sorted by insertion."""


@part
def _before(i: int, j: int, key: Ints, spent: Ints, room: Ints) -> bool:
    """Whether plan i stands before plan j: by hash, cost, memory left, and place."""
    if key[i] != key[j]:
        return bool(key[i] < key[j])
    if spent[i] != spent[j]:
        return bool(spent[i] < spent[j])
    if room[i] != room[j]:
        return bool(room[i] > room[j])
    return i < j


@part
def _sorted(key: Ints, spent: Ints, room: Ints) -> Ints:
    """Places (N,) in order: merge sort on runs that were sorted by insertion."""
    N = len(key)
    by, other = np.arange(N), np.empty(N, np.int64)
    for start in range(0, N, _RUN):
        for i in range(start + 1, min(start + _RUN, N)):
            own, j = by[i], i
            while j > start and _before(own, by[j - 1], key, spent, room):
                by[j] = by[j - 1]
                j -= 1
            by[j] = own
    width = _RUN
    while width < N:
        for start in range(0, N, 2 * width):
            middle, stop = min(start + width, N), min(start + 2 * width, N)
            i, j = start, middle
            for at in range(start, stop):
                if i < middle and (j == stop or _before(by[i], by[j], key, spent, room)):
                    other[at] = by[i]
                    i += 1
                else:
                    other[at] = by[j]
                    j += 1
        by, other = other, by
        width *= 2
    return by


@part
def _columns(option: Ints, used: Ints, column: Ints, devices: Ints, start: int, later: Ints) -> Ints:
    """Devices of the columns to come, those that last first; ``column`` follows."""
    now, n = np.empty(len(used) + len(option) * len(devices), np.int64), 0
    for d in used:
        column[d] = -1
        if later[d] > 0:
            now[n] = d
            n += 1
    for c in range(n):
        column[now[c]] = c
    for i in range(len(option)):
        for k in range(len(devices)):
            d = devices[k, start + option[i]]
            if later[d] > 0 and column[d] < 0:
                now[n], column[d] = d, n
                n += 1
    return now[:n].copy()


@part
def _same(a: int, b: int, chosen: Ints, plan: Ints, option: Ints, stage: int, ahead: Ints) -> bool:
    for w in ahead:
        if w == stage:
            if option[a] != option[b]:
                return False
        elif chosen[plan[a], w] != chosen[plan[b], w]:
            return False
    return True


@part
def _leaves(row: Ints, free: Ints, lasting: Ints, fresh: Ints) -> None:
    """Fill ``row`` (F',) with the free memory of a plan before the next stage takes any; columns as in ``_columns``."""
    n = len(lasting)
    if n == len(free):
        row[:n] = free
    else:
        for c in range(n):
            row[c] = free[lasting[c]]
    row[n:] = fresh


@part
def _cut_and_marked(row: Ints, later: Ints, whole: Ints, bits: Ints) -> int:
    """What is left in all of a row once it counts no more than ``later``; marks columns below ``whole`` in ``bits``."""
    room = 0
    for c in range(len(row)):
        row[c] = min(row[c], later[c])
        room += row[c]
    for c in range(len(row)):
        bits[c >> 6] |= np.int64(row[c] < whole[c]) << (c & 63)
    return room


@part
def _may(bits: Ints, own: Ints) -> bool:
    """Whether a plan may leave as much of every device: not one that uses another device."""
    other = 0
    for w in range(len(own)):
        other |= bits[w] & ~own[w]
    return other == 0


@part
def _leaves_more(better: Ints, free: Ints) -> bool:
    for c in range(len(free)):  # noqa: SIM110
        if better[c] < free[c]:
            return False
    return True


@part
def _drop_fallen(n: int, by: Ints, group: Ints, rows: Ints, room: Ints, bits: Ints) -> int:
    """Move those of the first ``n`` plans that none of the few before dominates to the front of all; how many they are.

    Places ``by`` in ``rows`` and ``room`` and ``bits``, sorted by ``group`` and cost.
    """
    kept, left = np.empty(n, np.int64), 0
    for at in range(n):
        i, fell = by[at], False
        for earlier in range(at - 1, max(0, at - _COMPARED) - 1, -1):
            if group[earlier] != group[at]:
                break
            j = by[earlier]
            if room[j] >= room[i] and _may(bits[j], bits[i]) and _leaves_more(rows[j], rows[i]):
                fell = True
                break
        if not fell:
            kept[left] = at
            left += 1
    for at in range(left):
        by[at], group[at] = by[kept[at]], group[kept[at]]
    return left


@part
def _any_is(stages: Ints, stage: int) -> bool:
    for w in stages:  # noqa: SIM110
        if w == stage:
            return True
    return False


@part
def _cheapest(spent: Ints, plan: Ints, option: Ints, plans: int, devices: Ints, start: int, later: Ints) -> Ints:
    """Pairs as in ``plain_steps``."""
    least, spared = np.full(plans, np.iinfo(np.int64).max), np.ones(len(plan), np.bool_)
    for i in range(len(plan)):
        for k in range(len(devices)):
            spared[i] &= later[devices[k, start + option[i]]] <= 0
        if spared[i]:
            least[plan[i]] = min(least[plan[i]], spent[i])
    some, n = np.empty(len(plan), np.int64), 0
    for i in range(len(plan)):
        if spent[i] < least[plan[i]] or (spared[i] and spent[i] == least[plan[i]]):
            some[n] = i
            n += 1
    return some[:n].copy()


@kernel(
    "Tuple((int64[:, ::1], int64[::1], int64[::1], int64[:, ::1], int64[::1], int64[::1], int64[::1]))("
    "int64[:, ::1], int64[::1], int64[::1], int64[::1], int64, int64[::1], int64[::1], int64[::1], int64[:, ::1], "
    "int64[:, ::1], int64[::1], int64[::1], int64[:, ::1], int64, int64[::1], int64[::1])"
)
def place_stage(
    chosen: Ints, group: Ints, plan: Ints, option: Ints, stage: int, ahead: Ints, score: Ints, spent: Ints, free: Ints,
    need: Ints, used: Ints, column: Ints, devices: Ints, start: int, later: Ints, capacity: Ints,
) -> Any:  # fmt: skip
    """Partial plans with one stage more, without those that are dominated (``undominated``).

    Their options, scores, costs, free memory and groups; the first of every group; the devices of the columns.

    Parameters
    ----------
    chosen (N, V), group (N,), free (N, F)
        Options, groups and free memory of the plans that are extended.
    plan, option, score, spent (P,)
        The pairs that go on, with their scores and costs.
    need
        As in ``extend_plans``.
    ahead (K,)
        Stages that later ones depend on.
    used (F,), column (D + 1,), later, capacity (D + 1,)
        As in ``Memory``; ``column`` is kept up to date.
    devices, start
        As in ``extend_plans``.
    """
    if len(plan) > len(chosen) and not _any_is(ahead, stage):
        some = _cheapest(spent, plan, option, len(chosen), devices, start, later)
        plan, option, score, spent = plan[some], option[some], score[some], spent[some]
    P = len(plan)
    lasting = np.flatnonzero(later[used] > 0)
    now = _columns(option, used, column, devices, start, later)
    still, fresh = later[now], capacity[now[len(lasting) :]]
    whole = np.minimum(still, capacity[now])
    rows, bits = np.empty((P, len(now)), np.int64), np.zeros((P, 1 + len(now) // 64), np.int64)
    room, key = np.empty(P, np.int64), np.zeros(P, np.int64)
    for i in range(P):
        row = rows[i]
        _leaves(row, free[plan[i]], lasting, fresh)
        taken = need[group[plan[i]] if len(need) > 1 else 0, option[i]]
        for k in range(len(devices)):
            c = column[devices[k, start + option[i]]]
            if c >= 0:
                row[c] -= taken
        room[i] = _cut_and_marked(row, still, whole, bits[i])
        factor = _HASH_BASE
        for w in ahead:
            key[i] += factor * (option[i] if w == stage else chosen[plan[i], w])
            factor *= _HASH_BASE
    by = _sorted(key, spent, room)
    own = np.zeros(P, np.int64)
    for at in range(1, P):
        own[at] = own[at - 1] + (not _same(by[at - 1], by[at], chosen, plan, option, stage, ahead))
    n, many = P, True
    while many:
        fewer = _drop_fallen(n, by, own, rows, room, bits)
        many = n - fewer >= _MANY_FALL * n
        n = fewer
    kept, own = by[:n], own[:n].copy()
    first = np.empty(own[n - 1] + 1, np.int64)
    for at in range(n - 1, -1, -1):
        first[own[at]] = at
    left, left_free = np.empty((n, chosen.shape[1]), np.int64), np.empty((n, len(now)), np.int64)
    left_score, left_spent = np.empty(n, np.int64), np.empty(n, np.int64)
    for at in range(n):
        i = kept[at]
        left[at], left_free[at] = chosen[plan[i]], rows[i]
        left[at, stage] = option[i]
        left_score[at], left_spent[at] = score[i], spent[i]
    return left, left_score, left_spent, left_free, own, first, now
