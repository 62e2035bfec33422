"""What every command shares: where text goes, how JSON is written, files by path or by name."""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from iegopt.errors import InputError
from iegopt.units import shown

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = [
    "FOLDERS",
    "busy",
    "check_ending",
    "check_outputs",
    "document_path",
    "note",
    "print_json",
    "shipped",
    "short_name",
    "show",
    "terminal",
    "writing",
]

_PLAIN_WIDTH = 140
"""Columns of a table where there is no terminal to ask."""
_LEAST_WIDTH = 80
"""Below this a table would lose columns; the terminal wraps it instead."""
_SUFFIXES = (".yaml", ".yml", ".json", ".gz")


def terminal() -> Console:
    """A console for stdout: colours and width of a terminal, plain and wide where there is none."""
    from rich.console import Console

    asked = sys.stdout.isatty() or os.environ.get("COLUMNS")
    console = Console(width=None if asked else _PLAIN_WIDTH, markup=False, highlight=False, emoji=False)
    console.width = max(console.width, _LEAST_WIDTH)
    return console


def show(*parts: RenderableType) -> None:
    """Render on stdout. The text is written here, so that a closed pipe is an ordinary exception."""
    console = terminal()
    with console.capture() as capture:
        for part in parts:
            console.print(part)
    lines = capture.get().splitlines()
    sys.stdout.write("\n".join(line.rstrip() for line in lines) + "\n")


def print_json(document: object) -> None:
    """One JSON object on stdout; a number that JSON has no word for (an infinite gap) is null."""
    sys.stdout.write(json.dumps(_finite(document), indent=2, allow_nan=False, ensure_ascii=False) + "\n")


def note(message: str) -> None:
    """A remark on stderr."""
    print(f"iegopt: {message}", file=sys.stderr)


@contextmanager
def busy(message: str) -> Iterator[None]:
    """A spinner on stderr for work that takes over a second, where stderr is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    status = Console(stderr=True, markup=False).status(message)
    timer = threading.Timer(1.0, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
        status.stop()


_Folder = Literal["requests", "clusters", "problems", "snapshots", "policies"]
FOLDERS: tuple[_Folder, ...] = ("clusters", "requests", "snapshots", "policies", "problems")
"""What iegopt ships, by kind."""


def document_path(name: str, folder: _Folder) -> Path:
    """The file that a document is read from: a path, or the name of one that iegopt ships.

    Raises
    ------
    InputError
        Neither; with the nearest shipped name.
    """
    path = Path(name)
    try:
        if path.suffix in _SUFFIXES or len(path.parts) != 1 or path.exists():
            return path
    except (OSError, ValueError):  # too long, or not a file name: reading it says which
        return path
    files = {short_name(file): file for file in shipped(folder)}
    if name in files:
        return files[name]
    from iegopt.spec.explain_error import nearest

    guess = nearest(name, files)
    hint = f"Maybe {guess}?" if guess else "iegopt instances lists what is shipped"
    raise InputError(f"{shown(name)}: no such file, and no shipped {_one(folder)} has this name. {hint}")


def _one(folder: _Folder) -> str:
    return "policy" if folder == "policies" else folder[:-1]


def shipped(folder: _Folder) -> list[Path]:
    """The files of one kind that iegopt ships, by name."""
    from iegopt.library import data_dir

    here = data_dir("instances") / folder
    return sorted(file for file in here.iterdir() if file.suffix in _SUFFIXES)


def short_name(file: Path) -> str:
    """The name that stands for a shipped file on the command line."""
    return file.name.removesuffix(".gz").rpartition(".")[0]


def check_ending(path: str | None, endings: Sequence[str]) -> None:
    """Refuse a file, unless it is a device, whose name does not say what is to be written into it (``InputError``)."""
    if path is None or path.lower().endswith(tuple(endings)) or _is_device(path):
        return
    allowed = ", ".join(endings[:-1]) + f" or {endings[-1]}"
    raise InputError(f"{shown(path)}: expected a file name that ends in {allowed}")


def _is_device(path: str) -> bool:
    try:
        return os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path))
    except (OSError, ValueError):  # not a file name: writing it says which
        return False


def check_outputs(outputs: Iterable[str | None], inputs: Iterable[str | Path] = ()) -> None:
    """Refuse, before the work is done, files that cannot be written or would destroy what is read or written too.

    Parameters
    ----------
    outputs
        Files to write, ``None`` where none was asked for.
    inputs
        Files that the command reads.

    Raises
    ------
    InputError
        An output cannot be written, is an input, or is another output, under whatever names.
    """
    taken = [(str(path), "read") for path in inputs]
    for path in outputs:
        if path is None:
            continue
        with writing(path):
            target = Path(path)
            if target.is_dir():
                raise InputError(f"{shown(path)}: cannot be written: it is a folder, expected a file name")
            if not target.parent.is_dir():
                raise InputError(f"{shown(path)}: cannot be written: there is no folder {shown(str(target.parent))}")
        for other, done in taken:
            if _same_file(path, other):
                named = "it" if other == path else f"{shown(other)} is the same file and"
                raise InputError(f"{shown(path)}: cannot be written: {named} is {done} too, expected another file")
        taken.append((path, "written"))


def _same_file(one: str, other: str) -> bool:
    """Whether two names are one regular file, through links too; devices such as /dev/null may be shared."""
    try:
        if os.path.exists(one) and os.path.exists(other):
            return os.path.isfile(one) and os.path.samefile(one, other)
        return os.path.realpath(one) == os.path.realpath(other)
    except (OSError, ValueError):  # not a file name: reading or writing it says which
        return False


@contextmanager
def writing(path: str) -> Iterator[None]:
    """Say in one line why a file could not be written (raises ``InputError``)."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{shown(path)}: cannot be written: {error.strerror or error}") from None
    except ValueError:
        raise InputError(f"{shown(path)}: cannot be written: not a file name") from None


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
