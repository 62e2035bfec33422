"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
import secrets
from pathlib import Path
from typing import Any

__all__ = ["sync", "write_whole"]


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Write a file (text as UTF-8); what was there stays until all of the new is on disk.

    What is no regular file (a pipe, ``/dev/null``, ``/dev/stdout``) is written to and stays; so is a file in a folder
    that takes no new ones. Links are followed. Of several who write one file at a time, the last one's is there.

    Raises
    ------
    OSError
        Where it cannot be written, as a file that is read-only; what was begun beside it is removed.
    """
    raw = data.encode("utf-8") if isinstance(data, str) else data
    target = Path(os.path.realpath(path))
    # The path itself is looked at: what /dev/stdout leads to has no name that could be opened where it is a pipe.
    if os.path.exists(path) and not (os.path.isfile(path) and _replaceable(target)):
        Path(path).write_bytes(raw)
        return
    begun = target.with_name(f".iegopt-{secrets.token_hex(8)}.new")
    try:
        with begun.open("xb") as stream:
            stream.write(raw)
            sync(stream)
        if target.exists():
            begun.chmod(target.stat().st_mode & 0o7777)
        begun.replace(target)
    except BaseException:
        begun.unlink(missing_ok=True)
        raise


def _replaceable(target: Path) -> bool:
    """Whether another file may take the place of one: a user who made it read-only wants it to stay."""
    return os.access(target, os.W_OK) and os.access(target.parent, os.W_OK)


def sync(stream: Any) -> None:
    """Have what was written to an open file on disk when this returns."""
    stream.flush()
    os.fsync(stream.fileno())
