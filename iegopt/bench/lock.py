"""One run a results file: an advisory lock that ends with its process, whatever ends that.

The lock is the kernel's (``flock``) on a file beside the results; the file may outlive a kill, the lock does not. Where
there is no ``flock`` (Windows), nothing is locked.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from iegopt.errors import InputError

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

__all__ = ["RunLock"]


class RunLock:
    """Held from its making until ``release``, or until the process ends.

    Raises
    ------
    InputError
        Another process holds it.
    """

    def __init__(self, results: Path) -> None:
        self.path = results.with_name(results.name + ".lock")
        self._descriptor = -1
        while fcntl is not None and self._descriptor < 0:
            opened = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                holder = os.read(opened, 20).decode("ascii", "replace").strip()
                os.close(opened)
                by = f", process {holder}" if holder else ""
                raise InputError(f"{results.name}: another run is writing it{by}; wait for it, or end it") from None
            if self._is_at_path(opened):
                self._descriptor = opened
            else:  # its holder removed it between our two calls
                os.close(opened)
        if self._descriptor >= 0:
            os.ftruncate(self._descriptor, 0)
            os.write(self._descriptor, b"%d\n" % os.getpid())

    def _is_at_path(self, descriptor: int) -> bool:
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        return False

    def release(self) -> None:
        """Remove the file and end the lock, in this order, so that nobody locks a file that is gone."""
        if self._descriptor >= 0:
            self.path.unlink(missing_ok=True)
            os.close(self._descriptor)
            self._descriptor = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()
