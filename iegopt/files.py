"""Files that are written as a whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

__all__ = ["sync", "write_whole"]


def write_whole(path: str | Path, data: str | bytes) -> None:
    """Write a file (text as UTF-8); what was there stays until all of the new is on disk.

    What is no regular file (a pipe, ``/dev/null``) is written to and stays; so is a file in a folder that takes no
    new ones. Links are followed.

    Raises
    ------
    OSError
        Where it cannot be written; what was begun beside it is removed.
    """
    raw = data.encode("utf-8") if isinstance(data, str) else data
    target = Path(os.path.realpath(path))
    if target.exists() and not (target.is_file() and os.access(target.parent, os.W_OK)):
        target.write_bytes(raw)
        return
    begun = target.with_name(f"{target.name}.new")
    try:
        with begun.open("wb") as stream:
            stream.write(raw)
            sync(stream)
        if target.exists():
            begun.chmod(target.stat().st_mode & 0o7777)
        begun.replace(target)
    except BaseException:
        begun.unlink(missing_ok=True)
        raise


def sync(stream: Any) -> None:
    """Have what was written to an open file on disk when this returns."""
    stream.flush()
    os.fsync(stream.fileno())
