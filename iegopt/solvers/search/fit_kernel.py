"""Best fit (``best_fit.py``) as a loop that numba compiles (the extra ``fast``); the same to the bit.

Importing this module imports numba; ``exact/compiled.py`` does so, and decides when.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.kernels import kernel

__all__ = ["fit"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@kernel(
    "boolean(float64[:, ::1], float64[:, ::1], float64[:, :, ::1], int64[::1], int64[::1], int64[::1], int64[::1], "
    "int64[::1], float64[:, ::1], int64[::1], float64[::1], int64[::1])"
)
def fit(
    cost: Floats, need: Floats, links: Floats, start: Ints, devices: Ints, width: Ints, ptr: Ints, near: Ints,
    factor: Floats, order: Ints, free: Floats, place: Ints,
) -> bool:  # fmt: skip
    """Fill ``place`` (V,), −1 before; ``False`` where a stage fits nowhere. ``free`` is changed in place."""
    for v in order:
        best, least = -1, np.inf
        for p in range(len(start)):
            score = cost[v, p]
            if not score < np.inf:
                continue
            fits = True
            for d in devices[start[p] : start[p] + width[p]]:
                fits = fits and need[v, p] <= free[d]
            if not fits:
                continue
            for i in range(ptr[v], ptr[v + 1]):
                u = place[near[i]]
                if u >= 0:
                    score += factor[i, 0] * links[u, 0, p] + factor[i, 1] * links[u, 1, p]
            if score < least:
                best, least = p, score
        if best < 0:
            return False
        place[v] = best
        for d in devices[start[best] : start[best] + width[best]]:
            free[d] -= need[v, best]
    return True
