"""Bodies sent along the connection: TCP between hosts, or any stream socket."""

from __future__ import annotations

import contextlib
import socket
from typing import Any

from iegopt_runtime.errors import TransferError
from iegopt_runtime.kv.channel import check_body, checksum, read_exactly, receive_header, send_header

__all__ = ["StreamChannel"]

LONGEST_BODY = 1 << 30


class StreamChannel:
    """A channel on a connected stream socket, which it closes. ``timeout`` in seconds, of each read or write."""

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        self._socket = connection
        self._socket.settimeout(timeout)
        if connection.family in (socket.AF_INET, socket.AF_INET6):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._slots: list[memoryview] = []
        self._body = bytearray()

    def open_slots(self, slots: int, size: int) -> None:
        self._slots = [memoryview(bytearray(size)) for _ in range(slots)]

    def slot(self, index: int, size: int) -> memoryview:
        return self._slots[index][:size]

    def send(self, header: dict[str, Any], slot: int | None = None, size: int = 0) -> None:
        if slot is None:
            send_header(self._socket, header)
            return
        body = self._slots[slot][:size]
        send_header(self._socket, header | {"size": size, "crc": checksum(body)})
        try:
            self._socket.sendall(body)
        except OSError as error:
            raise TransferError(f"the peer is gone ({error})") from None

    def receive(self) -> tuple[dict[str, Any], memoryview]:
        header = receive_header(self._socket)
        size = header.get("size", 0)
        if not isinstance(size, int) or not 0 <= size <= LONGEST_BODY:
            raise TransferError(f"a body of {size!r} bytes: at most {LONGEST_BODY}")
        if not size:
            return header, memoryview(b"")
        if len(self._body) < size:
            self._body = bytearray(size)
        body = memoryview(self._body)[:size]
        read_exactly(self._socket, body)
        return header, check_body(header, body)

    def receive_plain(self, longest: int) -> dict[str, Any]:
        return receive_header(self._socket, longest=longest)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # not connected any more
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
