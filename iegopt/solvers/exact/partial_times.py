"""What partial plans of a beam have to know of time: the windows in which their stages can still end.

A placed stage has a least finish, from its option's least one and from its placed predecessors, and a latest one, from
its option's latest and from its placed successors. Neither is changed by stages that are placed later, so they are
bounds: a partial plan in which a stage's least finish is after its latest one is in no plan that keeps the limits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.in_time import finish_windows
from iegopt.solvers.exact.messages import UNREACHABLE

__all__ = ["Times"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class Times:
    """Windows (N, V) of N partial plans, and (N,) what they have spent of the budget; grows stage by stage."""

    def __init__(self, c: Candidates, keep: Bools, order: Sequence[int]) -> None:
        self._c = c
        self._paths = c.problem.has_path_limits
        self._budget = c.problem.budget < NO_LIMIT
        if self._paths:
            self._least, self._latest = (part[:, 0] for part in finish_windows(c, keep[:, None]))
            self._first, self._last = (np.zeros((1, c.V), dtype=np.int64) for _ in range(2))
            self._at: tuple[Ints, Ints] | None = None
            self._out: list[list[tuple[int, int]]] = [[] for _ in range(c.V)]
            for v, into in enumerate(c.rows.into):
                for u, e in into:
                    self._out[u].append((v, e))
        if self._budget:
            self._times = np.bincount(c.problem.budget_stages, minlength=c.V)
            least = [int(c.time[part][keep[part]].min()) * int(self._times[v]) for v, part in enumerate(c.of)]
            later = np.cumsum([least[v] for v in reversed(order)])[::-1]
            self._rest = np.append(later[1:], 0)
            self._spent = np.zeros(1, dtype=np.int64)

    def fits(self, chosen: Ints, placed: Sequence[int], stage: int, among: Bools) -> Bools:
        """``among`` (N, m), less the options of a stage that partial plans cannot take in time."""
        c, part = self._c, self._c.of[stage]
        if self._budget and self._times[stage]:
            left = c.problem.budget - int(self._rest[len(placed)]) - self._spent
            among &= c.time[part][None, :] * int(self._times[stage]) <= left[:, None]
        if not self._paths:
            return among
        first, last = self._least[part][None, :], self._latest[part][None, :]
        for u, e in c.rows.into[stage]:
            if u in placed:
                arrival = self._first[:, u][:, None] + self._moved(e, chosen[:, u], True) + c.time[part][None, :]
                first = np.maximum(first, arrival)
        for w, e in self._out[stage]:
            if w in placed:
                start = self._last[:, w] - c.time[c.of[w]][chosen[:, w]]
                last = np.minimum(last, start[:, None] - self._moved(e, chosen[:, w], False))
        self._at = np.broadcast_to(first, among.shape), np.broadcast_to(last, among.shape)
        among &= first <= last
        return among

    def take(self, plan: Ints, option: Ints, stage: int) -> None:
        """Go on with partial plans ``plan`` (N',) that take ``option`` (N',) each."""
        if self._paths:
            assert self._at is not None
            own = [part[plan, option] for part in self._at]
            self._first, self._last = self._first[plan], self._last[plan]
            self._first[:, stage], self._last[:, stage] = own
        if self._budget:
            spent = self._c.time[self._c.of[stage]][option] * int(self._times[stage])
            self._spent = self._spent[plan] + spent

    def _moved(self, edge: int, at: Ints, forward: bool) -> Ints:
        """(N, m) ticks of transfer between options (N,) at one end and all of the other."""
        link = self._c.links[edge]
        if link is None:
            return np.zeros((1, 1), dtype=np.int64)
        return np.minimum(link.moving.rows(at, forward), UNREACHABLE // 4)
