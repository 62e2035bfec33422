"""What workers hand back, by kind of stage, read from ``Finished.result``.

======================  ===========================================================================================
tokenize                ``{tokens}``
prefill, re_prefill     ``{first, text, appended, computed, reused, kv}``: the first token sampled and its text, the
                        tokens that ``append`` became, tokens forwarded and taken from a cache
decode                  ``{tokens, text, calls, stop, computed, reused, kv}``: all tokens of this stage, over all its
                        attempts, the stop token included; ``calls`` ``[{name, arguments}]``; ``stop`` of ``STOPS``
tool                    ``{content, cached, truncated}``
embedding               ``{vectors}``
retrieval, rerank       ``{documents}``: ``[{text, …}]``, best first
router, agent_decision  ``{decision}``
output                  ``{text}``
kv_store, _load, …      ``{kv}``
======================  ===========================================================================================

``kv`` is ``{id, tokens, bytes, copies, pushed}``: the worker holds that many tokens itself; ``copies`` are further ones
``{tier, addresses}`` that outlive it, and ``pushed`` says that the worker of ``work.push`` has one. ``moved``, where it
is given, counts the bytes that the stage sent or fetched. What a worker adds is let through.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iegopt.errors import SpecError
from iegopt.spec.stage import StageKind
from iegopt.units import shown

__all__ = [
    "STOPS",
    "Call",
    "Decoded",
    "HeldKv",
    "KvCopy",
    "Moved",
    "Prefilled",
    "Read",
    "Tokenized",
    "read_kv",
    "read_result",
]

STOPS = ("eos", "stop", "length", "call", "context")
"""Why a decode ended: its model's end token, a stop text, its most tokens, a tool call, a full context."""


@dataclass(frozen=True)
class KvCopy:
    tier: str
    addresses: dict[str, Any]


@dataclass(frozen=True)
class HeldKv:
    id: str
    tokens: int
    bytes: int
    copies: tuple[KvCopy, ...]
    pushed: bool
    moved: int


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Tokenized:
    tokens: tuple[int, ...]


@dataclass(frozen=True)
class Prefilled:
    first: int
    text: str
    appended: tuple[int, ...]
    computed: int
    reused: int
    kv: HeldKv


@dataclass(frozen=True)
class Decoded:
    tokens: tuple[int, ...]
    text: str
    calls: tuple[Call, ...]
    stop: str
    computed: int
    reused: int
    kv: HeldKv


@dataclass(frozen=True)
class Read:
    """A result of another kind, as it came, with the fields of its kind checked."""

    fields: dict[str, Any]


@dataclass(frozen=True)
class Moved:
    """A KV cache that lies elsewhere now."""

    kv: HeldKv


Result = Tokenized | Prefilled | Decoded | Moved | Read


def read_result(kind: StageKind, data: dict[str, Any], source: str) -> Result:
    """The result of a stage.

    Raises
    ------
    SpecError
        Naming the field, its value and what was expected.
    """
    return _READERS[kind](_Fields(data, source))


def read_kv(data: dict[str, Any], source: str) -> HeldKv:
    """``kv`` of a result or of Preempted; raises as ``read_result``."""
    return _kv(_Fields({"kv": data}, source))


