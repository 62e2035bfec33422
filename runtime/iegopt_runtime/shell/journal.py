"""The journal: every event, on disk before the commands that follow from it leave the process.

The controller is a pure function of its events, so that reading them again gives its state again. SQLite in WAL mode: a
killed process loses nothing that was committed (https://sqlite.org/wal.html, "synchronous=NORMAL"); with ``durable``
neither does a machine that loses power, at the price of an fsync for every batch of events. A row is a batch: a
MessagePack list of the events' bodies (in version 1 it was the one event).

The log is written back into the database beside the loop (``write_back``), unless that falls far behind.
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
from iegopt_runtime.shell.write_back import WriteBack

__all__ = ["Journal"]

_VERSION = 2
_READABLE = (1, 2)

_TABLES = ("event", "policy", "snapshot")

_LOCK = ".lock"

_INSERT = "INSERT INTO event (body) VALUES (?)"
_LONGEST_ROW = 2**28
"""Bytes of a row: SQLite takes a billion at most (https://sqlite.org/limits.html), and long requests come at once."""
_LOG_PAGES = 16_000
"""Pages of the log, of 4 KiB, after which the writer writes it back itself, and waits."""


class Journal:
    """Events in the order in which they were handled.

    ``size`` is the number of bytes of its events and of the snapshot before them, ``saved`` of the latter.

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
        self._made, self._discarded = not path.exists(), False
        try:
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # prompts are nobody else's
            self._db = sqlite3.connect(path, isolation_level=None)
            self._check_tables()
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute(f"PRAGMA synchronous={'FULL' if durable else 'NORMAL'}")
            self._db.execute("CREATE TABLE IF NOT EXISTS event (seq INTEGER PRIMARY KEY, body BLOB NOT NULL)")
            self._db.execute("CREATE TABLE IF NOT EXISTS policy (body BLOB NOT NULL)")
            (version,) = self._db.execute("PRAGMA user_version").fetchone()
            if version in (0, *_READABLE):
                self._db.execute(f"PRAGMA user_version={_VERSION}")
            self._db.execute(f"PRAGMA wal_autocheckpoint={_LOG_PAGES}")
            self._db.execute("CREATE TABLE IF NOT EXISTS snapshot (body BLOB NOT NULL)")
            (events,) = self._db.execute("SELECT coalesce(sum(length(body)), 0) FROM event").fetchone()
            (self.saved,) = self._db.execute("SELECT coalesce(sum(length(body)), 0) FROM snapshot").fetchone()
            self.size = events + self.saved
        except (sqlite3.Error, OSError) as error:
            os.close(self._lock)
            raise InputError(f"{path}: expected a journal, but {error}") from error
        self._write_back = WriteBack(path)
        if version not in (0, *_READABLE):
            self.close()
            raise InputError(f"{path}: a journal of version {version}: expected {_VERSION}")

    def _check_tables(self) -> None:
        """Change nothing in a database of something else (raises ``sqlite3.DatabaseError``)."""
        found = self._db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name").fetchall()
        other = next((name for (name,) in found if name not in _TABLES and not name.startswith("sqlite_")), None)
        if other is not None:
            self._db.close()
            raise sqlite3.DatabaseError(f"it is a database with a table {other}")

    @staticmethod
    def _locked(path: Path) -> int:
        """The lock goes with the process, however it ends. One that was removed before it was held locks nothing."""
        file = path.with_name(path.name + _LOCK)
        while True:
            try:
                lock = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise InputError(f"{path}: cannot write there: {error.strerror}") from error
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(lock)
                raise InputError(f"{path}: another controller holds this journal") from error
            if os.fstat(lock).st_nlink:
                return lock
            os.close(lock)

    def append(self, events: Iterable[Frame | bytes]) -> None:
        """Write a batch of events, all or none of them; ``bytes`` are packed already.

        Raises
        ------
        RuntimeFault
            They cannot be written: the disk is full, or gone.
        """
        bodies = [event if isinstance(event, bytes) else _packed(event) for event in events]
        batches = [_packed(part) for part in _parts(bodies)]
        try:
            if len(batches) == 1:
                self._db.execute(_INSERT, batches)  # a transaction of its own
            else:
                self._db.execute("BEGIN")
                self._db.executemany(_INSERT, [(batch,) for batch in batches])
                self._db.execute("COMMIT")
        except sqlite3.Error as error:
            raise RuntimeFault(f"journal {self._path}: {error}") from error
        written = sum(map(len, batches))
        self.size += written
        self._write_back.written(written)

    def take_back(self, count: int) -> None:
        """Strike the last events, which nothing has followed from."""
        while count:
            seq, row = self._db.execute("SELECT seq, body FROM event ORDER BY seq DESC LIMIT 1").fetchone()
            bodies = _bodies(row)
            kept = bodies[: max(0, len(bodies) - count)]
            left = _packed(kept) if kept else b""
            if kept:
                self._db.execute("UPDATE event SET body = ? WHERE seq = ?", (left, seq))
            else:
                self._db.execute("DELETE FROM event WHERE seq = ?", (seq,))
            count -= len(bodies) - len(kept)
            self.size += len(left) - len(row)

    def replay(self) -> Iterator[Frame]:
        """All events, oldest first.

        Raises
        ------
        InputError
            Where one of them cannot be read.
        """
        rows = self._db.execute("SELECT body FROM event ORDER BY seq")
        while True:
            try:
                row = rows.fetchone()
                if row is None:
                    return
                events = [decode(body) for body in _bodies(row[0])]
            except (sqlite3.Error, WireError) as error:
                raise InputError(f"{self._path}: the journal is damaged: {error}") from error
            yield from events

    def restart(self, snapshot: Frame | None = None) -> None:
        """Begin anew, with what all events so far have led to, or with nothing where that is over.

        Raises
        ------
        RuntimeFault
            As ``append``.
        """
        body = _packed(snapshot) if snapshot is not None else b""
        try:
            self._db.execute("BEGIN")
            self._db.execute("DELETE FROM event")
            self._db.execute("DELETE FROM snapshot")
            for at in range(0, len(body), _LONGEST_ROW):
                self._db.execute("INSERT INTO snapshot (body) VALUES (?)", (body[at : at + _LONGEST_ROW],))
            self._db.execute("COMMIT")
        except (sqlite3.Error, OverflowError) as error:
            raise RuntimeFault(f"journal {self._path}: {error}") from error
        self.size = self.saved = len(body)

    def snapshot(self) -> Frame | None:
        """What the events before those of ``replay`` have led to; ``None`` where there were none.

        Raises
        ------
        InputError
            Where it cannot be read.
        """
        try:
            rows = self._db.execute("SELECT body FROM snapshot ORDER BY rowid").fetchall()
            if not rows:
                return None
            document = msgpack.unpackb(b"".join(body for (body,) in rows), raw=False, use_list=True)
        except (sqlite3.Error, ValueError, TypeError, msgpack.UnpackException) as error:
            raise InputError(f"{self._path}: the journal is damaged: {error}") from error
        if not isinstance(document, dict):
            raise InputError(f"{self._path}: the journal is damaged: a snapshot that is no mapping")
        return document

    def policy(self, wanted: Frame) -> Frame:
        """The policy under which the first of the events were and will be handled: the one written down as long as
        there are any, else the one that is wanted, which then is."""
        held = self._db.execute("SELECT body FROM policy").fetchone()
        if held is not None and self.size:
            return decode(held[0])
        self._db.execute("BEGIN")
        self._db.execute("DELETE FROM policy")
        self._db.execute("INSERT INTO policy (body) VALUES (?)", (_packed(wanted),))
        self._db.execute("COMMIT")
        return wanted

    def discard(self) -> None:
        """Have a journal that this process made removed when it is closed; one that was there before stays."""
        self._discarded = self._made

    def close(self) -> None:
        self._write_back.close()
        self._db.close()
        if self._discarded:
            for ending in ("", "-wal", "-shm", _LOCK):  # the lock last: until then nobody else has it
                self._path.with_name(self._path.name + ending).unlink(missing_ok=True)
        os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _packed(data: Frame | list[bytes]) -> bytes:
    body: bytes = msgpack.packb(data, use_bin_type=True)
    return body


def _parts(bodies: list[bytes]) -> Iterator[list[bytes]]:
    """Parts that a row holds, or one that is longer by itself; one of nothing, too."""
    part, size = list[bytes](), 0
    for body in bodies:
        if part and size + len(body) > _LONGEST_ROW:
            yield part
            part, size = [], 0
        part.append(body)
        size += len(body)
    yield part


def _bodies(row: bytes) -> list[bytes]:
    """The bodies of a batch; a row of version 1 is one itself."""
    try:
        batch = msgpack.unpackb(row, use_list=True)
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException):
        return [row]
    return batch if isinstance(batch, list) and all(isinstance(body, bytes) for body in batch) else [row]
