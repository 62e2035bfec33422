"""The shared secret as a file: hexadecimal digits, for its owner's eyes alone."""

from __future__ import annotations

import os
import secrets
from pathlib import Path

from iegopt.errors import InputError

__all__ = ["make_secret", "read_secret"]

_LEAST = 16


def read_secret(file: Path) -> bytes:
    """
    Raises
    ------
    InputError
        It cannot be read, or is no secret of at least 16 bytes.
    """
    try:
        secret = bytes.fromhex(file.read_text(encoding="ascii").strip())
    except OSError as error:
        raise InputError(f"{file}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{file}: expected a secret in hexadecimal digits") from error
    if len(secret) < _LEAST:
        raise InputError(f"{file}: a secret of {len(secret)} bytes: expected at least {_LEAST}")
    return secret


def make_secret(file: Path) -> None:
    """Write a new one.

    Raises
    ------
    InputError
        The file is there already, or cannot be written.
    """
    try:
        made = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise InputError(f"{file}: cannot be made: {error.strerror}") from error
    with os.fdopen(made, "w", encoding="ascii") as out:
        out.write(secrets.token_hex(32) + "\n")
