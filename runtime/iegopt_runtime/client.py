"""A client of a controller in another process: submits, listens, and comes back when the controller does."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator
from typing import Any

from iegopt.control.documents import read
from iegopt.control.messages import Answer, Stream
from iegopt.errors import InputError
from iegopt_runtime.errors import WireError
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import Connection, connect

__all__ = ["Client"]

_PAUSE = 0.05
"""Seconds between two attempts to reach a controller that is away."""


class Client:
    """Requests to one controller. Each is told again, and followed anew, on every new connection; tokens that were
    heard before are left out.

    Parameters
    ----------
    patience
        Seconds for which a controller may be away.
    """

    def __init__(self, controller: Address, secret: bytes, patience: float = 60.0) -> None:
        self._controller, self._secret, self._patience = controller, secret, patience
        self._name = f"client-{secrets.token_hex(4)}"

    async def run(
        self, request_id: str, request: dict[str, Any], inputs: dict[str, Any], priority: int | None = None
    ) -> AsyncIterator[Stream | Answer]:
        """Submit a request; yields its tokens as they come, then its answer, which is acknowledged.

        Raises
        ------
        Refused
            Where the controller does not take us.
        InputError
            Where it finds a message wrong, or is away for longer than ``patience``.
        """
        submitted = {
            "type": "Submitted", "request_id": request_id, "request": request, "inputs": inputs, "priority": priority,
        }  # fmt: skip
        heard: dict[str, int] = {}
        while True:
            connection = await self._connected()
            try:
                connection.send(submitted)
                connection.send({"type": "Follow", "request_id": request_id})
                async for message in _messages(connection):
                    if message.request_id != request_id:
                        continue
                    if isinstance(message, Answer):
                        yield message
                        connection.send({"type": "Acknowledged", "request_id": request_id})
                        await connection.flushed()
                        return
                    if message.offset == heard.get(message.stage, 0):
                        heard[message.stage] = message.offset + len(message.tokens)
                        yield message
            finally:
                await connection.closed()
            await asyncio.sleep(_PAUSE)

    async def cancel(self, request_id: str, reason: str) -> None:
        """Ask for the end of a request; it is answered as cancelled."""
        connection = await self._connected()
        connection.send({"type": "Cancelled", "request_id": request_id, "reason": reason})
        await connection.flushed()
        await connection.closed()

    async def state(self) -> dict[str, Any]:
        """Workers and requests that the controller knows; of very many requests the newest, and how many others there
        are (``left_out``)."""
        connection = await self._connected()
        connection.send({"type": "State"})
        try:
            frame = await connection.receive()
        finally:
            await connection.closed()
        if frame is None or frame.get("type") != "State":
            raise InputError(f"{self._controller} does not tell its state")
        return frame

    async def _connected(self) -> Connection:
        try:
            async with asyncio.timeout(self._patience):
                while True:
                    with contextlib.suppress(OSError):
                        return await connect(self._controller, self._secret, self._name, "client")
                    await asyncio.sleep(_PAUSE)
        except TimeoutError as error:
            raise InputError(f"no controller at {self._controller} for {self._patience:g} s") from error


async def _messages(connection: Connection) -> AsyncIterator[Stream | Answer]:
    """What a controller says, until the connection ends."""
    while True:
        try:
            frame = await connection.receive()
        except WireError:
            return
        if frame is None:
            return
        if frame.get("type") == "wrong":
            raise InputError(str(frame.get("reason")))
        message = read(frame, "the controller")
        if isinstance(message, Stream | Answer):
            yield message
