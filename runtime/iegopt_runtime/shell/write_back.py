"""Writing a journal's log back into its database, beside the loop.

SQLite does that in the writer's commit, every thousand pages, and syncs both files: that takes milliseconds in which no
command leaves. A "PASSIVE" checkpoint by another connection blocks no writer (https://sqlite.org/c3ref/wal_checkpoint_v2.html).
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

__all__ = ["WriteBack"]

_EVERY = 500
"""Commits after which the log is written back: each writes a page or two of 4 KiB."""

_EVERY_BYTES = 2**21


class WriteBack:
    """A thread that begins with the first log that is long enough."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._commits = self._bytes = 0
        self._due, self._closing = threading.Event(), False
        self._thread: threading.Thread | None = None

    def written(self, size: int) -> None:
        """A commit has added this many bytes."""
        self._commits += 1
        self._bytes += size
        if self._commits >= _EVERY or self._bytes >= _EVERY_BYTES:
            self._commits = self._bytes = 0
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="journal", daemon=True)
                self._thread.start()
            self._due.set()

    def close(self) -> None:
        """End the thread, after what it is at."""
        self._closing = True
        self._due.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        with contextlib.suppress(sqlite3.Error):  # the log grows until the writer meets the same error, and tells
            db = sqlite3.connect(self._database, isolation_level=None)
            try:
                while self._due.wait() and not self._closing:
                    self._due.clear()
                    db.execute("PRAGMA wal_checkpoint(PASSIVE)")
            finally:
                db.close()
