"""Commands: what the controller asks of clients, the planner, workers and its shell (``messages``)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = [
    "COMMANDS",
    "HOW",
    "Answer",
    "Command",
    "Differs",
    "Discard",
    "Dismiss",
    "Forget",
    "Introduce",
    "MakePlan",
    "Release",
    "Reserve",
    "Start",
    "Stop",
    "Stream",
    "WakeAt",
]

HOW = ("cancel", "preempt", "migrate")
"""How a stage is stopped. ``cancel`` ends in Failed (cancelled), the others in Preempted with the KV cache kept."""


@dataclass(frozen=True, slots=True)
class Command:
    """Something to be carried out; doing it twice does no harm."""


@dataclass(frozen=True, slots=True)
class MakePlan(Command):
    """Place ``graph``, a GraphSpec's document; ``request`` are the policies of a RequestSpec to be made with it.

    Stages that have ended are left out of it, running ones bound to their device, and the KV cache that a stage
    continues named by ``affinity.kv_cache_location``. ``live``: device -> roles of its workers; nothing else may be
    used. ``slow``: device -> measured over planned time.
    """

    request_id: str
    generation: int
    graph: dict[str, Any]
    request: dict[str, Any]
    live: dict[str, Any]
    slow: dict[str, Any]
    reason: str


@dataclass(frozen=True, slots=True)
class Start(Command):
    """Run one attempt of a stage; an attempt that the worker knows already is not begun anew.

    ``work`` by ``kind``, as ``iegopt.control.work`` builds it. ``limits``: ``{"timeout": seconds or None}``.
    """

    worker: str
    request_id: str
    stage: str
    attempt: int
    kind: str
    work: dict[str, Any]
    limits: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stop(Command):
    worker: str
    request_id: str
    stage: str
    attempt: int
    how: str


@dataclass(frozen=True, slots=True)
class Reserve(Command):
    """Keep so many bytes of KV memory for a decode whose prefill runs; ``Release`` of its KV cache gives them up."""

    worker: str
    request_id: str
    stage: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Release(Command):
    """A KV cache (or what is reserved for it) that nothing needs any more; blocks may stay for reuse of the prefix."""

    worker: str
    kv_id: str


@dataclass(frozen=True, slots=True)
class Forget(Command):
    """Results and KV of an answered request may go."""

    worker: str
    request_id: str


@dataclass(frozen=True, slots=True)
class Introduce(Command):
    """A worker that is not known here any more, or was given up, gives signs of life: it shall register again."""

    worker: str


@dataclass(frozen=True, slots=True)
class Dismiss(Command):
    """A draining worker is needed no more and may end."""

    worker: str


@dataclass(frozen=True, slots=True)
class Stream(Command):
    """Tokens to the client, each once: ``offset`` counts from the first token of this stage."""

    request_id: str
    stage: str
    offset: int
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Answer(Command):
    """The one answer to a request; kept until it is acknowledged. ``iegopt.control.answer`` describes it."""

    request_id: str
    answer: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Differs(Command):
    """What was just submitted is not taken: another request bears its id, of which this client must hear nothing."""

    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Discard(Command):
    """Nobody has acknowledged an answer for long: it need not be kept any more."""

    request_id: str


@dataclass(frozen=True, slots=True)
class WakeAt(Command):
    """A ``Ticked`` is wanted at this time; the last one asked for counts."""

    at: float


COMMANDS: tuple[type[Command], ...] = (
    MakePlan, Start, Stop, Reserve, Release, Forget, Introduce, Dismiss, Stream, Answer, Differs,
    Discard, WakeAt,
)  # fmt: skip
