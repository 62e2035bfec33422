"""Frames: four bytes of length, big-endian, then a MessagePack map with string keys.

Nothing is ever unpickled: a frame holds maps, lists, strings, bytes, numbers and booleans, whoever sent it.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from typing import Any, TypeVar

import msgpack

from iegopt.units import a_kind
from iegopt_runtime.errors import WireError

__all__ = ["LONGEST", "Frame", "Frames", "decode", "decode_all", "encode", "fitting", "read_frame", "stamped"]

Frame = dict[str, Any]
T = TypeVar("T")

LONGEST = 64 * 2**20
"""Bytes of the longest frame; a KV cache travels on the data plane, not here."""

_LENGTH = 4
_DEEPEST = 64
_SHARE = 8
"""Parts of a frame of which a list may take one: what holds several is still one frame."""
_SHORT_MAP, _LONGEST_SHORT_MAP = 0x80, 0x8F
_AT = b"\xa2at\xcb"
"""The key, and the mark of a float of eight bytes (https://github.com/msgpack/msgpack/blob/master/spec.md)."""


def encode(frame: Frame) -> bytes:
    """A frame as bytes, its length in front.

    Raises
    ------
    WireError
        Where it holds something that is not data, or is longer than ``LONGEST``.
    """
    try:
        body: bytes = msgpack.packb(frame, use_bin_type=True)
    except (TypeError, ValueError, OverflowError) as error:
        raise WireError(f"a frame of type {frame.get('type')!r} cannot be sent: {error}") from error
    if len(body) > LONGEST:
        raise WireError(f"a frame of type {frame.get('type')!r} has {len(body)} bytes: expected at most {LONGEST}")
    return len(body).to_bytes(_LENGTH, "big") + body


def decode(body: bytes) -> Frame:
    """The map that a frame's body is.

    Raises
    ------
    WireError
        For anything else.
    """
    try:
        frame = msgpack.unpackb(body, raw=False, strict_map_key=True, use_list=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as error:
        raise WireError(f"{len(body)} bytes that are no frame: {error}") from error
    if type(frame) is not dict or not all(type(key) is str for key in frame):
        raise WireError(f"a frame that is {a_kind(type(frame))}: expected a map with names as keys")
    if _depth(frame) > _DEEPEST:
        raise WireError(f"a frame nested deeper than {_DEEPEST}")
    return frame


def decode_all(data: bytes) -> list[Frame]:
    """The frames one after the other in ``data``; what is left of a last one that is not whole is dropped.

    Raises
    ------
    WireError
        As ``decode``.
    """
    frames: list[Frame] = []
    at = 0
    while (end := at + _LENGTH + int.from_bytes(data[at : at + _LENGTH], "big")) <= len(data) and at < len(data):
        frames.append(decode(data[at + _LENGTH : end]))
        at = end
    return frames


def stamped(body: bytes, at: float) -> bytes:
    """The body of a frame with ``at`` as its last field, which counts where the key comes twice."""
    if _SHORT_MAP <= body[0] < _LONGEST_SHORT_MAP:
        return bytes((body[0] + 1,)) + body[1:] + _AT + struct.pack(">d", at)
    packed: bytes = msgpack.packb({**decode(body), "at": at}, use_bin_type=True)
    return packed


def fitting(values: Iterable[T], most: int = LONGEST) -> list[T]:
    """The first of the values, as many as one field of a frame holds, and no more than ``most`` bytes of them."""
    left, chosen = min(most, LONGEST // _SHARE), list[T]()
    for value in values:
        left -= len(msgpack.packb(value, use_bin_type=True))
        if left < 0:
            break
        chosen.append(value)
    return chosen


class Frames:
    """Cuts a stream of bytes into the bodies of its frames."""

    def __init__(self) -> None:
        self._left = bytearray()
        self._wanted = _LENGTH

    def cut(self, data: bytes) -> list[bytes]:
        """The bodies that these bytes complete.

        Raises
        ------
        WireError
            For a length above ``LONGEST``.
        """
        self._left += data
        left, start, bodies = self._left, 0, []
        while len(left) - start >= self._wanted:
            length = int.from_bytes(left[start : start + _LENGTH], "big")
            if length > LONGEST:
                raise WireError(_too_long(length, LONGEST))
            end = start + _LENGTH + length
            if end > len(left):
                self._wanted = _LENGTH + length
                break
            bodies.append(bytes(left[start + _LENGTH : end]))
            start, self._wanted = end, _LENGTH
        del left[:start]
        return bodies

    def end(self) -> None:
        """There are no more bytes.

        Raises
        ------
        WireError
            Where that is in the middle of a frame.
        """
        if len(self._left) >= _LENGTH:
            raise WireError(_cut_short(self._wanted - len(self._left)))
        if self._left:
            raise WireError("the connection ended inside the length of a frame")


def _too_long(length: int, longest: int) -> str:
    return f"a frame of {length} bytes was announced: expected at most {longest}"


def _cut_short(missing: int) -> str:
    return f"the connection ended {missing} bytes before the end of a frame"


async def read_frame(reader: asyncio.StreamReader, longest: int = LONGEST) -> Frame | None:
    """The next frame, ``None`` where the other side has closed between two.

    Raises
    ------
    WireError
        For a length above ``longest``, an end in the middle of a frame, or a body that is no map.
    """
    try:
        head = await reader.readexactly(_LENGTH)
    except asyncio.IncompleteReadError as end:
        if end.partial:
            raise WireError("the connection ended inside the length of a frame") from end
        return None
    except ConnectionError:
        return None
    length = int.from_bytes(head, "big")
    if length > longest:
        raise WireError(_too_long(length, longest))
    try:
        return decode(await reader.readexactly(length))
    except asyncio.IncompleteReadError as end:
        raise WireError(_cut_short(length - len(end.partial))) from end
    except ConnectionError:
        return None


_NESTS = frozenset({dict, list})


def _depth(frame: Frame) -> int:
    depth = 1
    level = [inner for inner in frame.values() if type(inner) in _NESTS]
    while level and depth <= _DEEPEST:
        depth += 1
        level = [
            inner
            for outer in level
            for inner in (outer.values() if type(outer) is dict else outer)
            if type(inner) in _NESTS
        ]
    return depth
