"""Bodies in shared memory, for processes of one host: anonymous files handed over a unix socket (SCM_RIGHTS).

The sender writes into a slot, the receiver reads the same pages. No name stands for the memory, so the kernel frees it
with the last process that has it open, however that ends. The receiver checks that the size is sealed: a sender that
shrank the file could otherwise kill it (memfd_create(2), F_SEAL_SHRINK).
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import socket
from typing import Any

from iegopt_runtime.errors import TransferError
from iegopt_runtime.kv.channel import MOST_SLOTS, check_body, checksum, receive_header, send_header

__all__ = ["MemfdChannel"]

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL


class MemfdChannel:
    """A channel on a connected unix socket, which it closes. ``timeout`` in seconds, of each read or write."""

    def __init__(self, connection: socket.socket, timeout: float) -> None:
        self._socket = connection
        self._socket.settimeout(timeout)
        self._mine: list[mmap.mmap] = []
        self._theirs: list[mmap.mmap] = []
        self._unsent: list[int] = []

    def open_slots(self, slots: int, size: int) -> None:
        try:
            for _ in range(slots):
                fd = os.memfd_create("iegopt-kv", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
                self._unsent.append(fd)
                os.ftruncate(fd, max(size, 1))
                fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
                self._mine.append(mmap.mmap(fd, max(size, 1)))
        except OSError as error:
            raise TransferError(f"no shared memory of {slots} × {size} bytes can be had ({error})") from None

    def slot(self, index: int, size: int) -> memoryview:
        return memoryview(self._mine[index])[:size]

    def send(self, header: dict[str, Any], slot: int | None = None, size: int = 0) -> None:
        if slot is not None:
            header = header | {"slot": slot, "size": size, "crc": checksum(self.slot(slot, size))}
        send_header(self._socket, header, self._unsent)
        self._close_unsent()

    def receive(self) -> tuple[dict[str, Any], memoryview]:
        fds: list[int] = []
        try:
            header = receive_header(self._socket, fds)
            self._theirs += [_mapped(fd) for fd in fds]
        finally:
            for fd in fds:
                os.close(fd)
        if len(self._theirs) > MOST_SLOTS:
            raise TransferError(f"{len(self._theirs)} slots: at most {MOST_SLOTS}")
        if "slot" not in header:
            return header, memoryview(b"")
        slot, size = header["slot"], header.get("size")
        if not isinstance(slot, int) or not 0 <= slot < len(self._theirs):
            raise TransferError(f"slot {slot!r}: {len(self._theirs)} were handed over")
        if not isinstance(size, int) or not 0 <= size <= len(self._theirs[slot]):
            raise TransferError(f"a body of {size!r} bytes in a slot of {len(self._theirs[slot])}")
        return header, check_body(header, memoryview(self._theirs[slot])[:size])

    def receive_plain(self, longest: int) -> dict[str, Any]:
        return receive_header(self._socket, longest=longest)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        self._close_unsent()
        # The maps go with their last view: a thread may be reading one just now.
        self._mine, self._theirs = [], []

    def _close_unsent(self) -> None:
        for fd in self._unsent:
            os.close(fd)
        self._unsent = []


def _mapped(fd: int) -> mmap.mmap:
    # Writable, since torch warns of tensors in memory that is not; nothing here writes to it.
    try:
        if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            return mmap.mmap(fd, 0)
    except (OSError, ValueError) as error:
        raise TransferError(f"a descriptor that is no shared memory ({error})") from None
    raise TransferError("shared memory whose size is not sealed")
