"""YAML text as plain data, in one bounded pass over the parser's events.

Scalars are read narrowly: ``true``/``false``, ``null``, decimal integers and decimal fractions;
everything else is text. YAML 1.1 would make ``on`` a boolean, ``010`` eight, ``1:30`` ninety and
``2024-01-01`` a date; here they stay what was written, and the spec that reads them decides.

Aliases and merge keys (``<<``) work, but count as often as they are used, so a "billion laughs"
file meets the bound at once. Tags, several documents and keys given twice are refused.
"""

from __future__ import annotations

import re
from typing import Any, NoReturn

import yaml

from iegopt.errors import SpecError
from iegopt.spec.text import MAX_DEPTH, MAX_NODES
from iegopt.units import shown

__all__ = ["parse_yaml"]

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

# Each is a subset of YAML 1.1's, so that what PyYAML writes plain reads back as the same type.
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    ".nan": float("nan"), ".inf": float("inf"), "-.inf": float("-inf"),
}  # fmt: skip
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]{0,39})")
_DECIMAL = re.compile(r"[-+]?[0-9]{1,40}\.[0-9]{0,40}(?:[eE][-+][0-9]{1,4})?")
_TEXT_TAGS = (None, "!", "tag:yaml.org,2002:str")


def parse_yaml(text: str, file: str, nodes: int = MAX_NODES) -> Any:
    """Read one YAML document of at most ``nodes`` keys, values and collections.

    Raises
    ------
    SpecError
        With ``line L:C`` as its place: a syntax error, a key given twice, a tag, a second document,
        an alias without an anchor, or a document beyond ``nodes`` or ``MAX_DEPTH``.
    """
    reader = _Reader(text, file, nodes)
    try:
        return reader.document()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        problem = error.problem or error.context or "not YAML"
        if mark is None:
            raise SpecError(file, "", f"not YAML: {problem}") from None
        raise SpecError(file, _place(mark), f"not YAML: {problem}{_hint(text, mark, problem)}") from None
    except yaml.YAMLError as error:
        raise SpecError(file, "", f"not YAML: {' '.join(str(error).split())}") from None
    finally:
        reader.loader.dispose()


class _Reader:
    """Builds values from events. ``nodes`` counts what the document expands to, ``most`` is what it may."""

    def __init__(self, text: str, file: str, most: int) -> None:
        self.file, self.most = file, most
        self.loader = _Loader(text)
        self.nodes = 0
        self.anchors: dict[str, tuple[Any, int, int]] = {}

    def document(self) -> Any:
        self.loader.get_event()  # the stream starts
        event = self.loader.get_event()
        if isinstance(event, yaml.StreamEndEvent):
            raise SpecError(self.file, "", "empty: expected a document")
        value, _ = self.value(self.loader.get_event(), 0)
        self.loader.get_event()  # the document ends
        event = self.loader.get_event()
        if not isinstance(event, yaml.StreamEndEvent):
            self.refuse(event, "a second document starts here: expected one a file")
        return value

    def value(self, event: Any, depth: int) -> tuple[Any, int]:
        """The value that starts with ``event``, and how many levels of collections it has."""
        if isinstance(event, yaml.AliasEvent):
            return self.alias(event, depth)
        before = self.nodes
        self.count(event, 1, depth)
        if event.tag not in _TEXT_TAGS:
            self.refuse(event, f"tag {shown(event.tag)}: tags are not read")
        height = 0
        result: Any
        if isinstance(event, yaml.ScalarEvent):
            plain = event.implicit[0] and event.tag is None
            result = _scalar(event.value) if plain else event.value
        elif isinstance(event, yaml.SequenceStartEvent):
            result = []
            while not isinstance(inner := self.loader.get_event(), yaml.SequenceEndEvent):
                entry, levels = self.value(inner, depth + 1)
                result.append(entry)
                height = max(height, levels + 1)
        else:
            result, height = self.mapping(depth)
        if event.anchor is not None:
            self.anchors[event.anchor] = (result, self.nodes - before, height)
        return result, height

    def mapping(self, depth: int) -> tuple[dict[str, Any], int]:
        result: dict[str, Any] = {}
        merged: list[dict[str, Any]] = []
        height = 0
        while not isinstance(event := self.loader.get_event(), yaml.MappingEndEvent):
            if not isinstance(event, yaml.ScalarEvent) or event.value == "":
                self.refuse(event, "expected a word as key")
            self.count(event, 1, depth)
            key = event.value
            value, levels = self.value(self.loader.get_event(), depth + 1)
            height = max(height, levels + 1)
            if key == "<<" and event.implicit[0]:
                entries = value if isinstance(value, list) else [value]
                if not all(isinstance(entry, dict) for entry in entries):
                    self.refuse(event, "<<: expected a mapping or a list of mappings to merge")
                merged += entries
                continue
            if key in result:
                self.refuse(event, f"key {shown(key)} is given twice in one mapping")
            result[key] = value
        for entry in merged:
            for key, value in entry.items():
                result.setdefault(key, value)
        return result, height

    def alias(self, event: Any, depth: int) -> tuple[Any, int]:
        if event.anchor not in self.anchors:
            self.refuse(event, f"alias *{shown(event.anchor)} has no anchor before it")
        value, size, height = self.anchors[event.anchor]
        self.count(event, size, depth + height)
        return value, height

    def count(self, event: Any, nodes: int, depth: int) -> None:
        self.nodes += nodes
        if self.nodes > self.most:
            self.refuse(event, f"expands to more than {self.most} values, the most a document may hold")
        if depth > MAX_DEPTH:
            self.refuse(event, f"nested deeper than {MAX_DEPTH} levels, the most a document may be")

    def refuse(self, event: Any, problem: str) -> NoReturn:
        raise SpecError(self.file, _place(event.start_mark), problem)


def _scalar(text: str) -> Any:
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    if _DECIMAL.fullmatch(text):
        return float(text)
    return text


def _place(mark: Any) -> str:
    return f"line {mark.line + 1}:{mark.column + 1}"


def _hint(text: str, mark: Any, problem: str) -> str:
    lines = text.splitlines()
    if mark.line < len(lines) and "\t" in lines[mark.line][: mark.column + 1] and "token" in problem:
        return ". A tab? YAML is indented with spaces"
    if "mapping values are not allowed" in problem:
        return ". Wrong indentation, or a value with ': ' inside that needs quotes?"
    return ""
