"""Where KV can be had: addresses of workers' data plane, and channels to them.

``unix:PATH``, or ``unix:@NAME`` for a name that is no file and vanishes with its process (unix(7), abstract): shared
memory between processes of one host. ``tcp:HOST:PORT``: any host. ``file:FOLDER``: blocks that a worker left in files.
"""

from __future__ import annotations

import contextlib
import os
import socket

from iegopt.errors import InputError
from iegopt_runtime.errors import TransferError
from iegopt_runtime.kv.channel import Channel
from iegopt_runtime.kv.memfd import MemfdChannel
from iegopt_runtime.kv.tcp import StreamChannel

__all__ = ["bound", "channel_on", "connect"]

BACKLOG = 64


def connect(address: str, timeout: float) -> Channel:
    """A channel to a server; its own timeout is ``timeout``, too.

    Raises
    ------
    TransferError
        Nobody answers there.
    InputError
        It is no address of a server.
    """
    connection, target = _socket(address)
    connection.settimeout(timeout)
    try:
        connection.connect(target)
    except OSError as error:
        connection.close()
        raise TransferError(f"{address}: nobody answers ({error})") from None
    return channel_on(connection, timeout)


def bound(address: str) -> tuple[socket.socket, str]:
    """A listening socket and the address that it got: with port 0 the system chooses one.

    Raises
    ------
    InputError
        It is no address of a server, or cannot be had.
    """
    listener, target = _socket(address)
    try:
        if listener.family == socket.AF_UNIX and isinstance(target, str) and not target.startswith("\0"):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(target)  # left by a process that was killed
        elif listener.family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise InputError(f"{address}: cannot listen there ({error})") from None
    if listener.family == socket.AF_UNIX:
        return listener, address
    host, port = listener.getsockname()[:2]
    return listener, f"tcp:{f'[{host}]' if ':' in host else host}:{port}"


def channel_on(connection: socket.socket, timeout: float) -> Channel:
    """The transport that belongs to the kind of socket."""
    if connection.family == socket.AF_UNIX:
        return MemfdChannel(connection, timeout)
    return StreamChannel(connection, timeout)


def _socket(address: str) -> tuple[socket.socket, str | tuple[str, int]]:
    kind, _, rest = address.partition(":")
    if kind == "unix" and rest:
        target = f"\0{rest[1:]}" if rest.startswith("@") else rest
        return socket.socket(socket.AF_UNIX, socket.SOCK_STREAM), target
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host and port.isdigit() and int(port) < 1 << 16:
        host = host.strip("[]")
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.socket(family, socket.SOCK_STREAM), (host, int(port))
    raise InputError(f"{address!r}: expected unix:PATH, unix:@NAME or tcp:HOST:PORT")
