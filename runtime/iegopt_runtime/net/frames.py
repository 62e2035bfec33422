"""Frames: four bytes of length, big-endian, then a MessagePack map with string keys.

Nothing is ever unpickled: a frame holds maps, lists, strings, bytes, numbers and booleans, whoever sent it.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgpack

from iegopt_runtime.errors import WireError

__all__ = ["LONGEST", "Frame", "decode", "decode_all", "encode", "read_frame"]

Frame = dict[str, Any]

LONGEST = 64 * 2**20
"""Bytes of the longest frame; a KV cache travels on the data plane, not here."""

_LENGTH = 4
_DEEPEST = 64


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
    if not isinstance(frame, dict) or not all(isinstance(key, str) for key in frame):
        raise WireError(f"a frame that is a {type(frame).__name__}: expected a map with names as keys")
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
        raise WireError(f"a frame of {length} bytes was announced: expected at most {longest}")
    try:
        return decode(await reader.readexactly(length))
    except asyncio.IncompleteReadError as end:
        raise WireError(f"the connection ended {length - len(end.partial)} bytes before the end of a frame") from end
    except ConnectionError:
        return None


def _depth(frame: Frame) -> int:
    depth = 0
    level: list[dict[str, Any] | list[Any]] = [frame]
    while level:
        depth += 1
        if depth > _DEEPEST:
            break
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return depth