@dataclass(slots=True)
class _Fields:
    """A mapping read field by field."""

    data: dict[str, Any]
    source: str
    path: str = ""

    def get(self, name: str, kind: type, expected: str) -> Any:
        value = self.data.get(name)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            what = "missing" if name not in self.data else shown(value)
            raise SpecError(self.source, self.path + name, f"{what}: expected {expected}")
        return value

    def text(self, name: str) -> str:
        return str(self.get(name, str, "text"))

    def flag(self, name: str) -> bool:
        return bool(self.get(name, bool, "true or false"))

    def natural(self, name: str) -> int:
        value: int = self.get(name, int, "a whole number")
        if value < 0:
            raise SpecError(self.source, self.path + name, f"{value}: expected at least 0")
        return value

    def tokens(self, name: str) -> tuple[int, ...]:
        values = self.get(name, list, "a list of tokens")
        for i, value in enumerate(values):
            if type(value) is not int or value < 0:
                raise SpecError(self.source, f"{self.path}{name}.{i}", f"{shown(value)}: expected a token, 0 or more")
        return tuple(values)

    def entries(self, name: str) -> list[_Fields]:
        values = self.get(name, list, "a list")
        for i, value in enumerate(values):
            if not isinstance(value, dict):
                raise SpecError(self.source, f"{self.path}{name}.{i}", f"{shown(value)}: expected a mapping")
        return [_Fields(value, self.source, f"{self.path}{name}.{i}.") for i, value in enumerate(values)]

    def inner(self, name: str) -> _Fields:
        return _Fields(self.get(name, dict, "a mapping"), self.source, f"{self.path}{name}.")

    def mapping(self, name: str) -> dict[str, Any]:
        value: dict[str, Any] = self.get(name, dict, "a mapping")
        return value


def _kv(fields: _Fields) -> HeldKv:
    kv = fields.inner("kv")
    copies = tuple(KvCopy(copy.text("tier"), copy.mapping("addresses")) for copy in kv.entries("copies"))
    moved = kv.natural("moved") if "moved" in kv.data else 0
    return HeldKv(kv.text("id"), kv.natural("tokens"), kv.natural("bytes"), copies, kv.flag("pushed"), moved)


def _prefilled(fields: _Fields) -> Result:
    return Prefilled(
        first=fields.natural("first"), text=fields.text("text"), appended=fields.tokens("appended"),
        computed=fields.natural("computed"), reused=fields.natural("reused"), kv=_kv(fields),
    )  # fmt: skip


def _decoded(fields: _Fields) -> Result:
    stop = fields.text("stop")
    if stop not in STOPS:
        raise SpecError(fields.source, "stop", f"{shown(stop)}: expected one of {', '.join(STOPS)}")
    calls = tuple(Call(call.text("name"), call.mapping("arguments")) for call in fields.entries("calls"))
    return Decoded(
        tokens=fields.tokens("tokens"), text=fields.text("text"), calls=calls, stop=stop,
        computed=fields.natural("computed"), reused=fields.natural("reused"), kv=_kv(fields),
    )  # fmt: skip


def _tool(fields: _Fields) -> Result:
    return Read({"content": fields.text("content"), "cached": fields.flag("cached"),
                 "truncated": fields.flag("truncated")})  # fmt: skip


def _documents(fields: _Fields) -> Result:
    for document in fields.entries("documents"):
        document.text("text")
    return Read(dict(fields.data))


def _vectors(fields: _Fields) -> Result:
    return Read({"vectors": fields.get("vectors", list, "a list of vectors")})


def _held(fields: _Fields) -> Result:
    return Moved(_kv(fields))


def _said(name: str) -> Callable[[_Fields], Result]:
    return lambda fields: Read({name: fields.text(name)})


_READERS: dict[StageKind, Callable[[_Fields], Result]] = {
    StageKind.TOKENIZE: lambda fields: Tokenized(fields.tokens("tokens")),
    StageKind.PREFILL: _prefilled,
    StageKind.RE_PREFILL: _prefilled,
    StageKind.DECODE: _decoded,
    StageKind.TOOL: _tool,
    StageKind.EMBEDDING: _vectors,
    StageKind.RETRIEVAL: _documents,
    StageKind.RERANK: _documents,
    StageKind.ROUTER: _said("decision"),
    StageKind.AGENT_DECISION: _said("decision"),
    StageKind.OUTPUT: _said("text"),
    StageKind.KV_STORE: _held,
    StageKind.KV_LOAD: _held,
    StageKind.KV_MIGRATE: _held,
}
