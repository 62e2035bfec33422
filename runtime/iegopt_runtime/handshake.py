"""Who may speak: both sides prove that they know the secret, and neither sends it.

::

    accepting side  ── challenge {protocol, nonce a} ─────────────────────▶  calling side
                    ◀─ hello {protocol, nonce b, name, purpose, proof} ───
                    ── welcome {proof} | refused {reason} ───────────────▶

A proof is an HMAC-SHA256 (RFC 2104) under the secret over both nonces, the direction, and what the caller says of
itself, so that it cannot be sent again on another connection, reflected, or used for another name or purpose. Nonces
and proofs are hexadecimal digits, so that frames (``net.connection``) and headers of the data plane (``kv.auth``) can
carry the same messages. Pure functions.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Any

from iegopt.units import shown
from iegopt_runtime.errors import Refused

__all__ = ["LONGEST", "PROTOCOL", "challenge", "check_hello", "check_welcome", "hello", "refusal", "welcome"]

PROTOCOL = 2
"""Version of all messages, of either plane; both sides must speak the same."""

LONGEST = 4096
"""Bytes of a message, at most, from one who has not proven anything yet."""

_NONCE = 16

Message = dict[str, Any]


def challenge() -> Message:
    """What the accepting side says first."""
    return {"type": "challenge", "protocol": PROTOCOL, "nonce": secrets.token_hex(_NONCE)}


def hello(opening: Message, secret: bytes, name: str, purpose: str) -> Message:
    """The caller's answer to a challenge.

    Raises
    ------
    Refused
        Where the other side speaks another protocol, or no challenge came.
    """
    if opening.get("type") != "challenge" or not isinstance(opening.get("nonce"), str):
        raise Refused(f"{opening.get('type')!r} came in place of a challenge: is this address iegopt's?")
    _same_protocol(opening)
    nonce = secrets.token_hex(_NONCE)
    proof = _proof(secret, "caller", opening["nonce"], nonce, name, purpose)
    return {"type": "hello", "protocol": PROTOCOL, "nonce": nonce, "name": name, "purpose": purpose, "proof": proof}


def check_hello(opening: Message, answer: Message, secret: bytes) -> tuple[str, str]:
    """Name and purpose of a caller who has proven the secret.

    Raises
    ------
    Refused
        With the reason that the caller is told.
    """
    if answer.get("type") != "hello":
        raise Refused(f"{answer.get('type')!r} came in place of a hello")
    _same_protocol(answer)
    name, purpose, nonce, proof = (answer.get(key) for key in ("name", "purpose", "nonce", "proof"))
    if not (isinstance(name, str) and isinstance(purpose, str) and isinstance(nonce, str) and isinstance(proof, str)):
        raise Refused("the hello lacks a name, a purpose, a nonce or a proof")
    if not _equal(proof, _proof(secret, "caller", opening["nonce"], nonce, name, purpose)):
        raise Refused(f"{shown(name)} does not know the secret")
    return name, purpose


def welcome(opening: Message, answer: Message, secret: bytes) -> Message:
    """What the accepting side says to a caller whom it takes: its own proof."""
    proof = _proof(secret, "accepting", opening["nonce"], answer["nonce"], answer["name"], answer["purpose"])
    return {"type": "welcome", "proof": proof}


def refusal(reason: str) -> Message:
    return {"type": "refused", "reason": reason}


def check_welcome(opening: Message, answer: Message, reply: Message, secret: bytes) -> None:
    """The caller's last check: that the other side knows the secret, too.

    Raises
    ------
    Refused
        With what the other side said, or what is wrong with it.
    """
    if reply.get("type") == "refused":
        raise Refused(str(reply.get("reason")))
    proof = reply.get("proof")
    expected = _proof(secret, "accepting", opening["nonce"], answer["nonce"], answer["name"], answer["purpose"])
    if reply.get("type") != "welcome" or not isinstance(proof, str) or not _equal(proof, expected):
        raise Refused("the other side does not know the secret")


def _same_protocol(frame: Message) -> None:
    if frame.get("protocol") != PROTOCOL:
        raise Refused(f"the other side speaks protocol {frame.get('protocol')!r}: expected {PROTOCOL}")


def _proof(secret: bytes, side: str, first: str, second: str, name: str, purpose: str) -> str:
    parts = [part.encode(errors="surrogatepass") for part in (side, first, second, name, purpose)]
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.new(secret, text, hashlib.sha256).hexdigest()


def _equal(proof: str, expected: str) -> bool:
    """In a time that does not depend on where they differ."""
    return hmac.compare_digest(proof.encode(errors="surrogatepass"), expected.encode())
