"""Which prefix of which request every instance holds: runs of leading blocks, worked out once per chain of blocks.

A block's id stands for it and all before it, so equal ids mean equal prefixes, and what an instance holds of a block's
ancestors is the same for every request that has the block.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from iegopt.batch.build_instances import BuiltInstances
from iegopt.batch.holdings import Holdings

__all__ = ["build_holdings"]

Ints = npt.NDArray[np.int64]
Key = tuple[str, int]
"""Model and block: a KV cache serves its own model alone."""


def build_holdings(
    built: BuiltInstances,
    models: Sequence[str],
    blocks: Sequence[tuple[int, ...]],
    block_tokens: int,
    kept: dict[int, tuple[int, int]],
) -> Holdings:
    """Holdings of a queue.

    Parameters
    ----------
    models, blocks
        Of every request: its model's card, and its prompt's blocks.
    kept
        Request -> (instance, tokens) whose host keeps the KV cache of one that was put aside.
    """
    holders = _holders(built, models, blocks)
    alive: dict[Key, set[int]] = {}
    ends: dict[Key, int] = {}
    chain = np.full(len(blocks), -1, dtype=np.int64)
    rows: list[list[tuple[int, int, float]]] = []
    for i, (model, own) in enumerate(zip(models, blocks, strict=True)):
        runs = _runs(holders, alive, model, own)
        if i in kept:
            j, tokens = kept[i]
            rows.append(_with_kept(_entries(holders, model, own, runs, block_tokens), built, j, tokens))
            chain[i] = len(rows) - 1
        elif runs:
            # Equal last held blocks are equal chains: what is held of them is the same.
            end = (model, own[runs - 1])
            if end not in ends:
                ends[end] = len(rows)
                rows.append(_entries(holders, model, own, runs, block_tokens))
            chain[i] = ends[end]
    flat = [entry for row in rows for entry in row]
    return Holdings(
        chain=chain,
        ptr=np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int64),
        instance=np.array([entry[0] for entry in flat], dtype=np.int64),
        tokens=np.array([entry[1] for entry in flat], dtype=np.int64),
        read=np.array([entry[2] for entry in flat], dtype=float),
        blocks=tuple(blocks),
        block_tokens=block_tokens,
    )


def _holders(
    built: BuiltInstances, models: Sequence[str], blocks: Sequence[tuple[int, ...]]
) -> dict[Key, dict[int, float]]:
    """(model, block) -> instance -> seconds per byte to read it; blocks of the queue alone."""
    wanted: dict[str, set[int]] = {}
    for model, own in zip(models, blocks, strict=True):
        wanted.setdefault(model, set()).update(own)
    holders: dict[Key, dict[int, float]] = {}
    for j, spec in enumerate(built.specs):
        kind = built.kinds.kinds[built.instances.kind[j]]
        asked = wanted.get(kind.card.name)
        if not asked:
            continue
        rates = {"host": float(built.instances.host_seconds_per_byte[j]), "disk": float(built.disk_seconds_per_byte[j])}
        # Blocks that are slower to read than to compute help nobody.
        compute = 2.0 * kind.card.active / (kind.gang.flops * kind.efficiency)
        tiers = [t for t in spec.tiers if rates[t.tier] * kind.card.kv_bytes_per_token() < compute]
        tiers.sort(key=lambda tier: rates[tier.tier])
        places = [(spec.prefix, 0.0), *((tier.blocks, rates[tier.tier]) for tier in tiers)]
        for held, rate in places:
            for block in asked.intersection(held):
                holders.setdefault((kind.card.name, block), {}).setdefault(j, rate)
    return holders


def _runs(holders: dict[Key, dict[int, float]], alive: dict[Key, set[int]], model: str, own: tuple[int, ...]) -> int:
    """Leading blocks that some instance holds without a gap; ``alive`` keeps who holds a block and all before it."""
    before: set[int] | None = None
    for depth, block in enumerate(own):
        key = (model, block)
        if key not in alive:
            there = holders.get(key, {})
            alive[key] = set(there) if before is None else before.intersection(there)
        before = alive[key]
        if not before:
            return depth
    return len(own)


def _entries(
    holders: dict[Key, dict[int, float]], model: str, own: tuple[int, ...], runs: int, block_tokens: int
) -> list[tuple[int, int, float]]:
    """(instance, tokens, seconds per byte of the run) of all that hold the first block, by instance."""
    if not runs:
        return []
    length = dict.fromkeys(holders[model, own[0]], 0)
    read = dict.fromkeys(length, 0.0)
    alive = list(length)
    for block in own[:runs]:
        there = holders[model, block]
        alive = [j for j in alive if j in there]
        for j in alive:
            length[j] += 1
            read[j] += there[j]
    return [(j, length[j] * block_tokens, read[j] / length[j]) for j in sorted(length)]


def _with_kept(
    entries: list[tuple[int, int, float]], built: BuiltInstances, j: int, tokens: int
) -> list[tuple[int, int, float]]:
    """The entries with what the host of j keeps in the place of a shorter run there."""
    own = next((entry for entry in entries if entry[0] == j), None)
    if own is not None and own[1] >= tokens:
        return entries
    rate = float(built.instances.host_seconds_per_byte[j])
    return sorted([*(entry for entry in entries if entry[0] != j), (j, tokens, rate)])
