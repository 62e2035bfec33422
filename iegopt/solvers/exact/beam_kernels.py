"""Steps of a beam (``plain_steps.py``) as loops that numba compiles (``kernels.py``): the same plans, in one order.

The last of them is ``place_kernel.py``.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.solvers.compiling import part
from iegopt.solvers.exact.kernels import kernel

__all__ = ["extend_plans", "needs_later"]

Ints = npt.NDArray[np.int64]


@kernel("void(int64[::1], int64[:, ::1], int64[::1], int64[::1], int64[::1], int64[:, ::1])")
def needs_later(need: Ints, devices: Ints, ptr: Ints, order: Ints, capacity: Ints, later: Ints) -> None:
    """Fill ``later`` (V, D + 1) as in ``Memory``.

    Parameters
    ----------
    need (n,), devices (K, n), ptr (V + 1,)
        What options take from each of their devices, these devices, and where the options of every stage start.
    order (V,), capacity (D + 1,)
        The order of the stages; memory of devices.
    """
    total, most = np.zeros(len(capacity), np.int64), np.empty(len(capacity), np.int64)
    for place in range(len(order) - 1, -1, -1):
        later[place], most[:] = total, 0
        for o in range(ptr[order[place]], ptr[order[place] + 1]):
            for k in range(len(devices)):
                most[devices[k, o]] = max(most[devices[k, o]], need[o])
        total += most
    for d in range(len(capacity)):
        if total[d] <= capacity[d]:
            later[:, d] = 0


@part
def _keep_least(total: Ints, plan: Ints, option: Ints, n: int, most: int) -> int:
    """Keep the ``most`` least of n pairs, the first of equals, in their order."""
    last = np.partition(total[:n], most - 1)[most - 1]
    ties = most
    for i in range(n):
        ties -= total[i] < last
    kept = 0
    for i in range(n):
        if total[i] < last or (total[i] == last and ties > 0):
            ties -= total[i] == last
            total[kept], plan[kept], option[kept] = total[i], plan[i], option[i]
            kept += 1
    return kept


@kernel(
    "Tuple((int64[::1], int64[::1], int64[::1], int64, boolean))(int64[:, ::1], int64[::1], int64[::1], int64, "
    "int64[:, ::1], int64[::1], int64[:, ::1], int64, int64[::1], int64[:, ::1], int64, int64)"
)
def extend_plans(
    rise: Ints, score: Ints, group: Ints, upper: int, free: Ints, column: Ints, devices: Ints, start: int,
    capacity: Ints, need: Ints, most: int, narrow: int,
) -> Any:  # fmt: skip
    """Pairs of partial plan and option below ``upper`` for which there is memory: plan, option, score.

    And the least score left out, ``upper`` where none is; and whether pairs were more than ``most``, so that the
    ``narrow`` best alone are kept.

    Parameters
    ----------
    rise (G, m), score (N,), group (N,)
        The score of a pair is that of the plan and the rise of its group with the option.
    free (N, F), column (D + 1,)
        As in ``Memory``.
    devices (K, n), start
        Those of all candidates, and the first candidate of the stage.
    capacity (D + 1,)
        Memory of devices.
    need (G or 1, m)
        Memory that the options take.
    """
    N, m, cut = len(score), rise.shape[1], upper
    size = min(N * m, 2 * most + 2)
    plan, option, total = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, np.int64)
    n = 0
    for i in range(N):
        g = group[i]
        own = need[g if len(need) > 1 else 0]
        for o in range(m):
            value = score[i] + rise[g, o]
            if value >= cut:
                continue
            fits = True
            for k in range(len(devices)):
                d = devices[k, start + o]
                fits &= own[o] <= capacity[d]
                if column[d] >= 0:
                    fits &= own[o] <= free[i, column[d]]
            if fits:
                if n == size:
                    n = _keep_least(total, plan, option, n, most + 1)
                    cut = total[:n].max()
                    if value >= cut:
                        continue
                plan[n], option[n], total[n] = i, o, value
                n += 1
    over = n > most
    cut = upper
    if over:
        n = _keep_least(total, plan, option, n, narrow + 1)
        cut = total[:n].max()
        n = _keep_least(total, plan, option, n, narrow)
    return plan[:n].copy(), option[:n].copy(), total[:n].copy(), cut, over
