"""Where the changes of a board may be taken back to."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.batch.instance_load import InstanceLoad
from iegopt.batch.tenancy import Holding

__all__ = ["Mark"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass
class Mark:
    """What a board was at one moment.

    Attributes
    ----------
    worth, sums, holds
        Copies of its worth, and of what its tenants hold.
    old
        Instances that were changed since, as they were.
    undo
        Entries of the plan that were overwritten since, in their order: array, index, value.
    """

    worth: Floats
    sums: Floats
    holds: dict[int, Holding]
    old: dict[int, InstanceLoad] = field(default_factory=dict)
    undo: list[tuple[Ints, int, int]] = field(default_factory=list)

    def absorb(self, later: Mark) -> None:
        """Take over what a later mark saw change."""
        self.old = {**later.old, **self.old}
        self.undo += later.undo
