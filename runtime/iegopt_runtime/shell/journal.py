"""The journal: every event, on disk before the commands that follow from it leave the process.

The controller is a pure function of its events, so that reading them again gives its state again. SQLite in WAL mode: a
killed process loses nothing that was committed (https://sqlite.org/wal.html, "synchronous=NORMAL"); with ``durable``
neither does a machine that loses power, at the price of an fsync for every batch of events.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import msgpack

from iegopt.errors import InputError
from iegopt_runtime.errors import RuntimeFault, WireError
from iegopt_runtime.net.frames import Frame, decode

__all__ = ["Journal"]

_VERSION = 1


class Journal:
    """Events in the order in which they were handled.

    Parameters
    ----------
    path
        The database; made where it is missing. One process at a time holds it.
    durable
        Whether a batch survives the loss of power, too.

    Raises
    ------
    InputError
        Where another process holds it, it is no journal, or it is one of another version.
    """

    def __init__(self, path: Path, durable: bool = False) -> None:
        self._path = path
        self._lock = self._locked(path)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # prompts are nobody else's
            self._db = sqlite3.connect(path, isolation_level=None)
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("CREATE TABLE IF NOT EXISTS event (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
            self._db.execute("CREATE TABLE IF NOT EXISTS policy (body BLOB NOT NULL)")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version == 0:
                self._db.execute(f"PRAGMA user_version={_VERSION}")
        except (sqlite3.Error, OSError) as error:
            os.close(self._lock)
            raise InputError(f"{path}: expected a journal, but {error}") from error
        if version not in (0, _VERSION):
            self.close()
            raise InputError(f"{path}: a journal of version {version}: expected {_VERSION}")

    @staticmethod
    def _locked(path: Path) -> int:
        """The lock goes with the process, however it ends."""
        try:
            lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise InputError(f"{path}: cannot write there: {error.strerror}") from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise InputError(f"{path}: another controller holds this journal") from error
        return lock

    def append(self, events: Iterable[Frame]) -> None:
        """Write a batch of events, all or none of them.

        Raises
        ------
        RuntimeFault
            They cannot be written: the disk is full, or gone.
        """
        rows = [(msgpack.packb(event, use_bin_type=True),) for event in events]
        try:
            self._db.execute("BEGIN")
            self._db.executemany("INSERT INTO event (body) VALUES (?)", rows)
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise RuntimeFault(f"journal {self._path}: {error}") from error

    def take_back(self, count: int) -> None:
        """Strike the last events, which nothing has followed from."""
        self._db.execute("DELETE FROM event WHERE seq IN (SELECT seq FROM event ORDER BY seq DESC LIMIT ?)", (count,))

    def replay(self) -> Iterator[Frame]:
        """All events, oldest first.

        Raises
        ------
        InputError
            Where one of them cannot be read.
        """
        rows = self._db.execute("SELECT seq, body FROM event ORDER BY seq")
        while True:
            try:
                row = rows.fetchone()
                if row is None:
                    return
                event = decode(row[1])
            except (sqlite3.Error, WireError) as error:
                raise InputError(f"{self._path}: the journal is damaged: {error}") from error
            yield event

    def restart(self, events: Iterable[Frame] = ()) -> None:
        """Begin anew with these events: what is answered and acknowledged need not be read again."""
        rows = [(msgpack.packb(event, use_bin_type=True),) for event in events]
        self._db.execute("BEGIN")
        self._db.execute("DELETE FROM event")
        self._db.executemany("INSERT INTO event (body) VALUES (?)", rows)
        self._db.execute("COMMIT")

    def policy(self, wanted: Frame) -> Frame:
        """The policy under which the events were and will be handled: the one in force as long as there are events of
        its time, else the one that is wanted, which is then written down."""
        held = self._db.execute("SELECT body FROM policy").fetchone()
        if held is not None and len(self):
            return decode(held[0])
        self._db.execute("BEGIN")
        self._db.execute("DELETE FROM policy")
        self._db.execute("INSERT INTO policy (body) VALUES (?)", (msgpack.packb(wanted, use_bin_type=True),))
        self._db.execute("COMMIT")
        return wanted

    def __len__(self) -> int:
        (count,) = self._db.execute("SELECT count(*) FROM event").fetchone()
        return int(count)

    def close(self) -> None:
        self._db.close()
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
