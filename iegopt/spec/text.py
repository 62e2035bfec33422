"""A file as text, and the bounds within which a document is read at all.

The bounds are far above any honest document (a cluster of 10,000 devices written out one by
one, a dozen keys each) and keep a hostile one under three seconds and 500 MB; a snapshot may hold more, for 20,000
requests with thirty prefix blocks each, and a hostile one takes more.
"""

from __future__ import annotations

import re
from os import PathLike, fspath
from pathlib import Path

from iegopt.errors import SpecError
from iegopt.units import shown

__all__ = ["MAX_BYTES", "MAX_DEPTH", "MAX_NODES", "MAX_SNAPSHOT_NODES", "file_name", "line_and_column", "read_text"]

MAX_BYTES = 16 * 10**6
MAX_NODES = 300_000
"""Keys, values and collections of one document, aliases counted as often as they are used."""
MAX_SNAPSHOT_NODES = 1_500_000
"""The same of a snapshot, whose queue is what grows."""
MAX_DEPTH = 100

# What YAML does not take as it is; JSON has no use for it either.
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")


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
