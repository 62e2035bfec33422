"""``propagate`` of ``branching.py`` as a loop that numba compiles."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import kernel

__all__ = ["propagate_fixed"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@kernel(
    "boolean(boolean[::1], UniTuple(int64[::1], 6), int64, int64[:, ::1], int64[:, ::1], boolean[:, ::1], boolean[::1])"
)
def propagate_fixed(
    keep: Bools, options: tuple[Ints, Ints, Ints, Ints, Ints, Ints], keys: int, devices: Ints, label: Ints,
    member: Bools, apart: Bools,
) -> bool:  # fmt: skip
    """Take from the options ``keep`` (n,) of a node what its fixed stages rule out; whether every stage has one left.

    Options, keys and devices are ``packed`` of ``Candidates``; the others ``required``: labels (R, n), stages (R, V).
    """
    ptr, share, key, shared, capacity, stage = options
    V = len(ptr) - 1
    free, others = capacity.copy(), np.empty(len(keep), np.bool_)
    done, brought = np.zeros(V, np.bool_), np.zeros(keys, np.bool_)
    while True:
        others[:] = keep
        fresh = False
        for v in range(V):
            count, option = 0, -1
            for o in range(ptr[v], ptr[v + 1]):
                if keep[o]:
                    count, option = count + 1, o
            if count == 0:
                return False
            if count > 1 or done[v]:
                continue
            done[v] = fresh = True
            amount = share[option]
            if key[option] >= 0 and not brought[key[option]]:
                amount += shared[option]
                brought[key[option]] = True
            for k in range(len(devices)):
                if devices[k, option] < len(free) - 1:
                    free[devices[k, option]] -= amount
            for r in range(len(apart)):
                if member[r, v]:
                    _follow(label[r], member[r], apart[r], v, option, ptr, others)
        if not fresh:
            return True
        if free.min() < 0:
            return False
        for o in range(len(keep)):
            keep[o] = others[o]
            if keep[o] and not done[stage[o]]:
                need = share[o]
                if key[o] >= 0 and not brought[key[o]]:
                    need += shared[o]
                for k in range(len(devices)):
                    keep[o] &= free[devices[k, o]] >= need


@part
def _follow(label: Ints, member: Bools, apart: bool, v: int, option: int, ptr: Ints, others: Bools) -> None:
    """Take what a rule forbids the other stages once v has its option."""
    for u in range(len(member)):
        if member[u] and u != v:
            for o in range(ptr[u], ptr[u + 1]):
                others[o] &= (label[o] == label[option]) != apart
