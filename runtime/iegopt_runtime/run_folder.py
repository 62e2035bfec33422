"""The folder of a run: its socket, secret, journal, logs and KV files, gone when the run is.

Whoever runs holds a lock in it, which ends with the process however that ends: folders without a holder are what killed
runs left behind, and the next run sweeps them together with processes of theirs.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from pathlib import Path
from typing import Self

from iegopt_runtime.processes import end_run

__all__ = ["RunFolder"]

_PREFIX = "iegopt-"


class RunFolder:
    """A new folder, its owner's alone; as a context manager it is removed at the end, with every process of the run.

    Attributes
    ----------
    run
        Id of the run, which its processes bear in their environment.
    """

    def __init__(self, base: Path | None = None) -> None:
        base = base if base is not None else _base()
        _sweep(base)
        self.path, self._lock = _made(base)
        self.run = self.path.name
        self.secret = secrets.token_bytes(32)
        self.secret_file.touch(mode=0o600)
        self.secret_file.write_text(self.secret.hex())
        self.logs.mkdir()

    @property
    def socket(self) -> Path:
        return self.path / "controller.sock"

    @property
    def secret_file(self) -> Path:
        return self.path / "secret"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    def close(self) -> None:
        """End what is left of the run and remove the folder."""
        end_run(self.run)
        os.close(self._lock)
        shutil.rmtree(self.path, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _base() -> Path:
    """Where a user's sockets belong (XDG base directory specification), else the system's temporary folder."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    return Path(own) if own and os.access(own, os.W_OK) else Path(tempfile.gettempdir())


def _made(base: Path) -> tuple[Path, int]:
    """A folder and the lock in it. Whoever sweeps meanwhile may have found it before it was locked: then another."""
    while True:
        path = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=base))
        with contextlib.suppress(FileNotFoundError):
            lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (path / "lock").exists():
                return path, lock
            os.close(lock)


def _sweep(base: Path) -> None:
    for lock in base.glob(f"{_PREFIX}*/lock"):
        with contextlib.suppress(OSError):  # another user's, or gone meanwhile
            held = os.open(lock, os.O_RDWR | os.O_CLOEXEC)
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                end_run(lock.parent.name)
                shutil.rmtree(lock.parent, ignore_errors=True)
            except BlockingIOError:
                continue
            finally:
                os.close(held)
