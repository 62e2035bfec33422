"""Sending KV to the worker that will decode, while the prefill still computes it.

A ``KvSender`` is the sink of a job: the engine hands it each block as it is complete, a thread of its own compresses
and sends them. What the other end holds already is not sent. With ``overlap_compute`` off everything goes at the end.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

import torch

from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.errors import TransferError
from iegopt_runtime.kv.address import connect
from iegopt_runtime.kv.auth import enter
from iegopt_runtime.kv.blocks import EXACT, Block, KvManifest, graded
from iegopt_runtime.kv.channel import Channel
from iegopt_runtime.kv.codec import Compression, grade_of
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.pieces import PieceSender

__all__ = ["KvSender", "Pushed"]

TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Pushed:
    """``tokens`` are held at the other end, fewer than there are where it has no room; ``sent`` bytes of bodies;
    ``skipped`` blocks were there before; ``exposed_seconds`` passed between the last block computed and all of them
    being held there."""

    tokens: int
    sent: int
    skipped: int
    exposed_seconds: float
    manifest: KvManifest


@dataclass(frozen=True)
class _End:
    manifest: KvManifest | None
    released: Callable[[], None] | None
    reason: str


_Item = tuple[Block, torch.Tensor, "torch.cuda.Event | None"]


class KvSender:
    """One transfer to ``address``; ``pushed`` is its outcome, or a ``TransferError``."""

    def __init__(
        self,
        address: str,
        secret: bytes,
        config: KvTransferConfig,
        memory: DeviceMemory,
        timeout: float = TIMEOUT_SECONDS,
    ) -> None:  # fmt: skip
        self.pushed: Future[Pushed] = Future()
        self._address, self._secret, self._config, self._memory = address, secret, config, memory
        self._timeout = timeout
        self._items: queue.SimpleQueue[_Item | _End] = queue.SimpleQueue()
        self._planned: KvManifest | None = None
        self._block_tokens = 0
        self._compression: Compression = "none"
        self._end: _End | None = None
        self._computed_at = time.perf_counter()
        self._thread = threading.Thread(target=self._run, name="kv-sender", daemon=True)

    def begin(self, planned: KvManifest, block_tokens: int) -> None:
        """As of ``BlockSink``."""
        # What was compressed once is not compressed again: its grade says which loss it has.
        self._compression = self._config.compression if planned.grade == EXACT else "none"
        self._planned, self._block_tokens = planned, block_tokens
        self._thread.start()

    def block(self, block: Block, tensor: torch.Tensor) -> None:
        """As of ``BlockSink``."""
        self._computed_at = time.perf_counter()
        self._items.put((block, tensor, self._memory.mark()))

    def finish(self, manifest: KvManifest, released: Callable[[], None]) -> None:
        """As of ``BlockSink``."""
        self._items.put(_End(manifest, released, ""))

    def abort(self, reason: str) -> None:
        """As of ``BlockSink``."""
        self._items.put(_End(None, None, reason))
        if self._planned is None and not self.pushed.done():  # it never began
            self.pushed.set_exception(TransferError(f"called off: {reason}"))

    def _run(self) -> None:
        try:
            outcome = self._transfer()
        except Exception as error:  # noqa: BLE001 - whatever happens, the one who waits for the outcome must hear of it
            failure = error if isinstance(error, TransferError) else TransferError(f"{type(error).__name__}: {error}")
            self.pushed.set_exception(failure)
        else:
            self.pushed.set_result(outcome)
        finally:
            while self._end is None:
                self._take()
            if self._end.released is not None:
                self._end.released()

    def _take(self) -> _Item | None:
        """The next block; ``None`` at the end."""
        item = self._items.get()
        if isinstance(item, _End):
            self._end = item
            return None
        return item

    def _transfer(self) -> Pushed:
        backlog: list[_Item] = []
        if not self._config.overlap_compute:
            backlog = list(iter(self._take, None))
        planned = self._planned
        if planned is None:
            raise TransferError("no transfer was begun")
        grade = grade_of(self._compression)
        channel = connect(self._address, self._timeout)
        try:
            enter(channel, self._secret)
            sender = PieceSender(channel, planned.layout, self._block_tokens, self._config)
            sender.begin({"op": "push", "planned": planned.as_grade(grade).document()})
            there = _answer(channel, "have")
            skip = {block.key for index, block in enumerate(planned.blocks) if index in there}
            for item in _chained(backlog, self._take, lambda: self._end is not None):
                if item[0].key not in skip:
                    with self._memory.after(item[2]):
                        sender.send(graded(item[0], grade), item[1], self._compression)
            end = self._end
            if end is None or end.manifest is None:
                raise TransferError(f"called off: {end.reason if end else 'no end'}")
            manifest = end.manifest.as_grade(grade)
            sender.end(manifest)
            tokens = _answer(channel, "held")
            return Pushed(tokens, sender.sent, len(skip), time.perf_counter() - self._computed_at, manifest)
        finally:
            channel.close()


def _chained(
    backlog: list[_Item], take: Callable[[], _Item | None], ended: Callable[[], bool]
) -> Iterator[_Item]:  # fmt: skip
    yield from backlog
    if not ended():
        yield from iter(take, None)


def _answer(channel: Channel, key: str) -> Any:
    header, _ = channel.receive()
    if key not in header:
        raise TransferError(f"the receiver: {header.get('error', 'an answer that was not expected')}")
    return header[key]
