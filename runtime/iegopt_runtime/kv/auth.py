"""Both ends of a data connection prove that they know the shared secret before anything else is read of them.

The messages are those of ``iegopt_runtime.handshake``, as headers without bodies, for a purpose of their own: what
proves a worker or client to a controller opens no door here, nor the other way round.
"""

from __future__ import annotations

import os

from iegopt_runtime.errors import Refused, TransferError
from iegopt_runtime.handshake import LONGEST, challenge, check_hello, check_welcome, hello, refusal, welcome
from iegopt_runtime.kv.channel import Channel

__all__ = ["admit", "enter"]

PURPOSE = "kv"


def enter(channel: Channel, secret: bytes) -> None:
    """The calling side.

    Raises
    ------
    TransferError
        The server speaks another protocol, does not know the secret, or does not let us in.
    """
    try:
        opening = channel.receive_plain(LONGEST)
        answer = hello(opening, secret, f"process {os.getpid()}", PURPOSE)
        channel.send(answer)
        check_welcome(opening, answer, channel.receive_plain(LONGEST), secret)
    except Refused as error:
        raise TransferError(f"refused: {error}") from None


def admit(channel: Channel, secret: bytes) -> None:
    """The accepting side, which says to the caller what is wrong.

    Raises
    ------
    TransferError
        The caller speaks another protocol, does not know the secret, or has not come for KV.
    """
    opening = challenge()
    channel.send(opening)
    answer = channel.receive_plain(LONGEST)
    try:
        _, purpose = check_hello(opening, answer, secret)
        if purpose != PURPOSE:
            raise Refused(f"a call for {purpose!r}: expected {PURPOSE!r}")
    except Refused as error:
        channel.send(refusal(str(error)))
        raise TransferError(str(error)) from None
    channel.send(welcome(opening, answer, secret))
