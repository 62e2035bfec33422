"""Prefix blocks that the prefills of a plan leave on their instances for those after them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from iegopt.batch.model import BatchModel
from iegopt.batch.placement import Placement

__all__ = ["Leavings"]

Ints = npt.NDArray[np.int64]

_NOWHERE = np.zeros(0, dtype=np.int64)


class Leavings:
    """Where the blocks that several queued requests have were sent; those of one alone serve nobody."""

    def __init__(self, model: BatchModel) -> None:
        self.model = model
        count = Counter(block for blocks in model.holdings.blocks for block in blocks)
        self._shared = {block for block, times in count.items() if times > 1}
        self._sent: dict[int, Ints] = {}

    @classmethod
    def of(cls, model: BatchModel, plan: Placement) -> Leavings:
        """What the prefills of a plan leave."""
        found = cls(model)
        for i in np.flatnonzero(plan.prefill >= 0).tolist():
            found.leave(i, int(plan.prefill[i]))
        return found

    def runs(self, i: int) -> Iterator[tuple[Ints, int]]:
        """Instances that were sent the leading blocks of request ``i``, and the tokens of these, ever more of them."""
        size, prompt = self.model.holdings.block_tokens, self.model.plain["prompt"][i]
        for depth, block in enumerate(self.model.holdings.blocks[i], start=1):
            sent = self._sent.get(block)
            if sent is None:
                return
            yield sent, min(depth * size, prompt - 1)

    def leave(self, i: int, p: int) -> None:
        """Request ``i`` prefills on ``p``."""
        for block in self.model.holdings.blocks[i]:
            if block in self._shared:
                known = self._sent.get(block, _NOWHERE)
                if not (known == p).any():
                    self._sent[block] = np.append(known, p)
