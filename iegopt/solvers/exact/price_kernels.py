"""Prices of many nodes as loops that numba compiles: the steps of ``ascent.py``, the weights of ``weights.py``.

Sums of floats go from the first to the last, as theirs do: every result is bit-equal.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import kernel

__all__ = ["move_prices", "record_prices", "weigh_nodes"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_UNREACHABLE = 1 << 61
_GAIN = 1e-5
_PATIENCE, _SHRINK = 5, 0.6
_DEFLECTION = 0.5
_FALL, _CUT = 0.1, 0.3
_FARTHEST = 0.05
_MOST_PARTS = 12
_NEAR = 1e-9


@kernel("void(int64[::1], int64[::1], int64[::1], UniTuple(float64[:, ::1], 4))")
def record_prices(bound: Ints, best: Ints, stall: Ints, prices: tuple[Floats, Floats, Floats, Floats]) -> None:
    """Keep prices and excess of the nodes (B,) whose bound is a new best one.

    Parameters
    ----------
    prices
        (D + 1, B) prices, the best ones, and the subgradients at both.
    """
    price, best_price, excess, steepest = prices
    for b in range(len(bound)):
        gained = bound[b] > best[b] + np.abs(best[b]) * _GAIN
        stall[b] = 0 if gained else stall[b] + 1
        if bound[b] > best[b]:
            best[b] = bound[b]
            best_price[:, b] = price[:, b]
            steepest[:, b] = excess[:, b]


@kernel(
    "void(int64, boolean, int64[::1], int64[::1], int64[::1], float64[::1], UniTuple(float64[:, ::1], 5), float64[::1])"
)
def move_prices(
    upper: int, again: bool, bound: Ints, best: Ints, stall: Ints, pace: Floats,
    prices: tuple[Floats, Floats, Floats, Floats, Floats], room: Floats,
) -> None:  # fmt: skip
    """A step of the prices of nodes (B,) without rows in time.

    Parameters
    ----------
    again
        Whether a step that was too long is taken again.
    prices
        As of ``record_prices``, and the direction of the last step.
    room (B,)
        Distance to the best known plan, filled.
    """
    price, best_price, excess, steepest, direction = prices
    for b in range(len(bound)):
        fell = again and best[b] - bound[b] > _FALL * (upper - np.float64(best[b]))
        tired = stall[b] >= _PATIENCE
        if fell:
            pace[b] *= _CUT
        elif tired:
            pace[b] *= _SHRINK
        if fell or tired:
            stall[b] = 0
        reach = best[b] if fell else bound[b]
        norm = 0.0
        for d in range(len(price)):
            if fell:
                price[d, b], excess[d, b], direction[d, b] = best_price[d, b], steepest[d, b], 0.0
            if price[d, b] <= 0 and excess[d, b] < 0:
                excess[d, b] = 0.0
            direction[d, b] = excess[d, b] + _DEFLECTION * direction[d, b]
            norm += direction[d, b] * direction[d, b]
        size = np.float64(abs(min(reach, _UNREACHABLE // 2)))
        room[b] = min(max(upper - np.float64(reach), 1e-4 * size), _FARTHEST * size)
        length = pace[b] * room[b] / max(norm, 1e-9)
        for d in range(len(price)):
            price[d, b] = np.rint(max(0.0, price[d, b] + length * direction[d, b]))


@kernel("void(boolean[:, ::1], boolean, UniTuple(int64[::1], 6), int64, int64[:, ::1], float64[:, :, ::1])")
def weigh_nodes(
    keep: Bools, strengthened: bool, options: tuple[Ints, Ints, Ints, Ints, Ints, Ints], keys: int, devices: Ints,
    weight: Floats,
) -> None:  # fmt: skip
    """Fill ``weight`` (K, n, B) for the options of nodes (n, B); the others are ``packed`` of ``Candidates``."""
    ptr, share, key, shared, capacity, stage = options
    K, n = devices.shape
    need = np.empty(n, np.int64)
    fixed = np.empty(len(ptr) - 1, np.bool_)
    at, x = np.empty(K * n, np.int64), np.empty(K * n)
    weight[:] = 0.0
    for b in range(keep.shape[1]):
        free = capacity.copy()
        need[:] = share
        for v in range(len(fixed)):
            fixed[v] = keep[ptr[v] : ptr[v + 1], b].sum() == 1
        for o in range(n):
            if keep[o, b] and fixed[stage[o]]:
                for k in range(K):
                    free[devices[k, o]] -= share[o]
        if keys > 0:
            _share_weights(keep[:, b], fixed, stage, key, shared, keys, devices, free, need)
        count = 0
        for k in range(K):
            for o in range(n):
                d = devices[k, o]
                if keep[o, b] and not fixed[stage[o]] and d < len(free) - 1 and 0 < need[o] <= free[d]:
                    at[count], x[count] = k * n + o, need[o] / free[d]
                    count += 1
        _weigh(at[:count], x[:count], devices, len(free), strengthened, weight[:, :, b])


@part
def _share_weights(
    keep: Bools, fixed: Bools, stage: Ints, key: Ints, shared: Ints, keys: int, devices: Ints, free: Ints, need: Ints
) -> None:
    """Take what fixed stages bring from ``free``, and add what every other option takes of its weights to ``need``."""
    brought, users, last = np.zeros(keys, np.bool_), np.zeros(keys, np.int64), np.full(keys, -1)
    for o in range(len(keep)):
        if keep[o] and fixed[stage[o]] and key[o] >= 0 and not brought[key[o]]:
            brought[key[o]] = True
            for k in range(len(devices)):
                free[devices[k, o]] -= shared[o]
    for o in range(len(keep)):
        if keep[o] and not fixed[stage[o]] and key[o] >= 0 and last[key[o]] != stage[o]:
            last[key[o]] = stage[o]
            users[key[o]] += 1
    for o in range(len(keep)):
        if keep[o] and not fixed[stage[o]] and key[o] >= 0 and not brought[key[o]]:
            need[o] += shared[o] // users[key[o]]


@part
def _rounded(x: float, k: int) -> float:
    """u_k of a part of a device, or the part itself for k = 0."""
    if k == 0:
        return x
    parts = x * (k + 1)
    whole = np.rint(parts)
    return float((max(whole - 1, 0.0) if np.abs(parts - whole) < _NEAR else np.floor(parts)) / k)


@part
def _weigh(at: Ints, x: Floats, devices: Ints, D: int, strengthened: bool, weight: Floats) -> None:
    """Weights (K, n) of pairs of device and option, at flat places, that take a part x of the device."""
    n = devices.shape[1]
    device = np.empty(len(at), np.int64)
    for i in range(len(at)):
        device[i] = devices[at[i] // n, at[i] % n]
    function, most, total = np.zeros(D, np.int64), np.zeros(D), np.empty(D)
    for k in range(_MOST_PARTS + 1 if strengthened else 1):
        total[:] = 0.0
        for i in range(len(at)):
            total[device[i]] += _rounded(x[i], k)
        for d in range(D):
            if k == 0:
                most[d] = total[d]
            elif total[d] > most[d] + _NEAR:
                function[d], most[d] = k, total[d]
    for i in range(len(at)):
        own = _rounded(x[i], function[device[i]])
        weight[at[i] // n, at[i] % n] = min(own, 1.0) if strengthened else own
