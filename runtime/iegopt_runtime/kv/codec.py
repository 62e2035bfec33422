"""KV as bytes for a transfer, as it is or compressed (section 6.5).

A piece of a block, shape (layers, 2, heads, n, head_dim), is quantised per channel: each channel of each head has one
scale over the n tokens, since keys have a few channels far larger than the rest (Liu et al. 2024, KIVI). A piece so
short that its scales would outweigh the gain goes as it is.

=========  ============================  ==========================================
none       the dtype of the layout       exact
fp8        e4m3, scaled to 448           relative to the value
int8       −127 … 127                    relative to the largest of the channel
int4       −7 … 7, two to a byte         the same
=========  ============================  ==========================================
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from iegopt_runtime.errors import TransferError
from iegopt_runtime.kv.blocks import EXACT
from iegopt_runtime.kv.layout import KvLayout

__all__ = [
    "COMPRESSIONS",
    "CodecError",
    "Compression",
    "decode",
    "encode",
    "encoded_bytes",
    "grade_of",
    "measure",
    "used_for",
]

Compression = Literal["none", "fp8", "int8", "int4"]
COMPRESSIONS: tuple[Compression, ...] = ("none", "fp8", "int8", "int4")

_LARGEST = {"fp8": 448.0, "int8": 127.0, "int4": 7.0}
SCALE_BYTES = 4


def encoded_bytes(layout: KvLayout, layers: int, tokens: int, compression: Compression) -> int:
    """Bytes of a piece of so many layers and tokens."""
    channels = layers * 2 * layout.heads * layout.head_dim
    if compression == "none":
        return layout.bytes_per_token // layout.layers * layers * tokens
    values = channels * tokens
    return channels * SCALE_BYTES + (-(-values // 2) if compression == "int4" else values)


def grade_of(compression: Compression) -> str:
    """The grade of KV that was exact and went through this (``kv.blocks.graded``)."""
    return EXACT if compression == "none" else compression


def used_for(layout: KvLayout, tokens: int, compression: Compression) -> Compression:
    """The compression for a piece of so many tokens: ``none`` where scales would outweigh the gain."""
    plain = encoded_bytes(layout, 1, tokens, "none")
    return compression if encoded_bytes(layout, 1, tokens, compression) < plain else "none"


def encode(piece: torch.Tensor, compression: Compression, out: memoryview) -> None:
    """Write a piece, on any device, strided as it may be, into ``out`` of exactly ``encoded_bytes``."""
    if compression == "none":
        _view(out, piece.dtype, piece.shape).copy_(piece)
        return
    values = piece.float()
    scales = values.abs().amax(dim=3, keepdim=True) / _LARGEST[compression]
    scaled = values / torch.where(scales > 0, scales, torch.ones_like(scales))
    head = scales.numel() * SCALE_BYTES
    _view(out[:head], torch.float32, scales.shape).copy_(scales)
    if compression == "fp8":
        _view(out[head:], torch.float8_e4m3fn, scaled.shape).copy_(scaled)
        return
    whole = scaled.round()
    if compression == "int8":
        _view(out[head:], torch.int8, whole.shape).copy_(whole)
        return
    nibbles = (whole + 8).to(torch.uint8).flatten()
    if len(nibbles) % 2:
        nibbles = torch.cat((nibbles, nibbles.new_zeros(1)))
    _view(out[head:], torch.uint8, (len(nibbles) // 2,)).copy_(nibbles[::2] | nibbles[1::2] << 4)


def decode(
    data: memoryview, layout: KvLayout, layers: int, tokens: int, compression: Compression, out: torch.Tensor
) -> None:
    """Read a piece into ``out``, of its shape and the dtype of the layout.

    Raises
    ------
    TransferError
        ``data`` has another length than such a piece.
    """
    expected = encoded_bytes(layout, layers, tokens, compression)
    if len(data) != expected:
        raise TransferError(f"a piece of {len(data)} bytes: expected {expected}")
    shape = (layers, 2, layout.heads, tokens, layout.head_dim)
    if compression == "none":
        out.copy_(_view(data, out.dtype, shape))
        return
    scale_shape = (*shape[:3], 1, shape[4])
    head = layers * 2 * layout.heads * layout.head_dim * SCALE_BYTES
    scales = _view(data[:head], torch.float32, scale_shape)
    if compression == "fp8":
        out.copy_(_view(data[head:], torch.float8_e4m3fn, shape).float() * scales)
    elif compression == "int8":
        out.copy_(_view(data[head:], torch.int8, shape) * scales)
    else:
        packed = _view(data[head:], torch.uint8, (len(data) - head,))
        nibbles = torch.stack((packed & 15, packed >> 4), dim=1).flatten()[: out.numel()]
        out.copy_((nibbles.float() - 8).view(shape) * scales)


@dataclass(frozen=True)
class CodecError:
    """``largest``: of any value; ``relative``: root mean square of the error over that of the values; ``ratio``:
    bytes sent over bytes held."""

    largest: float
    relative: float
    ratio: float


def measure(block: torch.Tensor, layout: KvLayout, compression: Compression) -> CodecError:
    """What compressing and expanding a block does to it."""
    layers, tokens = block.shape[0], block.shape[3]
    data = bytearray(encoded_bytes(layout, layers, tokens, compression))
    encode(block, compression, memoryview(data))
    back = torch.empty(block.shape, dtype=block.dtype)
    decode(memoryview(data), layout, layers, tokens, compression, back)
    error, values = (back.float() - block.float().cpu()), block.float().cpu()
    return CodecError(
        largest=float(error.abs().max()),
        relative=float(error.pow(2).mean().sqrt() / values.pow(2).mean().sqrt().clamp_min(1e-30)),
        ratio=len(data) / block.nbytes,
    )


def _view(data: memoryview, dtype: torch.dtype, shape: tuple[int, ...] | torch.Size) -> torch.Tensor:
    return torch.frombuffer(data, dtype=dtype).view(shape)
