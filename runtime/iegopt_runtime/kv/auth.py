"""Both ends of a data connection prove that they know the shared secret before anything else is read.

    client → server   version, nonce of the client
    server → client   version, nonce of the server, HMAC(secret, "server", both nonces)
    client → server   HMAC(secret, "client", both nonces)
    server → client   welcome

HMAC-SHA256 (RFC 2104); the roles differ in the text, so that no proof can be sent back to the one who gave it.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from iegopt_runtime.errors import TransferError
from iegopt_runtime.kv.channel import Channel

__all__ = ["VERSION", "admit", "enter"]

VERSION = 1
NONCE_BYTES = 16


def enter(channel: Channel, secret: bytes) -> None:
    """The client's side.

    Raises
    ------
    TransferError
        The server speaks another version, does not know the secret, or does not let us in.
    """
    mine = secrets.token_hex(NONCE_BYTES)
    channel.send({"version": VERSION, "nonce": mine})
    answer, _ = channel.receive()
    _check_version(answer)
    theirs = str(answer.get("nonce"))
    if not hmac.compare_digest(_proof(secret, "server", mine, theirs), str(answer.get("proof"))):
        raise TransferError("the server does not know the shared secret")
    channel.send({"proof": _proof(secret, "client", mine, theirs)})
    answer, _ = channel.receive()
    if not answer.get("welcome"):
        raise TransferError(f"refused by the server: {answer.get('error')}")


def admit(channel: Channel, secret: bytes) -> None:
    """The server's side, which says to the client what is wrong.

    Raises
    ------
    TransferError
        The client speaks another version or does not know the secret.
    """
    hello, _ = channel.receive()
    mine = secrets.token_hex(NONCE_BYTES)
    theirs = str(hello.get("nonce"))
    channel.send({"version": VERSION, "nonce": mine, "proof": _proof(secret, "server", theirs, mine)})
    _check_version(hello)
    answer, _ = channel.receive()
    if not hmac.compare_digest(_proof(secret, "client", theirs, mine), str(answer.get("proof"))):
        raise TransferError("the client does not know the shared secret")
    channel.send({"welcome": True})


def _check_version(message: dict[str, Any]) -> None:
    if message.get("version") != VERSION:
        raise TransferError(f"the peer speaks version {message.get('version')!r}: expected {VERSION}")


def _proof(secret: bytes, role: str, client_nonce: str, server_nonce: str) -> str:
    text = f"iegopt-kv/{VERSION} {role} {client_nonce} {server_nonce}".encode()
    return hmac.new(secret, text, hashlib.sha256).hexdigest()
