"""Prefix blocks that instances hold of the prompts of a queue."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
import numpy.typing as npt

__all__ = ["Holdings"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Holdings:
    """Prefixes that instances hold: the longest run of leading blocks of every chain of blocks on every instance.

    Attributes
    ----------
    chain (N,)
        Chain of a request, −1 where nobody holds its first block.
    ptr (C + 1,), instance, tokens, read
        Entries of chain c: ``ptr[c]`` to ``ptr[c + 1]``, by instance; tokens of the run, and the seconds per byte of
        all the run that reading its blocks from host or disk takes (0: on the device).
    blocks
        Per request its block ids, for sharing within the plan.
    """

    chain: Ints
    ptr: Ints
    instance: Ints
    tokens: Ints
    read: Floats
    blocks: tuple[tuple[int, ...], ...]
    block_tokens: int

    def of(self, request: int, prompt: int) -> tuple[Ints, Ints, Floats]:
        """Instances, tokens (less than the prompt: its last token is always computed), seconds per byte to read."""
        c = self.chain[request]
        entries = slice(self.ptr[c], self.ptr[c + 1]) if c >= 0 else slice(0, 0)
        return self.instance[entries], np.minimum(self.tokens[entries], prompt - 1), self.read[entries]

    def held(self, request: Ints, instance: Ints, prompt: Ints) -> tuple[Ints, Floats]:
        """Tokens that each request's instance holds of its prompt, and seconds per byte to read them; 0 without."""
        if not len(self._keys):
            return np.zeros(len(request), dtype=np.int64), np.zeros(len(request))
        wanted = self.chain[request] * self._width + instance
        at = np.minimum(np.searchsorted(self._keys, wanted), len(self._keys) - 1)
        there = (self._keys[at] == wanted) & (self.chain[request] >= 0) & (instance >= 0) & (instance < self._width)
        tokens = np.where(there, np.minimum(self.tokens[at], prompt - 1), 0)
        return tokens, np.where(there, self.read[at], 0.0)

    def one(self, request: int, instance: int, prompt: int) -> tuple[int, float]:
        """``held`` of one request on one instance."""
        found = self._entries.get(int(self.chain[request]) * self._width + instance)
        return (0, 0.0) if found is None or instance >= self._width else (min(found[0], prompt - 1), found[1])

    @cached_property
    def shared(self) -> dict[int, tuple[int, ...]]:
        """Request -> its leading blocks that another request has too, where there are any."""
        count = Counter(chain.from_iterable(self.blocks))
        found = {}
        for i, blocks in enumerate(self.blocks):
            run = next((depth for depth, block in enumerate(blocks) if count[block] < 2), len(blocks))
            if run:
                found[i] = blocks[:run]
        return found

    @cached_property
    def _entries(self) -> dict[int, tuple[int, float]]:
        values = zip(self.tokens.tolist(), self.read.tolist(), strict=True)
        return dict(zip(self._keys.tolist(), values, strict=True))

    @cached_property
    def _width(self) -> int:
        return int(self.instance.max(initial=-1)) + 1

    @cached_property
    def _keys(self) -> Ints:
        """Chain and instance of every entry as one number, ascending."""
        chain = np.repeat(np.arange(len(self.ptr) - 1), np.diff(self.ptr))
        return chain * self._width + self.instance
