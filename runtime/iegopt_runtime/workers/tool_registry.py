"""Tools as their owner registers them: a Python callable by ``module:name``, or a command.

::

    tools:
      search: {python: "shop.tools:search", timeout: 5s, retries: 1}
      lines: {command: [grep, -n, "{pattern}", notes.txt], output: 64kB}

A command's ``{name}`` is replaced by the argument of that name, as one word; no shell reads it. Arguments that no word
names arrive as JSON on its standard input. A callable with a parameter ``idempotency_key``, and a command by the
variable ``IEGOPT_IDEMPOTENCY_KEY``, are told which call it is: the key is the same in every try and recovery.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import Field, model_validator

from iegopt.spec.base import Identifier, Spec
from iegopt.spec.explain_error import validate
from iegopt.spec.load import read_document
from iegopt.spec.quantities import PositiveBytes, Seconds, SmallInt

__all__ = ["RegisteredTool", "ToolAnswer", "ToolEntry", "read_tools"]


class ToolEntry(Spec):
    """A tool as written in a file. ``keep`` is how long an answer may be given again to a call with the same key."""

    python: str | None = Field(default=None, pattern=r"^[\w.]+:\w+$")
    command: tuple[str, ...] | None = Field(default=None, min_length=1)
    timeout: Seconds = 30.0
    output: PositiveBytes = 256 * 1024
    retries: SmallInt = 0
    keep: Seconds = 3600.0

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if (self.python is None) == (self.command is None):
            raise ValueError("expected exactly one of python and command")
        if self.timeout <= 0:
            raise ValueError("timeout 0s: expected more")
        return self


class _Tools(Spec):
    tools: dict[Identifier, ToolEntry] = Field(min_length=1)


@dataclass(frozen=True)
class RegisteredTool:
    """``timeout`` and ``keep`` in seconds, ``output`` in bytes of UTF-8."""

    name: str
    python: str | None
    command: tuple[str, ...] | None
    timeout: float
    output: int
    retries: int
    keep: float


@dataclass(frozen=True)
class ToolAnswer:
    """``tries`` that it took."""

    content: str
    truncated: bool
    tries: int


def read_tools(source: Path | Mapping[str, Any]) -> dict[str, RegisteredTool]:
    """Tools by name, from a file or a map ``{name: {python | command, …}}``.

    Raises
    ------
    SpecError
        Naming the file, the path inside it, what stands there and what was expected.
    """
    document = {"tools": dict(source)} if isinstance(source, Mapping) else read_document(source)
    entries = validate(_Tools, document, "tools" if isinstance(source, Mapping) else str(source)).tools
    return {name: RegisteredTool(name=name, **entry.model_dump()) for name, entry in entries.items()}
