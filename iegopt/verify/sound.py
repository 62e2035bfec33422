"""The check of a choice of options (``assignment.py``) as loops that numba compiles (the extra ``fast``).

It says whether the choice is sound, and what it costs, in a fifth of the time that the loops in Python take. What it
finds wrong, these tell in words. Like them it shares no code with the solvers; ``iegopt.warmup`` loads it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numba
import numpy as np
import numpy.typing as npt

__all__ = ["KERNELS", "sound"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Levels = tuple[Floats, Floats, Floats, Floats, Floats]

F = TypeVar("F", bound=Callable[..., Any])

_NONE = 2**63 - 1
_MILLION = 1_000_000


def _part(function: F) -> F:
    return numba.njit(nogil=True)(function)  # type: ignore[no-any-return]


def _kernel(function: F) -> F:
    return numba.njit(cache=True, nogil=True)(function)  # type: ignore[no-any-return]


@_part
def _fits(ptr: Ints, index: Ints, site: Ints, share: Ints, key: Ints, extra: Ints, capacity: Ints) -> bool:
    """Whether the stages, by what they take of each device of their sites, leave no device overfull."""
    load, counted = np.zeros(len(capacity), dtype=np.int64), {np.int64(-1)}
    for v in range(len(site)):
        amount = share[v]
        if key[v] >= 0 and key[v] not in counted:
            counted.add(key[v])
            amount += extra[v]
        for i in range(ptr[site[v]], ptr[site[v] + 1]):
            load[index[i]] += amount
    for s in site:
        for i in range(ptr[s], ptr[s + 1]):
            if load[index[i]] > capacity[index[i]]:
                return False
    return True


@_part
def _seconds(
    ptr: Ints, group: Ints, latencies: Levels, rates: Levels, pairs: tuple[Floats, Floats], parallel: bool, site: Ints,
    ends: tuple[Ints, Ints], size: Floats,
) -> Floats:  # fmt: skip
    """(E,) seconds of every edge: latency + bytes/k · seconds per byte."""
    (source, target), (pair_latency, pair_rate) = ends, pairs
    found = np.zeros(len(source))
    for e in range(len(source)):
        a, b = site[source[e]], site[target[e]]
        if a == b:
            continue
        if len(pair_latency):
            latency, rate = pair_latency[a, b], pair_rate[a, b]
        else:
            level = 0
            while level < len(group) and (group[level, a] < 0 or group[level, a] != group[level, b]):
                level += 1
            own = group[level, a] if level < len(group) else 0
            latency, rate = latencies[level][own], rates[level][own]
        width = ptr[a + 1] - ptr[a]
        shards = width if parallel and width == ptr[b + 1] - ptr[b] else 1
        found[e] = latency + size[e] / shards * rate
    return found


@_part
def _finish(time: Ints, ends: tuple[Ints, Ints], moved: Ints) -> Ints:
    """(V,) longest path to the end of every stage, by relaxing the edges until nothing moves."""
    source, target = ends
    finish = time.copy()
    for _ in range(len(time)):
        settled = True
        for e in range(len(source)):
            arrival = finish[source[e]] + moved[e] + time[target[e]]
            if arrival > finish[target[e]]:
                finish[target[e]], settled = arrival, False
        if settled:
            break
    return finish


@_part
def _holds(group: Ints, site: Ints, members: Ints, level: int, apart: bool) -> bool:
    """Whether the stages of an affinity all share a group of its level, or no two do."""
    for i in range(len(members)):
        for j in range(i):
            a, b = site[members[i]], site[members[j]]
            together = a == b or (level >= 0 and group[level, a] >= 0 and group[level, a] == group[level, b])
            if together == apart:
                return False
    return True


@_kernel
def sound(
    options: tuple[Ints, Ints, Ints, Ints, Ints, Ints, Ints], capacity: Ints, limits: tuple[Ints, Ints],
    whole: tuple[int, int, int], budget_stages: Ints, devices: tuple[Ints, Ints], group: Ints, latencies: Levels,
    rates: Levels, pairs: tuple[Floats, Floats], parallel: bool, ends: tuple[Ints, Ints],
    figures: tuple[Floats, Floats], rules: tuple[Ints, Ints, Ints, Ints, Ints, Ints], choice: Ints,
) -> tuple[bool, int, int]:  # fmt: skip
    """Whether a choice keeps every constraint; if so, what it costs and takes, in ticks.

    Parameters
    ----------
    options
        ptr, site, cost, time, share, weight_key and weight_share.
    limits (V,), whole
        SLAs and by when stages end; deadline and budget of all, and millionths that a tick of the makespan costs.
    devices
        device_ptr and device_index.
    pairs
        Latency and seconds per byte of measured pairs of sites; empty: there are none.
    figures (E,)
        Weight and bytes.
    rules
        Of the affinities where the stages of each begin among all, these, level, whether apart, whether required, and
        penalty.
    """
    ptr, where, costs, times, shares, keys, extras = options
    for v in range(len(choice)):
        if choice[v] < ptr[v] or choice[v] >= ptr[v + 1]:
            return False, 0, 0
    site, time = where[choice], times[choice]
    if not _fits(devices[0], devices[1], site, shares[choice], keys[choice], extras[choice], capacity):
        return False, 0, 0
    seconds = _seconds(devices[0], group, latencies, rates, pairs, parallel, site, ends, figures[1])
    finish = _finish(time, ends, np.rint(seconds * 1e9).astype(np.int64))
    deadline, budget, millionths = whole
    for v in range(len(choice)):
        late = finish[v] > deadline or (limits[1][v] < _NONE and finish[v] > limits[1][v])
        if time[v] > limits[0][v] or late:
            return False, 0, 0
    if time[budget_stages].sum() > budget:
        return False, 0, 0
    cost = costs[choice].sum() + np.rint(figures[0] * seconds * 1e9).astype(np.int64).sum()
    start, members, level, apart, required, penalty = rules
    for r in range(len(level)):
        if not _holds(group, site, members[start[r] : start[r + 1]], level[r], apart[r] > 0):
            if required[r]:
                return False, 0, 0
            cost += penalty[r]
    end = finish.max()
    rest = millionths * (end % _MILLION)
    cost += millionths * (end // _MILLION) + rest // _MILLION + (1 if rest % _MILLION else 0)
    return True, cost, end


KERNELS: dict[str, tuple[Any, str]] = {
    "sound": (
        sound,
        "Tuple((boolean, int64, int64))(UniTuple(int64[::1], 7), int64[::1], UniTuple(int64[::1], 2), "
        "UniTuple(int64, 3), int64[::1], UniTuple(int64[::1], 2), int64[:, ::1], UniTuple(float64[::1], 5), "
        "UniTuple(float64[::1], 5), UniTuple(float64[:, ::1], 2), boolean, UniTuple(int64[::1], 2), "
        "UniTuple(float64[::1], 2), UniTuple(int64[::1], 6), int64[::1])",
    )
}
"""Name -> numba's dispatcher, and the signature to compile it for."""
