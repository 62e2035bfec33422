"""The folder of a run: its socket, secret, journal and logs, and another one for its KV files, gone when the run is.

What a killed run has left is swept by the next one (``own_folder``), together with processes of it. Sockets belong
where the user's are, which is in memory on many systems; KV files belong on a disk.
"""

from __future__ import annotations

import os
import secrets
import tempfile
from pathlib import Path
from typing import Self

from iegopt_runtime.models.cache import cache_dir
from iegopt_runtime.own_folder import OwnFolder
from iegopt_runtime.processes import end_run

__all__ = ["RunFolder", "kv_files"]

_PREFIX = "iegopt-"


class RunFolder:
    """A new folder, its owner's alone; as a context manager it is removed at the end, with every process of the run.

    Attributes
    ----------
    run
        Id of the run, which its processes bear in their environment.
    files
        Where its KV files lie.

    Raises
    ------
    InputError
        Where there can be none.
    """

    def __init__(self, base: Path | None = None) -> None:
        self._own = OwnFolder(base if base is not None else _base(), _PREFIX, lambda left: end_run(left.name))
        self.path = self._own.path
        self.run = self.path.name
        try:
            self._files = kv_files()
        except BaseException:
            self._own.close()
            raise
        self.files = self._files.path
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
        self._files.close()
        self._own.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def kv_files() -> OwnFolder:
    """A folder for KV files in the cache, which is on a disk."""
    return OwnFolder(cache_dir() / "kv", _PREFIX)


def _base() -> Path:
    """Where a user's sockets belong (XDG base directory specification), else the system's temporary folder."""
    own = os.environ.get("XDG_RUNTIME_DIR")
    return Path(own) if own and os.access(own, os.W_OK) else Path(tempfile.gettempdir())
