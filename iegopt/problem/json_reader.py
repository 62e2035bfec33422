"""Checked access to a JSON document: every complaint says where, what stood there, what was expected."""

from __future__ import annotations

import difflib
import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt

from iegopt.errors import SpecError
from iegopt.spec.text import check_unicode, surrogate_in
from iegopt.units import shown

__all__ = ["MAX_BYTES", "JsonReader", "load_json"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MAX_BYTES = 256 * 10**6
"""Largest document that is read, in bytes after decompression."""
_LARGEST_INDEX = 2**53


class JsonReader:
    """Reads values out of a parsed document; ``where`` is their dotted path inside it."""

    def __init__(self, file: str) -> None:
        self.file = file

    def fail(self, where: str, problem: str) -> NoReturn:
        raise SpecError(self.file, where, problem)

    def mapping(
        self, value: object, where: str, required: Sequence[str], optional: Sequence[str] = ()
    ) -> dict[str, Any]:
        """An object with these keys and no others."""
        if not isinstance(value, dict):
            self.fail(where, f"{shown(value)}: expected an object with {', '.join(required)}")
        known = [*required, *optional]
        for key in value:
            if key not in known:
                close = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
                hint = f"Maybe {close[0]}?" if close else f"Known: {', '.join(known)}"
                self.fail(where, f"unknown key {shown(key)}. {hint}")
        for key in required:
            if key not in value:
                self.fail(where, f"key {key} is missing")
        return value

    def array(self, value: object, where: str, length: int | None = None, of: str = "") -> list[Any]:
        """A list, of this length where one is given (``of`` says what the length counts)."""
        if not isinstance(value, list):
            self.fail(where, f"{shown(value)}: expected a list")
        if length is not None and len(value) != length:
            self.fail(where, f"{len(value)} entries, expected {length}{of and ', one per '}{of}")
        return value

    def text(self, value: object, where: str) -> str:
        if not isinstance(value, str) or not value or len(value) > 200:
            self.fail(where, f"{shown(value)}: expected a text of 1 to 200 characters")
        problem = surrogate_in(value)
        if problem is not None:
            self.fail(where, problem)
        return value

    def flag(self, value: object, where: str) -> bool:
        if not isinstance(value, bool):
            self.fail(where, f"{shown(value)}: expected true or false")
        return value

    def number(self, value: object, where: str, *, least: float | None = 0.0, above: float | None = None) -> float:
        """A finite number ≥ ``least``, > ``above``."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.fail(where, f"{shown(value)}: expected a number")
        try:
            number = float(value)
        except OverflowError:
            self.fail(where, f"{shown(value)}: the number is out of range")
        if not np.isfinite(number):
            self.fail(where, f"{shown(value)}: expected a finite number")
        if above is not None and not number > above:
            self.fail(where, f"{shown(value)}: expected a number above {above:g}")
        if least is not None and number < least:
            self.fail(where, f"{shown(value)}: expected a number of at least {least:g}")
        return number

    def index(self, value: object, where: str, count: int, of: str) -> int:
        """An index below ``count``."""
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < count:
            self.fail(where, f"{shown(value)}: expected the index of a {of}, 0 to {count - 1}")
        return value

    def numbers(
        self, value: object, where: str, length: int | None = None, of: str = "", *, least: float | None = 0.0
    ) -> Floats:
        """A list of finite numbers ≥ ``least``, in one pass of numpy where all is well."""
        items = self.array(value, where, length, of)
        if set(map(type, items)) <= {int, float}:
            try:
                numbers = np.array(items, dtype=np.float64)
            except OverflowError:
                numbers = np.array([np.nan])
            if np.isfinite(numbers).all() and (least is None or not (numbers < least).any()):
                return numbers
        return np.array([self.number(x, f"{where}[{i}]", least=least) for i, x in enumerate(items)])

    def indices(
        self, value: object, where: str, length: int | None, of: str, *, least: int = 0, count: int = _LARGEST_INDEX
    ) -> Ints:
        """A list of whole numbers from ``least`` to ``count − 1``."""
        items = self.array(value, where, length, of)
        for i, item in enumerate(items):
            if type(item) is not int or not least <= item < count:
                last = f" to {count - 1}" if count < _LARGEST_INDEX else " or more"
                self.fail(f"{where}[{i}]", f"{shown(item)}: expected a whole number, {least}{last}")
        return np.array(items, dtype=np.int64)

    def names(self, value: object, where: str) -> list[str]:
        """A list of texts, none twice."""
        items = self.array(value, where)
        seen: dict[str, int] = {}
        for i, item in enumerate(items):
            self.text(item, f"{where}[{i}]")
            if item in seen:
                self.fail(f"{where}[{i}]", f"{shown(item)} stands twice, first at {seen[item]}")
            seen[item] = i
        return items


def load_json(path: Path) -> object:
    """Parse a ``.json`` or ``.json.gz`` file of at most ``MAX_BYTES``.

    Raises
    ------
    SpecError
        The file is missing, too large, not gzip, not UTF-8, not JSON, has a key twice, or text that is no Unicode.
    """
    name = str(path)
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise SpecError(name, "", f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if len(raw) > MAX_BYTES:
        raise SpecError(name, "", f"larger than {MAX_BYTES} bytes")

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            keys = [key for key, _ in pairs]
            twice = next(key for key in keys if keys.count(key) > 1)
            raise SpecError(name, "", f"key {shown(twice)} stands twice in an object")
        return found

    try:
        text = raw.decode("utf-8")
        document: object = json.loads(text, object_pairs_hook=once)
    except UnicodeDecodeError:
        raise SpecError(name, "", "not UTF-8 text") from None
    except json.JSONDecodeError as error:
        raise SpecError(name, f"line {error.lineno} column {error.colno}", f"not JSON: {error.msg}") from None
    except (RecursionError, ValueError) as error:
        raise SpecError(name, "", f"not JSON: {shown(str(error))}") from None
    check_unicode(document, text, name, "[{}]")
    return document
