"""Moving running decodes to other instances of their family."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.batch.blueprint import slowest_allowed
from iegopt.batch.board import Board
from iegopt.batch.links import transfer_seconds
from iegopt.batch.model import BatchModel
from iegopt.batch.pinned import free_beside
from iegopt.batch.placement import KEEP

__all__ = ["Moving"]

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

TRIED = 2
"""Instances tried for each."""
EASY = 0.1
"""Part of its time that is free where one more decode is hardly felt."""


class Moving:
    """What runs where, and where it may go, in one model.

    Attributes
    ----------
    there
        Running stages by the instances where they prefill and decode.
    """

    def __init__(self, model: BatchModel) -> None:
        self.model, running, at = model, model.running, model.instances
        self.there: dict[int, list[int]] = {}
        for r in range(model.R):
            for j in {int(running.instance[r]), int(running.decode[r])}:
                self.there.setdefault(j, []).append(r)
        self._free: dict[int, Floats] = {}
        self._family = model.kinds.family[at.kind]
        self._takes = [
            np.flatnonzero(at.open & at.decodes & (self._family == family))
            for family in range(int(self._family.max(initial=0)) + 1)
        ]

    def free(self, level: int) -> Floats:
        """(J,) share of its time that an instance has for prefills where all leaves that may for a level's request."""
        if level not in self._free:
            self._free[level] = free_beside(self.model, ~self.may(level))
        return self._free[level]

    def cleared(self, board: Board, j: int, level: int, *, spread: bool = False) -> None:
        """Move away from ``j`` all that may for a request of a level, and let what stays decode as slowly as it may.

        Parameters
        ----------
        spread
            As for ``moved``.
        """
        may = self.may(level)
        for r in self.there.get(j, ()):
            if board.plan.action[r] == KEEP and may[r]:
                self.moved(board, r, j, spread=spread)
        slowest = int(slowest_allowed(board)[j])
        if np.isfinite(board.tau[j]) and slowest > board.plan.pace[j]:
            board.repace(j, slowest)

    def may(self, level: int) -> Bools:
        """(R,) what may move for a level's request: levels above would lose by it."""
        running = self.model.running
        return np.asarray((running.priority >= level) & ~running.is_prefill & self.model.policy.migration)

    def moved(self, board: Board, r: int, j: int, *, spread: bool = False) -> bool:
        """Move a running decode from ``j`` to one of its family that decodes, has time, and of these does most other
        work, or has most time left (``spread``); whether one takes it."""
        model, running = self.model, self.model.running
        if not model.policy.migration or running.is_prefill[r]:
            return False
        takes = self._takes[int(self._family[j])]
        takes = takes[(takes != j) & (board.memory[takes] >= running.kv_there[r])]
        spare = (board.slack[takes] / np.maximum(board.grid, 1e-3)).min(axis=1, initial=np.inf)
        # One that decodes nothing, or has most of its time, is worth more to who needs it alone.
        crowd = np.zeros(len(takes)) if spread else -model.instances.other[takes]
        turn = np.lexsort((-spare, crowd, spare < EASY, np.isinf(board.tau[takes])))
        return any(self.take(board, r, j, to) for to in takes[turn][:TRIED].tolist())

    def take(self, board: Board, r: int, j: int, to: int) -> bool:
        """Move a running decode from ``j`` to one instance, if that can take it."""
        model, running = self.model, self.model.running
        itl = float(running.itl[r])
        rung = int(board.plan.pace[to]) if np.isfinite(board.tau[to]) else self._rung(itl)
        way = float(transfer_seconds(model.instances, model.policy.kv_transfer_config, j, to, running.wire_now[r]))
        late = way + int(running.remaining[r]) * board.paces[rung] > float(running.finish_by[r])
        loss = float(running.weight[r]) * model.policy.second_value * way
        return not late and board.move(r, to, rung, loss)

    def _rung(self, itl: float) -> int:
        return max(0, int(np.searchsorted(self.model.paces, itl, side="right")) - 1)
