"""What a solver of a ``BatchModel`` decides, and nothing else: ``schedule.evaluate`` says what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from iegopt.batch.model import BatchModel

__all__ = ["KEEP", "MIGRATE", "PREEMPT", "Placement"]

Ints = npt.NDArray[np.int64]

KEEP, PREEMPT, MIGRATE = 0, 1, 2


@dataclass(frozen=True, eq=False)
class Placement:
    """Decisions on a model.

    Attributes
    ----------
    prefill, decode (N,)
        Instances, both −1 where a request is not placed.
    fetch (N,)
        Instance whose prefix blocks travel to ``prefill`` first, −1 without. What ``prefill`` holds itself, or what an
        earlier prefill of the plan leaves there, is reused without being said.
    pace (J,)
        Index into the model's paces; −1 where nothing decodes.
    action (R,), to (R,)
        ``KEEP``, ``PREEMPT`` or ``MIGRATE`` (a decode, to that instance; −1 otherwise).
    """

    prefill: Ints
    decode: Ints
    fetch: Ints
    pace: Ints
    action: Ints
    to: Ints

    @classmethod
    def empty(cls, model: BatchModel) -> Self:
        """Nothing placed, everything kept at the pace that its limits leave: never infeasible."""
        none, pace = np.full(model.N, -1), model.instances.base_pace.copy()
        return cls(none, none.copy(), none.copy(), pace, np.full(model.R, KEEP), np.full(model.R, -1))

    def copy(self) -> Placement:
        return replace(self, **{name: getattr(self, name).copy() for name in self.__dataclass_fields__})
