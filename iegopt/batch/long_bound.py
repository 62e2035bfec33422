"""A bound on a level by its long prefills: Dantzig and Wolfe's decomposition (1960) by instance.

x_S ∈ {0, 1} says that an instance takes the set S of long prefills (``iegopt.batch.long_sets``). With a price u_i ≥ 0
on every request, f_i = −u_i ≥ 0 where it belongs to a level above that is to have all, and μ_h ≥ 0 on what another
level above is to keep,

    Σ_i u_i  −  Σ_i f_i  +  Σ_j max_S Σ_{i ∈ S} (w_i − u_i, or f_i)  +  Σ_h μ_h·(rest_h − kept_h)  +  rest

is an upper bound, whatever the prices; w_i counts μ_h times above. All that is not long is taken to be placed: the
rest. The prices of a linear programme make it the bound of the relaxation that lets sets be taken in part. It is
worked out from the prices alone, so that no tolerance of the programme's solver is in it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np
import numpy.typing as npt

from iegopt.batch.dual import FLOAT
from iegopt.batch.linear import Programme
from iegopt.batch.long_sets import LongSets
from iegopt.batch.model import BatchModel
from iegopt.solvers.clock import Clock

__all__ = ["long_bound"]

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


def long_bound(
    model: BatchModel, sets: LongSets, possible: Bools, level: int, above: Mapping[int, float | None], clock: Clock
) -> float:
    """The bound, ∞ where time is up before there is one.

    Parameters
    ----------
    possible (N,)
        Requests that a plan may place.
    above
        Priority -> the objective that it keeps at least; ``None``: all its requests are placed.
    """
    queue, rows = model.queue, sets.rows
    others = possible.copy()
    others[rows] = others[sets.never] = False
    rest = {h: float(queue.weight[others & (queue.priority == h)].sum()) for h in (level, *above)}
    kept = {h: value for h, value in above.items() if value is not None}
    prices = _Prices(queue.weight[rows], queue.priority[rows], level, kept, sets)
    if not prices.solve({h: rest[h] - kept[h] for h in kept}, clock):
        return inf
    return prices.value({h: rest[h] - kept[h] for h in kept}) + rest[level]


@dataclass(eq=False)
class _Prices:
    """Prices of the requests (H,), and of what levels above keep."""

    weight: Floats
    priority: Ints
    level: int
    kept: Mapping[int, float]
    sets: LongSets

    def __post_init__(self) -> None:
        counts = {self.level, *self.kept}
        self.forced = ~np.isin(self.priority, list(counts))
        self.u, self.mu = np.zeros(len(self.weight)), dict.fromkeys(self.kept, 0.0)

    def solve(self, left: Mapping[int, float], clock: Clock) -> bool:
        """Set them by the linear programme; whether there was time."""
        lp, most = Programme(), 1.0 + float(self.weight.sum())
        if not self.sets.families:
            return True  # no instance takes any of them: the rest alone counts
        own = self.priority == self.level
        u = lp.columns(np.where(own, self.weight, most))
        v = lp.columns(np.full(len(self.sets.families), inf))
        mu = dict(zip(self.kept, lp.columns(np.full(len(self.kept), most)).tolist(), strict=True))
        for h, column in mu.items():  # a request of that level is worth μ times its weight, and its price no more
            mine = np.flatnonzero(self.priority == h)
            rows = lp.rows(np.zeros(len(mine)))
            lp.add(rows, u[mine], 1.0)
            lp.add(rows, column, -self.weight[mine])
        sets = [(n, members) for n, family in enumerate(self.sets.families) for members in family]
        of, at = np.array([(row, n) for row, (_, members) in enumerate(sets) for n in members]).reshape(-1, 2).T
        rows = lp.rows(-np.bincount(of, np.where(own, self.weight, 0.0)[at], len(sets)))
        lp.add(rows, v[np.array([n for n, _ in sets], dtype=np.int64)], -1.0)
        lp.add(rows[of], u[at], np.where(self.forced[at], 1.0, -1.0))
        for h, column in mu.items():
            lp.add(rows, column, np.bincount(of, np.where(self.priority == h, self.weight, 0.0)[at], len(sets)))
        cost = lp.costs()
        cost[u] = np.where(self.forced, 1.0, -1.0)
        cost[v] = -np.array(list(self.sets.families.values()), dtype=float)
        for h, column in mu.items():
            cost[column] = -left[h]
        found = lp.maximise(cost, clock.left)
        if found is None:
            return False
        self.u = np.maximum(0.0, found[1][u])
        self.mu = {h: max(0.0, float(found[1][column])) for h, column in mu.items()}
        return True

    def value(self, left: Mapping[int, float]) -> float:
        """The bound at the prices, but for the rest of the level."""
        factor = np.array([1.0 if h == self.level else self.mu.get(h, 0.0) for h in self.priority.tolist()])
        gain = np.where(self.forced, self.u, np.maximum(0.0, factor * self.weight - self.u))
        paid = np.where(self.forced, -self.u, self.u).sum() + sum(self.mu[h] * left[h] for h in self.kept)
        sets = [
            count * max(float(gain[list(members)].sum()) for members in family)
            for family, count in self.sets.families.items()
        ]
        size = self.u.sum() + sum(abs(self.mu[h] * left[h]) for h in self.kept) + sum(sets)
        return float(paid + sum(sets) + FLOAT * size)
