"""Blocks in pieces over a channel, a bounded number of them on their way at once.

A piece is a block, or as many of its layers as a chunk holds (at least one). Every piece is answered for when it has
been read; up to ``pipeline_depth`` may be unanswered, so that compressing, copying and checking overlap. The one who
sends opens with a header that says what will come, and ends with one that names every block of the sequence.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, get_args

import torch

from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.errors import TransferError
from iegopt_runtime.kv.blocks import Block, KvManifest
from iegopt_runtime.kv.channel import MOST_SLOTS, Channel
from iegopt_runtime.kv.codec import Compression, decode, encode, encoded_bytes, used_for
from iegopt_runtime.kv.incoming import Incoming
from iegopt_runtime.kv.layout import KvLayout

__all__ = ["PieceReceiver", "PieceSender", "layers_per_piece"]


def layers_per_piece(layout: KvLayout, tokens: int, compression: Compression, chunk_size: int) -> int:
    """Layers of a block of so many tokens that fit into a chunk, at least one."""
    return max(1, min(layout.layers, chunk_size // encoded_bytes(layout, 1, tokens, compression)))


class PieceSender:
    """The sending end. ``sent`` counts bytes of bodies."""

    def __init__(self, channel: Channel, layout: KvLayout, block_tokens: int, config: KvTransferConfig) -> None:
        self.sent = 0
        self._channel, self._layout, self._config = channel, layout, config
        self._depth = min(config.pipeline_depth, MOST_SLOTS)
        self._block_tokens = block_tokens
        self._next = self._answered = 0

    def begin(self, header: dict[str, Any]) -> None:
        """Open the transfer with the opener's own header."""
        largest = max(
            encoded_bytes(self._layout, self._layers(compression), self._block_tokens, compression)
            for compression in ("none", self._config.compression)
        )
        self._channel.open_slots(self._depth, largest)
        self._channel.send(header)

    def send(self, block: Block, tensor: torch.Tensor, compression: Compression) -> None:
        """All pieces of a block, shape (layers, 2, heads, tokens, head_dim), as soon as slots are free. ``block`` is
        what it is called after the compression."""
        compression = used_for(self._layout, block.tokens, compression)
        step = self._layers(compression)
        for first in range(0, self._layout.layers, step):
            piece = tensor[first : first + step]
            size = encoded_bytes(self._layout, len(piece), block.tokens, compression)
            while self._next - self._answered >= self._depth:
                self._answer()
            slot = self._next % self._depth
            encode(piece, compression, self._channel.slot(slot, size))
            header = {
                "piece": [block.key, block.begin, block.end],
                "layers": [first, first + len(piece)],
                "compression": compression,
            }
            self._channel.send(header, slot, size)
            self._next += 1
            self.sent += size

    def _layers(self, compression: Compression) -> int:
        return layers_per_piece(self._layout, self._block_tokens, compression, self._config.chunk_size)

    def end(self, manifest: KvManifest) -> None:
        """Name the whole sequence, after the last piece has been answered for."""
        while self._answered < self._next:
            self._answer()
        self._channel.send({"end": manifest.document()})

    def _answer(self) -> None:
        header, _ = self._channel.receive()
        if "error" in header:
            raise TransferError(f"the receiver: {header['error']}")
        if header.get("read") != self._answered:
            raise TransferError(f"an answer for piece {header.get('read')!r}: expected {self._answered}")
        self._answered += 1


@dataclass
class _Partial:
    block: Block
    tensor: torch.Tensor
    missing: set[int]


class PieceReceiver:
    """The receiving end: complete blocks go to ``incoming`` at once.

    Parameters
    ----------
    most_bytes
        Of blocks that have come in part only, before it calls the transfer off. ``taken`` counts bytes of KV in all.
    """

    def __init__(self, channel: Channel, layout: KvLayout, incoming: Incoming, most_bytes: int) -> None:
        self.taken = 0
        self._channel, self._layout, self._incoming, self._most = channel, layout, incoming, most_bytes
        self._partial: dict[str, _Partial] = {}
        self._read = 0

    def receive(self, now: float) -> KvManifest | None:
        """One message; the manifest where it was the last.

        Raises
        ------
        TransferError
            It is no piece of such a KV, damaged, or more than was agreed.
        """
        header, body = self._channel.receive()
        if "error" in header:
            raise TransferError(f"the sender: {header['error']}")
        if "end" in header:
            return self._end(header["end"])
        try:
            key, begin, end = header["piece"]
            first, last = header["layers"]
            block = Block(str(key), int(begin), int(end))
            compression = header["compression"]
            fits = 0 <= first < last <= self._layout.layers and block.tokens > 0 and block.begin >= 0
        except (KeyError, TypeError, ValueError) as error:
            raise TransferError(f"no piece of KV: {error!r}") from None
        if not fits or compression not in get_args(Compression):
            raise TransferError(f"a piece of layers {first} to {last}, tokens {begin} to {end}, {compression!r}")
        partial = self._partial.get(block.key) or self._open(block)
        piece = partial.tensor[first:last]
        decode(body, self._layout, last - first, block.tokens, compression, piece)
        self._channel.send({"read": self._read})
        self._read += 1
        partial.missing -= set(range(first, last))
        if not partial.missing:
            del self._partial[block.key]
            self._incoming.add(partial.block, partial.tensor, now, owned=True)
        return None

    def _open(self, block: Block) -> _Partial:
        size = self._layout.bytes_per_token * block.tokens
        self.taken += size
        opened = sum(partial.tensor.nbytes for partial in self._partial.values())
        if opened + size > self._most:
            raise TransferError(f"more than {self._most} bytes of blocks that have come in part only")
        tensor = torch.empty(self._layout.shape(block.tokens), dtype=getattr(torch, self._layout.dtype))
        self._partial[block.key] = _Partial(block, tensor, set(range(self._layout.layers)))
        return self._partial[block.key]

    def _end(self, document: Any) -> KvManifest:
        if self._partial:
            raise TransferError(f"{len(self._partial)} blocks came in part only")
        try:
            manifest = KvManifest.read(document)
        except (TypeError, ValueError) as error:
            raise TransferError(str(error)) from None
        if manifest.layout != self._layout:
            raise TransferError(f"KV of another shape than announced: {manifest.layout}")
        return manifest
