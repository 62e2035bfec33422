"""The KV store of a worker: blocks with their tensors in three tiers, and the sequences that hold them.

``TierIndex`` decides, this carries out: copies between device, host and files. Safe to call from several threads. The
time of every use is given by the caller.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from iegopt_runtime.errors import KvLost, NoRoom, is_out_of_memory
from iegopt_runtime.kv.blocks import Block, KvManifest
from iegopt_runtime.kv.files import BlockFiles
from iegopt_runtime.kv.incoming import Incoming
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.tiers import Tier, TierIndex, TierPolicy

__all__ = ["KvStore", "KvUse"]


@dataclass(frozen=True)
class KvUse:
    """Bytes in use: blocks per tier, and what sequences have reserved in L0; ``free`` is what L0 has left,
    ``available`` what it has for new sequences, since blocks that nobody refers to make room."""

    blocks: Mapping[Tier, int]
    reserved: int
    free: int
    available: int


class KvStore:
    """Blocks of one worker.

    Parameters
    ----------
    memory
        The device whose memory is L0.
    folder
        Where L2 lies; blocks found there are taken in, so that a worker finds its copies again after a restart.
        ``None``: no L2, whatever its budget.
    """

    def __init__(self, memory: DeviceMemory, policy: TierPolicy, folder: Path | None = None, now: float = 0.0) -> None:
        if folder is None and policy.budgets.get(Tier.L2, 0):
            raise ValueError("a budget for L2 without a folder for its files")
        self.memory = memory
        self._index = TierIndex(policy)
        self._files = BlockFiles(folder) if folder is not None else None
        self._tensors: dict[Tier, dict[str, torch.Tensor]] = {Tier.L0: {}, Tier.L1: {}}
        self._manifests: dict[str, KvManifest] = {}
        self._lock = threading.RLock()
        self._adopt(now)

    def put(
        self,
        block: Block,
        tensor: torch.Tensor,
        now: float,
        tier: Tier = Tier.L0,
        copy: Tier | None = None,
        *,
        owned: bool = False,
    ) -> bool:
        """Take in a block, of the layout's shape, from any device; False where it was held already.

        Parameters
        ----------
        copy
            Tier of a second copy, for recovery; left out where that tier is full of blocks in use.
        owned
            The caller gives the tensor away, so that it may be kept without copying it.

        Raises
        ------
        NoRoom
            Neither ``tier`` nor one below has room.
        """
        with self._lock:
            try:
                placed = self._index.put(block.key, tensor.nbytes, now, tier)
            finally:
                self._carry_out()
            if placed is not None:
                try:
                    self._store(block.key, tensor, placed, owned)
                except BaseException as error:  # what the index says is held, is held
                    self._discard(block.key)
                    if isinstance(error, OSError) or is_out_of_memory(error):
                        raise NoRoom(placed.name, tensor.nbytes, 0) from None
                    raise
            if copy is not None:
                self._index.copy(block.key, copy)
                self._carry_out()
            return placed is not None

    def incoming(self, tier: Tier = Tier.L0, copy: Tier | None = None) -> Incoming:
        """Begin to take in the blocks of a sequence one by one."""
        return Incoming(self, tier, copy)

    def save(
        self,
        manifest: KvManifest,
        tensor: Callable[[Block], torch.Tensor],
        now: float,
        tier: Tier = Tier.L0,
        copy: Tier | None = None,
    ) -> KvManifest:
        """Take in the blocks of a sequence and hold them under its ``kv_id``; blocks held already are kept as they are.

        Returns
        -------
        KvManifest
            What of it is held: all, or the blocks before the first that found no room.
        """
        incoming = self.incoming(tier, copy)
        for block in manifest.blocks:
            incoming.add(block, tensor(block), now)
        return incoming.commit(manifest)

    def read(self, block: Block, now: float) -> torch.Tensor:
        """The tensor of a block, in device or host memory as it lies; not to be changed. The block is touched.

        Raises
        ------
        KvLost
            It is not held, or its file is damaged (and then forgotten).
        """
        with self._lock:
            if block.key not in self._index:
                raise KvLost(f"block {block.key} is not held")
            self._index.touch(block.key, now)
            return self._load(block.key)

    def match(self, blocks: Sequence[Block]) -> int:
        """How many of the first blocks are held, in any tier."""
        with self._lock:
            return next((i for i, block in enumerate(blocks) if block.key not in self._index), len(blocks))

    @contextmanager
    def leased(self, blocks: Sequence[Block], now: float, *, promote: bool = True) -> Iterator[Sequence[Block]]:
        """The longest held run of first blocks, kept from being dropped inside; brought up to L0 as far as there is
        room if ``promote``."""
        with self._lock:
            held = self.acquire(blocks)
            # The deepest first: of a sequence that was used at once, the root is the last to go.
            for block in reversed(held):
                if block.key not in self._index:
                    continue
                if promote:
                    self._index.promote(block.key, now)
                    self._carry_out()
                else:
                    self._index.touch(block.key, now)
            whole = self.match(held)  # a file may have turned out damaged on its way up
            self.release(held[whole:])
            held = held[:whole]
        try:
            yield held
        finally:
            self.release(held)

    def acquire(self, blocks: Sequence[Block]) -> Sequence[Block]:
        """Refer once more to the longest held run of first blocks, which is returned."""
        with self._lock:
            held = blocks[: self.match(blocks)]
            for block in held:
                self._index.acquire(block.key)
            return held

    def release(self, blocks: Sequence[Block], discard: Collection[str] = ()) -> None:
        """Refer once less to each; those in ``discard`` are dropped unless somebody else refers to them."""
        with self._lock:
            for block in blocks:
                self._index.release(block.key)
                if block.key in discard and block.key in self._index and not self._index.references(block.key):
                    self._discard(block.key)

    def enter(self, manifest: KvManifest) -> None:
        """Hold a sequence whose blocks were acquired for it, in place of what its ``kv_id`` held before."""
        with self._lock:
            self.forget(manifest.kv_id)
            self._manifests[manifest.kv_id] = manifest

    def forget(self, kv_id: str) -> None:
        """The sequence refers to its blocks no longer; they stay as long as there is room. Nothing if unknown."""
        with self._lock:
            manifest = self._manifests.pop(kv_id, None)
            for block in manifest.blocks if manifest else ():
                self._index.release(block.key)

    def manifest(self, kv_id: str) -> KvManifest | None:
        with self._lock:
            return self._manifests.get(kv_id)

    def held(self) -> tuple[str, ...]:
        """The ``kv_id`` of every sequence held."""
        with self._lock:
            return tuple(self._manifests)

    def reserve(self, owner: str, size: int) -> None:
        """Set bytes of L0 aside (``TierIndex.reserve``), moving blocks out of the way.

        Raises
        ------
        NoRoom
            It is full of what others have reserved.
        """
        with self._lock:
            try:
                self._index.reserve(owner, size)
            finally:
                self._carry_out()

    def budget(self, tier: Tier) -> int:
        """Bytes that the tier may take."""
        return self._index.policy.budgets.get(tier, 0)

    def sweep(self, now: float) -> None:
        """Let cold blocks sink; to be called now and then."""
        with self._lock:
            self._index.sweep(now)
            self._carry_out()

    def tiers(self, block: Block) -> frozenset[Tier]:
        with self._lock:
            return self._index.tiers(block.key)

    def use(self) -> KvUse:
        with self._lock:
            reserved = sum(self._index.reserved.values())
            free = self._index.free(Tier.L0)
            return KvUse(dict(self._index.used), reserved, free, free + self._index.idle(Tier.L0))

    def _adopt(self, now: float) -> None:
        if self._files is None:
            return
        for key, size in self._files.sizes().items():
            if self._index.free(Tier.L2) >= size:
                self._index.put(key, size, now, Tier.L2)
            else:
                self._files.delete(key)

    def _carry_out(self) -> None:
        moves, self._index.moves = self._index.moves, []
        lost: set[str] = set()
        for move in moves:
            if move.target is not None and move.key not in lost:
                try:
                    self._store(move.key, self._tensor(move.key, move.source), move.target)
                except (KvLost, OSError, RuntimeError, MemoryError):  # a damaged file, a full disk, memory that is out
                    lost.add(move.key)
            if move.drop:
                self._remove(move.key, move.source)
        for key in lost:
            self._discard(key)

    def _discard(self, key: str) -> None:
        self._index.discard(key)
        self._carry_out()

    def _store(self, key: str, tensor: torch.Tensor, tier: Tier, owned: bool = False) -> None:
        if owned and not self.memory.cuda and tier is not Tier.L2:
            self._tensors[tier][key] = tensor
        elif tier is Tier.L0:
            self._tensors[tier][key] = self.memory.to_device(tensor)
        elif tier is Tier.L1:
            self._tensors[tier][key] = self.memory.to_host(tensor)
        elif self._files is not None:
            on_host = self.memory.to_host(tensor) if tensor.is_cuda else tensor.contiguous()
            self._files.write(key, on_host)

    def _remove(self, key: str, tier: Tier) -> None:
        if tier is not Tier.L2:
            self._tensors[tier].pop(key, None)
        elif self._files is not None:
            self._files.delete(key)

    def _tensor(self, key: str, tier: Tier) -> torch.Tensor:
        if tier is not Tier.L2:
            return self._tensors[tier][key]
        if self._files is None:
            raise KvLost(f"block {key}: no files are kept")
        return self._files.read(key)

    def _load(self, key: str) -> torch.Tensor:
        """From the uppermost tier; a damaged file is forgotten."""
        try:
            return self._tensor(key, min(self._index.tiers(key)))
        except KvLost:
            self._discard(key)
            raise
