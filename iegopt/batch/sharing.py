"""Prefixes that requests of one queue have in common."""

from __future__ import annotations

from iegopt.batch.model import BatchModel

__all__ = ["shared_blocks"]


def shared_blocks(model: BatchModel) -> dict[int, tuple[int, ...]]:
    """Request -> its leading blocks that another queued request has too, where there are any."""
    count: dict[int, int] = {}
    for blocks in model.holdings.blocks:
        for block in blocks:
            count[block] = count.get(block, 0) + 1
    found = {}
    for i, blocks in enumerate(model.holdings.blocks):
        run = next((depth for depth, block in enumerate(blocks) if count[block] < 2), len(blocks))
        if run:
            found[i] = blocks[:run]
    return found
