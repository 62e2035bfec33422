"""Results on disk: a journal of JSON lines while a run goes on, one JSON document when it is done.

The first line of a journal holds the suite; every start adds a line with its environment, every run its row, each
synced to disk. A line that a kill cut short is dropped. ``RESULTS.json`` takes the journal's place by an atomic rename;
until then the results that were there before stay as they are.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from iegopt.bench.checks import check_row, check_session, check_suite
from iegopt.errors import InputError, SpecError
from iegopt.files import sync, write_whole
from iegopt.problem.json_reader import load_json
from iegopt.units import shown

__all__ = ["FORMAT", "Journal", "journal_of", "read_results", "write_results"]

FORMAT = "iegopt-bench/1"
Document = dict[str, Any]


def journal_of(results: Path) -> Path:
    """Where the journal of a results file lies."""
    return results.parent / f"{results.name}.journal"


def read_results(results: Path) -> Document:
    """The document of a finished run, or what the journal of an unfinished one holds.

    Raises
    ------
    InputError
        Neither exists, or it is no results file: with the place in it.
    """
    journal = journal_of(results)
    if results.suffix == ".journal":
        return _of_lines(results)
    if journal.is_file() and (_is_begun(journal) or not results.exists()):
        return _of_lines(journal)
    document = load_json(results)
    name = str(results)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise SpecError(name, "", f"expected results of iegopt bench run, format {FORMAT}")
    check_suite(document.get("suite"), name, "suite")
    for key, check in (("sessions", check_session), ("rows", check_row)):
        entries = document.get(key)
        if not isinstance(entries, list):
            raise SpecError(name, key, f"{shown(entries)}: expected the list of {key} that iegopt bench run writes")
        for i, entry in enumerate(entries):
            check(entry, name, f"{key}[{i}]")
    if not document["sessions"]:
        raise SpecError(name, "sessions", "empty: expected one at least")
    return document


def write_results(results: Path, document: Document) -> None:
    """Write a document, a row a line, compressed to ``.json.gz``; what was there is replaced when all is on disk.

    What is no regular file (a pipe, /dev/null) is written to and stays.
    """
    head = {key: value for key, value in document.items() if key != "rows"}
    rows = ",\n".join(json.dumps(row, allow_nan=False, separators=(",", ":")) for row in document["rows"])
    raw = (json.dumps(head, indent=1, allow_nan=False)[:-2] + f',\n "rows": [\n{rows}\n]\n}}\n').encode()
    raw = gzip.compress(raw, mtime=0) if results.suffix == ".gz" else raw  # no time stamp: equal results, equal files
    write_whole(results, raw)


class Journal:
    """The open journal of a run.

    Parameters
    ----------
    suite
        The suite as plain data; with ``resume`` it must be the one that is there.
    session
        What is recorded about this start: environment, command.
    resume
        Keep the rows that are there, of a finished or an interrupted run.
    force
        Start anew. Finished results stay on disk until the new ones take their place.
    kept
        Which of the rows that are there ``resume`` keeps.

    Raises
    ------
    InputError
        Something is there and neither ``resume`` nor ``force`` is set; or another suite's.
    """

    def __init__(
        self,
        results: Path,
        suite: Document,
        session: Document,
        *,
        resume: bool,
        force: bool,
        kept: Callable[[list[Document]], list[Document]] = list,
    ) -> None:
        self.results = results
        self.path = journal_of(results)
        known: Document = {"format": FORMAT, "suite": suite, "sessions": [], "rows": []}
        if results.exists() and not results.is_file():
            raise InputError(f"{results.name}: no regular file, results cannot take its place")
        interrupted = self.path.exists() and _is_begun(self.path)
        if not (resume or force) and (interrupted or results.exists()):
            there = f"{self.path.name} holds an interrupted run" if interrupted else f"{results.name} is already there"
            raise InputError(f"{there}: --resume adds what is missing, --force starts anew")
        if resume and (interrupted or results.exists()):
            known = read_results(results)
            if known["suite"] != suite:
                raise InputError(f"{results.name}: made from another suite, cannot be resumed with this one")
        self.sessions: list[Document] = [*known["sessions"], session]
        self.rows: list[Document] = kept(known["rows"])
        partial = self.path.with_name(self.path.name + ".new")
        entries: list[Document] = [
            {"format": FORMAT, "suite": suite},
            *({"session": each} for each in self.sessions),
            *({"row": row} for row in self.rows),
        ]
        with partial.open("w", encoding="utf-8") as stream:
            stream.writelines(map(_line, entries))
            sync(stream)
        partial.replace(self.path)
        self._stream = self.path.open("a", encoding="utf-8")

    def append(self, row: Document) -> None:
        """Add a row; it is on disk when this returns."""
        row = {**row, "session": len(self.sessions) - 1}
        self.rows.append(row)
        self._stream.write(_line({"row": row}))
        sync(self._stream)

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


def _is_begun(journal: Path) -> bool:
    """Whether anything was recorded; a kill may leave a journal without a whole line.

    Raises ``SpecError`` where the file is no journal.
    """
    with journal.open("rb") as stream:
        line = stream.readline()
    begin = _line({"format": FORMAT}).encode()[:-2]
    if not line.endswith(b"\n") and begin.startswith(line[: len(begin)]):
        return False
    _suite_of(line, str(journal))
    return True


def _suite_of(line: bytes, name: str) -> Document:
    """The suite in the first line of a journal."""
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    if not isinstance(entry, dict) or entry.get("format") != FORMAT:
        raise SpecError(name, "line 1", f"expected the journal of an iegopt bench run, format {FORMAT}")
    check_suite(entry.get("suite"), name, "line 1")
    suite: Document = entry["suite"]
    return suite


def _of_lines(journal: Path) -> Document:
    name = str(journal)
    try:
        lines = journal.read_bytes().split(b"\n")[:-1]
    except OSError as error:
        raise SpecError(name, "", f"cannot be read: {error.strerror or error}") from None
    if not lines:
        raise SpecError(name, "", "holds no run yet: iegopt bench run begins it anew")
    document: Document = {"format": FORMAT, "suite": _suite_of(lines[0], name), "sessions": [], "rows": []}
    for number, line in enumerate(lines[1:], 2):
        where = f"line {number}"
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):
            raise SpecError(name, where, "damaged: expected a JSON object") from None
        if isinstance(entry, dict) and entry.keys() == {"row"}:
            check_row(entry["row"], name, where)
            document["rows"].append(entry["row"])
        elif isinstance(entry, dict) and entry.keys() == {"session"}:
            check_session(entry["session"], name, where)
            document["sessions"].append(entry["session"])
        else:
            raise SpecError(name, where, f"{shown(entry)}: expected an object with row, or one with session")
    if not document["sessions"]:
        raise SpecError(name, "", "no session: expected one at least")
    return document
