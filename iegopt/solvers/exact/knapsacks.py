"""The knapsack of one device: which options it would take at given values, exactly, by dynamic programming.

Memory is counted in cells of a common divisor of everything that goes on the device. Where that makes too many cells,
cells are larger and every need is rounded up: what is packed fits all the same, but more might have fitted.

Source: Kellerer, Pferschy, Pisinger, Knapsack Problems (2004), 2.3 and 11.5 (multiple choice).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem

__all__ = ["Knapsack", "knapsacks"]

Ints = npt.NDArray[np.int64]

_MOST_CELLS = 2_000


@dataclass(frozen=True, eq=False)
class Knapsack:
    """One device.

    Attributes
    ----------
    option, stage, need (K,)
        The allowed options on it in order of their stages, and the cells that each takes.
    cells
        Cells of the device.
    exact
        Whether no need was rounded up.
    """

    option: Ints
    stage: Ints
    need: Ints
    cells: int
    exact: bool

    def pack(self, value: Ints) -> tuple[int, Ints]:
        """The greatest sum of ``value`` (K,) over at most one option per stage that fits, and those options."""
        at = np.flatnonzero((value > 0) & (self.need <= self.cells))
        best = np.zeros(self.cells + 1, dtype=np.int64)
        taken = np.zeros((len(at), self.cells + 1), dtype=np.bool_)
        stage, need, worth = self.stage[at].tolist(), self.need[at].tolist(), value[at].tolist()
        before, last = best, -1
        for row, (v, cells, gain) in enumerate(zip(stage, need, worth, strict=True)):
            if v != last:
                before, last = best.copy(), v
            with_it = before[: self.cells + 1 - cells] + gain
            np.greater(with_it, best[cells:], out=taken[row, cells:])
            np.maximum(with_it, best[cells:], out=best[cells:])
        packed, left, last = [], self.cells, -1
        for row in range(len(at) - 1, -1, -1):
            if stage[row] != last and taken[row, left]:
                packed.append(int(self.option[at[row]]))
                left, last = left - need[row], stage[row]
        return int(best[self.cells]), np.array(packed[::-1], dtype=np.int64)


def knapsacks(problem: Problem) -> list[Knapsack]:
    """One for every device of a problem whose sites have one device each and whose stages share no weights."""
    options, topology = problem.options, problem.topology
    device = topology.device_index[topology.device_ptr[options.site]]
    found = []
    for d in range(topology.D):
        option = np.flatnonzero(problem.allowed & (device == d))
        share, capacity = options.share[option], int(problem.capacity[d])
        divisor = max(1, int(np.gcd.reduce(share))) if len(share) else 1
        capacity = min(capacity, int(share.astype(object).sum())) if len(share) else 0
        unit = divisor * max(1, -(-capacity // (divisor * _MOST_CELLS)))
        need = -(-share // unit)
        cells = capacity // unit
        found.append(Knapsack(option, options.stage[option], need, max(0, cells), unit == divisor))
    return found
