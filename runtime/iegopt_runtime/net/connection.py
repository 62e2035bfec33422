"""Authenticated connections that carry frames, over asyncio streams."""

from __future__ import annotations

import asyncio
import contextlib
import os
import stat
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Self

from iegopt.errors import InputError
from iegopt_runtime.errors import Refused, WireError
from iegopt_runtime.handshake import LONGEST, challenge, check_hello, check_welcome, hello, refusal, welcome
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.frames import Frame, Frames, decode, encode, read_frame

__all__ = ["Connection", "Listener", "connect"]

_HANDSHAKE = 10.0
"""Seconds in which a caller must have proven who it is."""

_CHUNK = 2**18
"""Bytes read at once."""

_BACKLOG = 8 * 2**20
"""Bytes that wait for a slow reader before ``send`` tells."""


class Connection:
    """One authenticated connection: ``name`` and ``purpose`` are the other side's, as it said at the handshake."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, name: str = "", purpose: str = ""
    ) -> None:
        self.name, self.purpose = name, purpose
        self._reader, self._writer = reader, writer
        self._frames, self._come = Frames(), deque[bytes]()
        self._held: list[bytes] = []
        self._flushing = False

    def send(self, frame: Frame) -> None:
        """Have a frame sent with all others of this moment; never blocks. A connection that is closing swallows it: the
        reader's end tells.

        Raises
        ------
        WireError
            Where the frame cannot be one.
        """
        self.hold(frame)
        if not self._flushing:
            self._flushing = True
            asyncio.get_running_loop().call_soon(self.flush)

    def hold(self, frame: Frame) -> None:
        """Keep a frame until ``flush``; raises as ``send``."""
        self._held.append(encode(frame))

    def flush(self) -> None:
        """Hand what is held to the system, at once: one call for all frames."""
        held, self._held, self._flushing = self._held, [], False
        if held and not self._writer.is_closing():
            self._writer.write(held[0] if len(held) == 1 else b"".join(held))

    @property
    def backlog(self) -> int:
        """Bytes sent that the other side has not taken."""
        return self._writer.transport.get_write_buffer_size() + sum(map(len, self._held))

    @property
    def is_slow(self) -> bool:
        return self.backlog > _BACKLOG

    async def flushed(self) -> None:
        """Wait until the backlog has gone down; returns at once where the connection has ended."""
        self.flush()
        with contextlib.suppress(ConnectionError):
            await self._writer.drain()

    async def receive(self) -> Frame | None:
        """The next frame, ``None`` at the end.

        Raises
        ------
        WireError
            For bytes that are no frame.
        """
        while not self._come:
            bodies = await self.receive_all()
            if not bodies:
                return None
            self._come.extend(bodies)
        return decode(self._come.popleft())

    async def receive_all(self) -> list[bytes]:
        """The bodies of the next frames, as many as have come; none at the end. Raises as ``receive``."""
        if self._come:
            bodies = list(self._come)
            self._come.clear()
            return bodies
        while True:
            try:
                data = await self._reader.read(_CHUNK)
            except ConnectionError:
                return []
            if not data:
                self._frames.end()
                return []
            bodies = self._frames.cut(data)
            if bodies:
                return bodies

    def close(self) -> None:
        self.flush()
        self._writer.close()

    async def closed(self) -> None:
        """Close, and wait until that is done."""
        self.flush()
        await _closed(self._writer)


class Listener:
    """Accepts callers who know the secret, and hands each connection to ``serve``.

    ``refused`` is told why others were turned away. A unix socket is made for its owner alone (mode 600).
    """

    def __init__(
        self,
        secret: bytes,
        serve: Callable[[Connection], Awaitable[None]],
        refused: Callable[[str], None] = lambda reason: None,
    ) -> None:
        self._secret, self._serve, self._refused = secret, serve, refused
        self._servers: list[asyncio.Server] = []
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}
        self.addresses: list[Address] = []

    async def listen(self, address: Address) -> Address:
        """Listen there too; returns the address with the port that the system gave.

        Raises
        ------
        InputError
            Where the address cannot be listened on.
        """
        try:
            if address.path is not None:
                await self._remove_stale(address)
                mask = os.umask(0o177)
                try:
                    server = await asyncio.start_unix_server(self._accept, address.path)
                finally:
                    os.umask(mask)
            else:
                server = await asyncio.start_server(self._accept, address.host, address.port)
                address = Address(host=address.host, port=server.sockets[0].getsockname()[1])
        except OSError as error:
            raise InputError(f"cannot listen on {address}: {error.strerror or error}") from error
        self._servers.append(server)
        self.addresses.append(address)
        return address

    async def _remove_stale(self, address: Address) -> None:
        """A socket file whose process was killed is in the way; one that answers is somebody else's."""
        assert address.path is not None
        if not os.path.exists(address.path):
            return
        try:
            _, writer = await asyncio.open_unix_connection(address.path)
        except OSError:
            if not stat.S_ISSOCK(os.stat(address.path).st_mode):
                raise InputError(f"cannot listen on {address}: a file is there, expected a socket or nothing") from None
            os.unlink(address.path)
            return
        await _closed(writer)
        raise InputError(f"cannot listen on {address}: another process does")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        connection: Connection | None = None
        try:
            connection = await self._authenticated(reader, writer)
            if connection is not None:
                await self._serve(connection)
        except asyncio.CancelledError:  # the listener closes; asyncio would print the cancellation of its own task
            pass
        finally:
            del self._open[task]
            if connection is not None:
                connection.flush()
            writer.close()

    async def _authenticated(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Connection | None:
        opening = challenge()
        try:
            writer.write(encode(opening))
            answer = await asyncio.wait_for(read_frame(reader, LONGEST), _HANDSHAKE)
            if answer is None:
                return None
            name, purpose = check_hello(opening, answer, self._secret)
        except TimeoutError:
            self._refused(f"a caller said nothing within {_HANDSHAKE:g} s")
            return None
        except (Refused, WireError) as error:
            self._refused(str(error))
            with contextlib.suppress(ConnectionError):
                writer.write(encode(refusal(str(error))))
                await writer.drain()
            return None
        writer.write(encode(welcome(opening, answer, self._secret)))
        return Connection(reader, writer, name, purpose)

    async def close(self) -> None:
        for server in self._servers:
            server.close()
        served = dict(self._open)
        for task in served:
            task.cancel()
        if served:
            await asyncio.wait(served)
        for writer in served.values():
            await _closed(writer)
        for address in self.addresses:
            if address.path is not None:
                with contextlib.suppress(FileNotFoundError):
                    os.unlink(address.path)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


async def _closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def connect(address: Address, secret: bytes, name: str, purpose: str) -> Connection:
    """Call a listener and prove who we are.

    Raises
    ------
    Refused
        Where the other side does not take us, or does not prove itself.
    ConnectionError, FileNotFoundError
        Where nobody listens there, or who did has ended.
    """
    if address.path is not None:
        reader, writer = await asyncio.open_unix_connection(address.path)
    else:
        reader, writer = await asyncio.open_connection(address.host, address.port)
    try:
        async with asyncio.timeout(_HANDSHAKE):
            opening = await read_frame(reader, LONGEST)
            if opening is None:
                raise ConnectionResetError(f"{address} closed the connection before the handshake")
            answer = hello(opening, secret, name, purpose)
            writer.write(encode(answer))
            reply = await read_frame(reader, LONGEST)
            if reply is None:
                raise ConnectionResetError(f"{address} closed the connection during the handshake")
            check_welcome(opening, answer, reply, secret)
    except TimeoutError as error:
        writer.close()
        raise Refused(f"{address} did not finish the handshake within {_HANDSHAKE:g} s") from error
    except BaseException:
        writer.close()
        raise
    return Connection(reader, writer)
