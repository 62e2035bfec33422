"""Results on disk: a journal of JSON lines while a run goes on, one JSON document when it is done.

The first line of a journal holds the suite; every start adds a line with its environment, every run its row, each
synced to disk. A line that a kill cut short is dropped. ``RESULTS.json`` takes the journal's place by an atomic rename.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from iegopt.errors import InputError

__all__ = ["FORMAT", "Journal", "journal_of", "read_results", "write_results"]

FORMAT = "iegopt-bench/1"
Document = dict[str, Any]


def journal_of(results: Path) -> Path:
    """Where the journal of a results file lies."""
    return results.with_name(results.name + ".journal")


def read_results(results: Path) -> Document:
    """The document of a finished run, or what the journal of an unfinished one holds.

    Raises
    ------
    InputError
        Neither exists, or it is no results file.
    """
    journal = journal_of(results)
    if journal.is_file() or results.suffix == ".journal":
        return _of_lines(journal if journal.is_file() else results)
    try:
        document = json.loads(results.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{results.name}: cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f"{results.name}: expected results of iegopt bench run, format {FORMAT}")
    return document


def write_results(results: Path, document: Document) -> None:
    """Write a document, a row a line; what was there is replaced at once, when all is on disk."""
    partial = results.with_name(results.name + ".new")
    head = {key: value for key, value in document.items() if key != "rows"}
    rows = ",\n".join(json.dumps(row, allow_nan=False, separators=(",", ":")) for row in document["rows"])
    with partial.open("w", encoding="utf-8") as stream:
        stream.write(json.dumps(head, indent=1, allow_nan=False)[:-2] + f',\n "rows": [\n{rows}\n]\n}}\n')
        _sync(stream)
    partial.replace(results)


class Journal:
    """The open journal of a run.

    Parameters
    ----------
    suite
        The suite as plain data; with ``resume`` it must be the one that is there.
    session
        What is recorded about this start: environment, command.

    Raises
    ------
    InputError
        An interrupted run is there and ``resume`` is not set; or another suite's.
    """

    def __init__(self, results: Path, suite: Document, session: Document, *, resume: bool) -> None:
        self.results = results
        self.path = journal_of(results)
        known: Document = {"format": FORMAT, "suite": suite, "sessions": [], "rows": []}
        if self.path.exists() and not resume:
            raise InputError(f"{self.path.name} holds an interrupted run: go on with --resume, or remove it")
        if resume and (self.path.exists() or results.exists()):
            known = read_results(results)
            if known["suite"] != suite:
                raise InputError(f"{results.name}: made from another suite, cannot be resumed with this one")
        self.sessions: list[Document] = [*known["sessions"], session]
        self.rows: list[Document] = known["rows"]
        partial = self.path.with_name(self.path.name + ".new")
        entries: list[Document] = [
            {"format": FORMAT, "suite": suite},
            *({"session": each} for each in self.sessions),
            *({"row": row} for row in self.rows),
        ]
        with partial.open("w", encoding="utf-8") as stream:
            stream.writelines(map(_line, entries))
            _sync(stream)
        partial.replace(self.path)
        self._stream = self.path.open("a", encoding="utf-8")

    def append(self, row: Document) -> None:
        """Add a row; it is on disk when this returns."""
        row = {**row, "session": len(self.sessions) - 1}
        self.rows.append(row)
        self._stream.write(_line({"row": row}))
        _sync(self._stream)

    def finish(self) -> Document:
        """Write the results file and remove the journal."""
        document = _of_lines(self.path)
        write_results(self.results, document)
        self._stream.close()
        self.path.unlink()
        return document

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stream.close()


def _line(entry: Document) -> str:
    return json.dumps(entry, allow_nan=False, separators=(",", ":")) + "\n"


def _sync(stream: Any) -> None:
    stream.flush()
    os.fsync(stream.fileno())


def _of_lines(journal: Path) -> Document:
    document: Document = {"format": FORMAT, "suite": None, "sessions": [], "rows": []}
    for number, line in enumerate(journal.read_bytes().split(b"\n")[:-1], 1):
        try:
            entry = json.loads(line)
        except ValueError:
            raise InputError(f"{journal.name}: line {number} is damaged") from None
        if "row" in entry:
            document["rows"].append(entry["row"])
        elif "session" in entry:
            document["sessions"].append(entry["session"])
        else:
            document.update(entry)
    if document["suite"] is None:
        raise InputError(f"{journal.name}: expected the journal of an iegopt bench run")
    return document
