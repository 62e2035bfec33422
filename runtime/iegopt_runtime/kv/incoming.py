"""Blocks of a sequence that comes in from elsewhere or is saved: all of it is held in the end, or nothing is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from iegopt_runtime.errors import NoRoom
from iegopt_runtime.kv.blocks import Block, KvManifest
from iegopt_runtime.kv.tiers import Tier

if TYPE_CHECKING:
    from iegopt_runtime.kv.store import KvStore

__all__ = ["Incoming"]


class Incoming:
    """Blocks of a sequence as they come in, in any order: kept from being dropped, held under a name once all are there
    (``commit``), or forgotten as if they had never come (``discard``)."""

    def __init__(self, store: KvStore, tier: Tier, copy: Tier | None) -> None:
        self._store, self._tier, self._copy = store, tier, copy
        self._acquired: dict[str, Block] = {}
        self._fresh: set[str] = set()

    def held(self, blocks: Sequence[Block]) -> list[Block]:
        """Those of ``blocks`` that are here and stay so; they need not come in any more."""
        for block in blocks:
            if block.key not in self._acquired and self._store.acquire([block]):
                self._acquired[block.key] = block
        return [block for block in blocks if block.key in self._acquired]

    def add(self, block: Block, tensor: torch.Tensor, now: float, *, owned: bool = False) -> None:
        """A block has come in. Where there is no room for it, ``commit`` ends before it."""
        if block.key in self._acquired:
            return
        try:
            fresh = self._store.put(block, tensor, now, self._tier, self._copy, owned=owned)
        except NoRoom:
            return
        if self._store.acquire([block]):
            self._acquired[block.key] = block
            self._fresh |= {block.key} if fresh else set()

    def commit(self, manifest: KvManifest) -> KvManifest:
        """Hold the sequence under its ``kv_id``: its blocks up to the first that is not here."""
        count = next((i for i, b in enumerate(manifest.blocks) if b.key not in self._acquired), len(manifest.blocks))
        held = replace(manifest, blocks=manifest.blocks[:count])
        for block in held.blocks:
            self._acquired.pop(block.key)
        self._store.enter(held)
        self.discard()
        return held

    def discard(self) -> None:
        """Forget what is not held; what was here before stays."""
        self._store.release(list(self._acquired.values()), self._fresh)
        self._acquired = {}
