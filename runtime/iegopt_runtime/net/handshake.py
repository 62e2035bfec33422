"""Who may speak: both sides prove that they know the secret, and neither sends it.

::

    accepting side  ── challenge {protocol, nonce a} ─────────────────────▶  calling side
                    ◀─ hello {protocol, nonce b, name, purpose, proof} ───
                    ── welcome {proof} | refused {reason} ───────────────▶

A proof is an HMAC-SHA256 (RFC 2104) under the secret over both nonces, the direction, and what the caller says of
itself, so that it cannot be sent again on another connection, reflected, or used for another name. Pure functions; the
connections are in ``iegopt_runtime.net.connection``.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets

from iegopt_runtime.errors import Refused
from iegopt_runtime.net.frames import Frame

__all__ = ["PROTOCOL", "challenge", "check_hello", "check_welcome", "hello", "refusal", "welcome"]

PROTOCOL = 1
"""Version of the frames; both sides must speak the same."""

_NONCE = 16


def challenge() -> Frame:
    """What the accepting side says first."""
    return {"type": "challenge", "protocol": PROTOCOL, "nonce": secrets.token_bytes(_NONCE)}


def hello(opening: Frame, secret: bytes, name: str, purpose: str) -> Frame:
    """The caller's answer to a challenge.

    Raises
    ------
    Refused
        Where the other side speaks another protocol, or no challenge came.
    """
    if opening.get("type") != "challenge" or not isinstance(opening.get("nonce"), bytes):
        raise Refused(f"{opening.get('type')!r} came in place of a challenge: is this address iegopt's?")
    _same_protocol(opening)
    nonce = secrets.token_bytes(_NONCE)
    proof = _proof(secret, b"caller", opening["nonce"], nonce, name, purpose)
    return {"type": "hello", "protocol": PROTOCOL, "nonce": nonce, "name": name, "purpose": purpose, "proof": proof}


def check_hello(opening: Frame, answer: Frame, secret: bytes) -> tuple[str, str]:
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
    if not (
        isinstance(name, str) and isinstance(purpose, str) and isinstance(nonce, bytes) and isinstance(proof, bytes)
    ):
        raise Refused("the hello lacks a name, a purpose, a nonce or a proof")
    if not hmac.compare_digest(proof, _proof(secret, b"caller", opening["nonce"], nonce, name, purpose)):
        raise Refused(f"{name} does not know the secret")
    return name, purpose


def welcome(opening: Frame, answer: Frame, secret: bytes) -> Frame:
    """What the accepting side says to a caller whom it takes: its own proof."""
    proof = _proof(secret, b"accepting", opening["nonce"], answer["nonce"], answer["name"], answer["purpose"])
    return {"type": "welcome", "proof": proof}


def refusal(reason: str) -> Frame:
    return {"type": "refused", "reason": reason}


def check_welcome(opening: Frame, answer: Frame, reply: Frame, secret: bytes) -> None:
    """The caller's last check: that the other side knows the secret, too.

    Raises
    ------
    Refused
        With what the other side said, or what is wrong with it.
    """
    if reply.get("type") == "refused":
        raise Refused(str(reply.get("reason")))
    proof = reply.get("proof")
    expected = _proof(secret, b"accepting", opening["nonce"], answer["nonce"], answer["name"], answer["purpose"])
    if reply.get("type") != "welcome" or not isinstance(proof, bytes) or not hmac.compare_digest(proof, expected):
        raise Refused("the other side does not know the secret")


def _same_protocol(frame: Frame) -> None:
    if frame.get("protocol") != PROTOCOL:
        raise Refused(f"the other side speaks protocol {frame.get('protocol')!r}: expected {PROTOCOL}")


def _proof(secret: bytes, side: bytes, first: bytes, second: bytes, name: str, purpose: str) -> bytes:
    parts = (side, first, second, name.encode(), purpose.encode())
    text = b"".join(len(part).to_bytes(4, "big") + part for part in parts)
    return hmac.new(secret, text, hashlib.sha256).digest()
