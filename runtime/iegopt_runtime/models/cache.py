"""Folders that are made once and then only read, such as converted weights.

A folder appears under its name by one rename, complete or not at all: whoever is killed while making it leaves a
draft beside it, which the next one to make it removes. Processes that want the same folder wait for one another.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

__all__ = ["cache_dir", "made"]


def cache_dir() -> Path:
    """``IEGOPT_CACHE``, else ``iegopt`` in the user's cache folder (``XDG_CACHE_HOME``, ``~/.cache``)."""
    own = os.environ.get("IEGOPT_CACHE")
    if own:
        return Path(own)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "iegopt"


def made(name: str, make: Callable[[Path], None], cache: Path | None = None) -> Path:
    """The folder ``name`` of the cache; ``make`` fills it where it is not there yet.

    Parameters
    ----------
    make
        Gets an empty folder to fill. What it raises is passed on, and its folder removed.
    """
    root = cache if cache is not None else cache_dir()
    folder = root / name
    if folder.is_dir():
        return folder
    root.mkdir(parents=True, exist_ok=True)
    with (root / f".{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.is_dir():
            return folder
        for stale in root.glob(f".{name}.draft-*"):
            shutil.rmtree(stale, ignore_errors=True)
        draft = Path(tempfile.mkdtemp(prefix=f".{name}.draft-", dir=root))
        try:
            make(draft)
            draft.chmod(0o755)
            draft.rename(folder)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise
    return folder
