"""Where KV can be had: addresses of workers' data plane, and channels to them.

``unix:PATH``, or ``unix:@NAME`` for a name that is no file and vanishes with its process (unix(7), abstract): shared
memory between processes of one host. ``tcp:HOST:PORT``: any host. ``file:FOLDER``: blocks that a worker left in files.
"""

from __future__ import annotations

import contextlib
import os
import socket
import stat

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


def bound(address: str, towards: str | None = None) -> tuple[socket.socket, str]:
    """A listening socket and the address at which others reach it: with port 0 the system chooses one, and of
    ``0.0.0.0`` it is the one that this machine has towards the host ``towards``.

    Raises
    ------
    InputError
        It is no address of a server, or cannot be had.
    """
    listener, target = _socket(address)
    try:
        if listener.family == socket.AF_UNIX and isinstance(target, str) and not target.startswith("\0"):
            _remove_socket(target)  # left by a process that was killed
        elif listener.family != socket.AF_UNIX:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(target)
        if listener.family == socket.AF_UNIX and isinstance(target, str) and not target.startswith("\0"):
            os.chmod(target, 0o600)
        listener.listen(BACKLOG)
    except (OSError, InputError) as error:
        listener.close()
        raise InputError(f"{address}: cannot listen there ({error})") from None
    if listener.family == socket.AF_UNIX:
        return listener, address
    host, port = listener.getsockname()[:2]
    if host in ("0.0.0.0", "::"):  # every address of this machine; others need one of them
        host = _own_address(listener.family, towards)
    return listener, f"tcp:{f'[{host}]' if ':' in host else host}:{port}"


def channel_on(connection: socket.socket, timeout: float) -> Channel:
    """The transport that belongs to the kind of socket."""
    if connection.family == socket.AF_UNIX:
        return MemfdChannel(connection, timeout)
    return StreamChannel(connection, timeout)


def _remove_socket(path: str) -> None:
    """Remove a socket's file, if there is one; ``InputError`` where another kind of file lies there."""
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise InputError("a file is there, expected a socket or nothing")
        os.unlink(path)


def _own_address(family: socket.AddressFamily, towards: str | None) -> str:
    """Of the interface over which ``towards``, else the world, is reached; nothing is sent."""
    nowhere = "192.0.2.1" if family == socket.AF_INET else "2001:db8::1"  # for documentation (RFC 5737, RFC 3849)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        for host in (towards, nowhere):
            with contextlib.suppress(OSError):
                if host is not None:
                    probe.connect((host, 9))
                    return str(probe.getsockname()[0])
    return "127.0.0.1" if family == socket.AF_INET else "::1"


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
