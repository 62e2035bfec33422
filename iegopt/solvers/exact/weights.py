"""Weights of stages in a device's memory, strengthened by dual feasible functions.

A function f on [0, 1] is dual feasible where Σ x ≤ 1 implies Σ f(x) ≤ 1 for all x ≥ 0. With x the fraction of a
device's free memory that a stage takes, Σ f(x) ≤ 1 is then a valid row of the device. Besides f(x) = x there are

    u_k(x) = x where (k + 1)·x is an integer, else ⌊(k + 1)·x⌋ / k        k = 1, 2, …

Three stages of 0.27, 0.55 and 0.9 of a device weigh 1/3, 2/3 and 1 under u_3: what the integers allow, where the plain
row leaves a tenth of the device to fractions. Every device takes the function under which the stages that may use it
weigh most together.

Model weights that stages share count once on a device. A stage takes an equal part of them, one of as many as there are
stages that may use them: together they take no more than the whole, however many do. A stage whose option is fixed has
brought them for all the others.

Source: Fekete & Schepers, New classes of fast lower bounds for bin packing problems, Math. Programming 91 (2001).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.compiled import kernels

__all__ = ["MOST_PARTS", "device_weights", "node_weights", "weights_of_nodes"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

MOST_PARTS = 12
"""Largest k that is tried."""
_NEAR = 1e-9


def device_weights(share: Ints, free: Ints, device: Ints, devices: int) -> Floats:
    """(n,) weights between 0 and 1; on every device those of any stages that fit together sum to at most 1.

    Parameters
    ----------
    share, free (n,)
        Memory that an option takes from a device, and what is free there; 0 < free where share > 0, share ≤ free.
    device (n,)
        The device of each pair.
    """
    x = share / np.maximum(free, 1)
    weight = x
    most = np.bincount(device, weight, devices)
    for k in range(1, MOST_PARTS + 1):
        parts = x * (k + 1)
        whole = np.rint(parts)
        # Next to an integer the lower neighbour is safe against rounding; u_k is never below it.
        rounded = np.where(np.abs(parts - whole) < _NEAR, np.maximum(whole - 1, 0), np.floor(parts)) / k
        total = np.bincount(device, rounded, devices)
        better = total > most + _NEAR
        if better.any():
            weight = np.where(better[device], rounded, weight)
            most = np.where(better, total, most)
    return np.minimum(weight, 1.0)


def weights_of_nodes(c: Candidates, keep: Bools, strengthened: bool = True) -> Floats:
    """(K, n, B) as ``node_weights`` of nodes with options ``keep`` (n, B)."""
    ready = kernels()
    if ready is None:
        return np.stack([node_weights(c, own, strengthened) for own in keep.T], axis=-1)
    weight = np.empty((*c.devices.shape, keep.shape[1]))
    ready.weigh_nodes(np.ascontiguousarray(keep), strengthened, *c.packed, weight)
    return weight


def node_weights(c: Candidates, keep: Bools, strengthened: bool = True) -> Floats:
    """(K, n) weights of a node's options on their devices, of those whose stage is not fixed yet; 0 for the others.

    Parameters
    ----------
    keep (n,)
        Options of the node.
    strengthened
        By dual feasible functions; else the parts of free memory.
    """
    fixed = np.zeros(len(keep), dtype=np.bool_)
    for part in c.of:
        fixed[part] = keep[part] & (keep[part].sum() == 1)
    free = c.capacity.copy()
    _take(free, c.devices[:, fixed], c.share[fixed])
    need = c.share
    if (c.weight_key >= 0).any():
        need = need + _parts_of_weights(c, keep, fixed, free)
    K, n = c.devices.shape
    share = np.tile(need, K)
    device = c.devices.ravel()
    room = free[device]
    binds = np.tile(keep & ~fixed, K) & (device < len(c.capacity) - 1) & (share > 0) & (share <= room)
    weight = np.zeros(K * n)
    if strengthened:
        weight[binds] = device_weights(share[binds], room[binds], device[binds], len(c.capacity))
    else:
        weight[binds] = share[binds] / room[binds]
    return weight.reshape(K, n)


def _parts_of_weights(c: Candidates, keep: Bools, fixed: Bools, free: Ints) -> Ints:
    """(n,) what every option takes of its shared weights; those that fixed stages bring are taken from ``free``."""
    brought = np.flatnonzero(fixed & (c.weight_key >= 0))
    keys, first = np.unique(c.weight_key[brought], return_index=True)
    _take(free, c.devices[:, brought[first]], c.weight_share[brought[first]])
    part = np.zeros(len(keep), dtype=np.int64)
    open_ = np.flatnonzero(keep & ~fixed & (c.weight_key >= 0) & ~np.isin(c.weight_key, keys))
    if open_.size:
        stage = c.stage[open_]
        key, index = np.unique(c.weight_key[open_], return_inverse=True)
        users = np.bincount(np.unique(np.stack([index, stage]), axis=1)[0], minlength=len(key))
        part[open_] = c.weight_share[open_] // users[index]
    return part


def _take(free: Ints, devices: Ints, amount: Ints) -> None:
    """Take an amount (m,) from all of its devices (K, m)."""
    # Given values of one axis for indices of two, ``at`` reads beyond the values (numpy 1.25 to 2.4 at least).
    np.subtract.at(free, devices.ravel(), np.tile(amount, len(devices)))
