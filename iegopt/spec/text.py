"""A file as text, and the bounds within which a document is read at all.

The bounds are far above any honest document (a cluster of 10,000 devices written out one by
one, a dozen keys each) and keep a hostile one under three seconds and 500 MB; a snapshot may hold more, for 20,000
requests with thirty prefix blocks each, and a hostile one takes more.
"""

from __future__ import annotations

import re
from os import PathLike, fspath
from pathlib import Path
from typing import Any

from iegopt.errors import SpecError
from iegopt.units import shown

__all__ = [
    "MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "MAX_SNAPSHOT_NODES", "check_unicode", "file_name", "line_and_column",
    "read_text", "surrogate_in",
]  # fmt: skip

MAX_BYTES = 16 * 10**6
MAX_NODES = 300_000
"""Keys, values and collections of one document, aliases counted as often as they are used."""
MAX_SNAPSHOT_NODES = 1_500_000
"""The same of a snapshot, whose queue is what grows."""
MAX_DEPTH = 100

# What YAML does not take as it is; JSON has no use for it either.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")

_SURROGATE = re.compile("[\ud800-\udfff]")
# Whole pairs, as json.dumps writes emoji, are passed over where no backslash before them could be of another meaning.
_ESCAPED = re.compile(r"(?<!\\)\\u[dD][89abAB]..\\u[dD][c-fC-F]|(\\u[dD][89a-fA-F])")


def read_text(path: str | PathLike[str]) -> str:
    """The text of a UTF-8 file, a byte order mark left out.

    Raises
    ------
    SpecError
        The file cannot be opened, is over ``MAX_BYTES``, empty, binary, or not UTF-8.
    """
    file = file_name(path)
    try:
        with Path(path).open("rb") as stream:
            size = stream.seek(0, 2) if stream.seekable() else 0
            if size <= MAX_BYTES:
                if stream.seekable():
                    stream.seek(0)
                data = stream.read(MAX_BYTES + 1)
                size = len(data)
    except OSError as error:
        raise SpecError(file, "", f"cannot be read: {error.strerror or error}") from None
    except ValueError:
        raise SpecError(file, "", "cannot be read: not a file name") from None
    if size > MAX_BYTES:
        raise SpecError(file, "", f"larger than {MAX_BYTES // 10**6} MB, the most a document may be")
    return _decode(data, file)


def file_name(path: str | PathLike[str]) -> str:
    """The path as messages show it: always one printable line."""
    name = fspath(path)
    return name if name.isprintable() else name.encode("unicode_escape").decode("ascii")


def line_and_column(text: str, position: int) -> str:
    """``line 3:7``, both counted from 1."""
    return f"line {text.count(chr(10), 0, position) + 1}:{position - text.rfind(chr(10), 0, position)}"


def surrogate_in(text: str) -> str | None:
    """What is wrong with a text that holds half of a surrogate pair, which no file and no terminal takes."""
    found = None if text.isascii() else _SURROGATE.search(text)
    return found and f"{shown(text)}: a lone surrogate at {found.start()}: expected text in Unicode"


def check_unicode(data: Any, source: str, file: str, entry: str = ".{}") -> None:
    """Look for lone surrogates in what JSON text became: its escapes (``"\\ud800"``) alone can bring them.

    Parameters
    ----------
    source
        The JSON text.
    entry
        How a place in a list is written in a path.

    Raises
    ------
    SpecError
        For the first key or value that holds one, with its path.
    """
    if not any(escape.group(1) for escape in _ESCAPED.finditer(source)):
        return
    found: list[tuple[Any, tuple[Any, ...]]] = [(data, ())]  # with its path from its end: (last part, (part before, …))
    while found:
        value, path = found.pop()
        if isinstance(value, dict):
            inner = [(key, (f".{shown(key)}", path)) for key in value if not key.isascii()]
            found += reversed([*inner, *((each, (f".{shown(key)}", path)) for key, each in value.items())])
        elif isinstance(value, list):
            found += reversed([(each, (entry.format(i), path)) for i, each in enumerate(value)])
        elif isinstance(value, str) and (problem := surrogate_in(value)):
            parts = []
            while path:
                part, path = path
                parts.append(part)
            raise SpecError(file, "".join(reversed(parts)).removeprefix("."), problem)


def _decode(data: bytes, file: str) -> str:
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise SpecError(file, "", "UTF-16 text: expected UTF-8")
    if b"\x00" in data:
        raise SpecError(file, "", "binary file: expected YAML or JSON text")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = f"byte 0x{data[error.start]:02x} is not UTF-8: save the file as UTF-8"
        raise SpecError(file, f"line {line}", problem) from None
    if not text.strip():
        raise SpecError(file, "", "empty: expected a document")
    control = _CONTROL.search(text)
    if control is not None:
        where = line_and_column(text, control.start())
        raise SpecError(file, where, f"control character {shown(control.group())}: expected YAML or JSON text")
    return text
