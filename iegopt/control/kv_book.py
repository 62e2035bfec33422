"""Where the KV caches of a request lie: which workers hold them, and what outlives those."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any

from iegopt.control.results import HeldKv

__all__ = ["FILE_TIER", "Holding", "KvBook"]

FILE_TIER = "L2"
"""The tier of files, which a process leaves behind when it ends; the others are its own memory."""


@dataclass(frozen=True)
class Holding:
    """One copy: ``worker`` wrote it, and still holds it unless it is a file."""

    worker: str
    tier: str
    tokens: int
    addresses: dict[str, Any]


@dataclass
class KvBook:
    """Stage -> the copies of the KV cache that it wrote, best first; no copies where all are lost.

    ``tokens`` and ``bytes`` are of the largest copy that there was.
    """

    holdings: dict[str, tuple[Holding, ...]] = field(default_factory=dict)
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def write(
        self, stage: str, worker: str, addresses: dict[str, Any], kv: HeldKv, pushed: Holding | None
    ) -> list[str]:
        """A worker has written the KV cache of a stage.

        Returns
        -------
        list
            Workers that have an older one of this stage, which nobody needs any more.
        """
        before = self.holders(stage)
        own = Holding(worker, "L0", kv.tokens, addresses)
        copies = tuple(Holding(worker, copy.tier, kv.tokens, copy.addresses) for copy in kv.copies)
        there = (pushed,) if pushed is not None and kv.pushed else ()
        self.holdings[stage] = (*there, own, *copies)
        self.sizes[stage] = (kv.tokens, kv.bytes)
        return [old for old in before if old not in self.holders(stage)]

    def leave(self, stage: str, worker: str, tokens: int, file: str) -> None:
        """A worker that does not end a stage has left in files what it had computed of at most so many tokens."""
        others = (h for h in self.holdings.get(stage, ()) if (h.worker, h.tier) != (worker, FILE_TIER))
        self.holdings[stage] = (*others, Holding(worker, FILE_TIER, tokens, {"file": file}))

    def holders(self, stage: str) -> list[str]:
        """Workers that have it in memory, each once."""
        held = (h.worker for h in self.holdings.get(stage, ()) if h.tier != FILE_TIER)
        return list(dict.fromkeys(held))

    def sources(self, stage: str, reader: str, name: str, silent: Container[str] = ()) -> list[dict[str, Any]]:
        """Copies of the KV cache of this name as a Start lists them, the reader's own first.

        What silent workers hold in memory is left out: finding out that one hangs takes longer than computing again.
        """
        heard = (h for h in self.holdings.get(stage, ()) if h.tier == FILE_TIER or h.worker not in silent)
        ranked = sorted(heard, key=lambda h: h.worker != reader)
        return [
            {"id": name, "worker": h.worker, "tier": h.tier, "tokens": h.tokens, "addresses": h.addresses}
            for h in ranked
        ]

    def lose(self, workers: set[str], *, files: bool) -> list[str]:
        """What these workers held is gone, with ``files`` their files too; the stages that lost a copy."""
        struck = []
        for stage, holdings in self.holdings.items():
            kept = tuple(h for h in holdings if h.worker not in workers or (h.tier == FILE_TIER and not files))
            if len(kept) < len(holdings):
                self.holdings[stage] = kept
                struck.append(stage)
        return struck

    def unreadable(self, stage: str, reader: str) -> None:
        """Nobody but the reader itself has copies that it can read: those of others proved to be gone."""
        self.holdings[stage] = tuple(h for h in self.holdings.get(stage, ()) if h.worker == reader and h.tier == "L0")

    def drop(self, stage: str) -> None:
        """It is needed no more."""
        self.holdings.pop(stage, None)
        self.sizes.pop(stage, None)
