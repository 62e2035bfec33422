"""Tools as users write them, good and bad, for the tests of the tool role."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path
from typing import Any


def add(a: float, b: float) -> float:
    return a + b


def echo(text: str) -> str:
    sys.stdout.write("noise on standard output\n")
    return text


async def later(text: str) -> str:
    return text


def hang() -> None:
    while True:
        time.sleep(60)


def fail(message: str) -> None:
    raise ValueError(message)


def leave() -> None:
    sys.exit(3)


def crash() -> None:
    os._exit(9)


def flood(size: int) -> str:
    return "ä" * size


def binary() -> bytes:
    return bytes(range(256))


def strange() -> Any:
    return object()


def counted(file: str) -> int:
    """How often it was called with this file."""
    path = Path(file)
    count = int(path.read_text()) + 1 if path.exists() else 1
    path.write_text(str(count))
    return count


def second_time(file: str) -> str:
    if counted(file) < 2:
        raise ConnectionError("the service is not up yet")
    return "now it is"


def nap(seconds: float) -> str:
    time.sleep(seconds)
    return "rested"


def keyed(file: str, *, idempotency_key: str) -> str:
    """Writes down each key that it is told, and fails the first time."""
    path = Path(file)
    before = path.read_text().split() if path.exists() else []
    path.write_text("\n".join([*before, idempotency_key]))
    if not before:
        raise ValueError("not yet")
    return idempotency_key


def positional(idempotency_key: str = "none", /) -> str:
    return idempotency_key
