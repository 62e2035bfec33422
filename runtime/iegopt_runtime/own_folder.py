"""A folder with one owner, gone when that has ended.

The owner holds a lock in it, which ends with its process however that ends: folders without a holder are what killed
owners left behind, and the next one to make a folder beside them sweeps them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Self

from iegopt.errors import InputError

__all__ = ["OwnFolder"]


class OwnFolder:
    """A new folder, its owner's alone; as a context manager it is removed at the end.

    Parameters
    ----------
    base
        Where it is made; made itself where it is missing.
    prefix
        Of its name, and of those that are swept.
    sweeping
        Is told of each folder that is about to be swept.

    Raises
    ------
    InputError
        Where there can be none.
    """

    def __init__(self, base: Path, prefix: str, sweeping: Callable[[Path], object] = lambda folder: None) -> None:
        try:
            base.mkdir(parents=True, exist_ok=True)
            _sweep(base, prefix, sweeping)
            self.path, self._lock = _made(base, prefix)
        except OSError as error:
            raise InputError(f"{base}: no folder can be made there: {error.strerror}") from error

    def close(self) -> None:
        os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _made(base: Path, prefix: str) -> tuple[Path, int]:
    """A folder and the lock in it. Whoever sweeps meanwhile may have found it before it was locked: then another."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (path / "lock").exists():
                return path, lock
            os.close(lock)


def _sweep(base: Path, prefix: str, sweeping: Callable[[Path], object]) -> None:
    for lock in base.glob(f"{prefix}*/lock"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            held = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                sweeping(lock.parent)
                shutil.rmtree(lock.parent, ignore_errors=True)
            except BlockingIOError:
                continue
            finally:
                os.close(held)
