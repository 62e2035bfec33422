"""The one seam of I/O in a transfer: messages with a small header and, in some, a body of bulk data.

Two transports stand behind it: ``kv.memfd`` hands bodies over in shared memory between processes of one host, and
``kv.tcp`` sends them along. A header is a JSON object after its length; nothing is ever unpickled.
"""

from __future__ import annotations

import json
import socket
import struct
import zlib
from typing import Any, Protocol

from iegopt_runtime.errors import TransferError

__all__ = ["MOST_SLOTS", "Channel", "check_body", "checksum", "read_exactly", "receive_header", "send_header"]

LONGEST_HEADER = 16 << 20
MOST_SLOTS = 64
"""Bodies on their way at once."""
_LENGTH = struct.Struct(">I")


class Channel(Protocol):
    """A connection. Every method raises ``TransferError`` where the peer is gone, late, or talks nonsense."""

    def open_slots(self, slots: int, size: int) -> None:
        """Prepare to send bodies of up to ``size`` bytes, ``slots`` of them on their way at once."""

    def slot(self, index: int, size: int) -> memoryview:
        """Where to write the body of the next message from this slot; free once the peer has answered for it."""

    def send(self, header: dict[str, Any], slot: int | None = None, size: int = 0) -> None:
        """Send a header, with the first ``size`` bytes of a slot as body."""

    def receive(self) -> tuple[dict[str, Any], memoryview]:
        """The next message; the body is checked, and stays as it is until the next ``receive`` or an answer."""

    def receive_plain(self, longest: int) -> dict[str, Any]:
        """The next header of at most so many bytes, from a peer who is not trusted with a body yet."""

    def close(self) -> None:
        """End the connection, from any thread; whoever waits on it gets a ``TransferError``."""


def checksum(data: memoryview) -> int:
    """CRC-32 of a body, some 2 GB/s on one core."""
    return zlib.crc32(data)


def check_body(header: dict[str, Any], data: memoryview) -> memoryview:
    """The body, if it has the checksum that its header gives."""
    if checksum(data) != header.get("crc"):
        raise TransferError(f"a body of {len(data)} bytes arrived damaged")
    return data


def send_header(connection: socket.socket, header: dict[str, Any], fds: list[int] | None = None) -> None:
    data = json.dumps(header, separators=(",", ":")).encode()
    if len(data) > LONGEST_HEADER:
        raise TransferError(f"a header of {len(data)} bytes: at most {LONGEST_HEADER}")
    message = _LENGTH.pack(len(data)) + data
    try:
        sent = socket.send_fds(connection, [message], fds) if fds else 0
        connection.sendall(message[sent:])
    except OSError as error:
        raise TransferError(f"the peer is gone ({error})") from None


def receive_header(
    connection: socket.socket, fds: list[int] | None = None, longest: int = LONGEST_HEADER
) -> dict[str, Any]:
    """The next header; file descriptors that come with it are appended to ``fds``, without which they are dropped."""
    size = bytearray(_LENGTH.size)
    view = memoryview(size)
    if fds is not None:
        try:
            first, passed, _, _ = socket.recv_fds(connection, _LENGTH.size, MOST_SLOTS, socket.MSG_CMSG_CLOEXEC)
        except OSError as error:
            raise TransferError(f"the peer is gone ({error})") from None
        fds.extend(passed)
        if not first:
            raise TransferError("the peer closed the connection")
        view[: len(first)] = first
        view = view[len(first) :]
    read_exactly(connection, view)
    (length,) = _LENGTH.unpack(size)
    if length > longest:
        raise TransferError(f"a header of {length} bytes: at most {longest}")
    data = bytearray(length)
    read_exactly(connection, memoryview(data))
    try:
        header = json.loads(data)
    except (ValueError, RecursionError):
        header = None
    if not isinstance(header, dict):
        raise TransferError("a header is no JSON object")
    return header


def read_exactly(connection: socket.socket, view: memoryview) -> None:
    """Fill ``view``."""
    while view:
        try:
            count = connection.recv_into(view)
        except OSError as error:
            raise TransferError(f"the peer is gone ({error})") from None
        if not count:
            raise TransferError("the peer closed the connection")
        view = view[count:]
