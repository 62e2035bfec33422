"""Events: what reaches the controller from clients, the planner, workers and its shell (``messages``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = [
    "CAUSES",
    "EVENTS",
    "ROLES",
    "Accepted",
    "Acknowledged",
    "AttemptKey",
    "Cancelled",
    "Configured",
    "Disconnected",
    "Draining",
    "Event",
    "Failed",
    "Finished",
    "Heartbeat",
    "OfAttempt",
    "Planned",
    "Preempted",
    "Progress",
    "Registered",
    "ReservationRefused",
    "Reserved",
    "Restarted",
    "Resumed",
    "Submitted",
    "Ticked",
    "Waiting",
]

ROLES = ("lm", "tool", "retrieval", "cpu")
"""What a worker serves: ``lm`` every stage of a model, ``cpu`` tokenize, router, agent_decision and output."""

CAUSES = ("error", "oom", "timeout", "kv_lost", "refused", "context", "cancelled")
"""Why a stage failed. ``refused``: the worker cannot do such work at all (unknown model, tool); ``context``: the
sequence is longer than the model takes; ``cancelled``: the answer to Stop."""


class AttemptKey(NamedTuple):
    """One start of one stage; written as a list."""

    request_id: str
    stage: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Event:
    """``at``: seconds of the controller's clock; what is earlier than the event before counts as simultaneous."""

    at: float


# --- from a client ---


@dataclass(frozen=True, slots=True)
class Submitted(Event):
    """A request, and what it is about.

    ``inputs``: one of ``text``, ``messages`` (list of role and content) and ``tokens``; without one the request's
    ``prompt`` is the text. Also ``documents``, ``sampling``, ``stop`` (list of texts), ``script`` (forces tokens in
    tests), ``context`` (for router and agent_decision): handed to the workers as they are. ``priority`` 0 goes first,
    ``None`` takes that of the request's SLA class. The same request again changes nothing, another one
    under an id that is known is not taken (``Differs``).
    """

    request_id: str
    request: dict[str, Any]
    inputs: dict[str, Any]
    priority: int | None = None


@dataclass(frozen=True, slots=True)
class Cancelled(Event):
    request_id: str
    reason: str


@dataclass(frozen=True, slots=True)
class Acknowledged(Event):
    """The client has the answer: the request may be forgotten."""

    request_id: str


# --- from the planner ---


@dataclass(frozen=True, slots=True)
class Planned(Event):
    """The answer to ``MakePlan``, ``plan`` ``None`` where there is none, and why.

    ``plan``: ``{"stages": {id: {"device", "variant", "time", "memory", "start"}}, "transfers": [{"source", "target",
    "time", "bytes"}]}`` with seconds under load, bytes held, start in seconds after the plan's beginning. ``final``:
    the request itself is wrong, so that asking again is pointless.
    """

    request_id: str
    generation: int
    plan: dict[str, Any] | None
    reason: str
    final: bool = False


# --- from a worker ---


@dataclass(frozen=True, slots=True)
class Registered(Event):
    """A worker is there, for the first time or again.

    ``location``: ``{"datacenter", "rack", "host"}``. ``addresses``: scheme -> address of its data plane, such as
    ``{"unix": PATH, "tcp": HOST:PORT}``, and under ``file`` the folder of its KV files, where it has one. ``slots``:
    stages that it runs at once (from 1). ``variants`` are resident. ``running``: what it has accepted and
    not ended. ``finished``: documents of Finished, Failed and Preempted, without ``at``, that it was not told to
    forget. ``holds``: requests of which it holds results, KV caches or memory; ``kv``: names of these KV caches
    (``work.kv_name``), and of those for which it keeps memory.
    ``kv_free`` and ``weights_free``: bytes that KV caches and variants to come can have, where those that nothing uses
    make room. ``load_times``: seconds that loading a variant took there the last time.
    """

    worker: str
    device: str
    role: str
    location: dict[str, Any]
    epoch: str
    addresses: dict[str, Any]
    slots: int
    variants: tuple[str, ...]
    kv_free: int
    running: tuple[AttemptKey, ...]
    finished: tuple[dict[str, Any], ...]
    holds: tuple[str, ...] = ()
    weights_free: int = 0
    kv: tuple[str, ...] = ()
    load_times: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Heartbeat(Event):
    """``load``: share of its time that the worker computes, 0 to 1; the rest as of Registered."""

    worker: str
    epoch: str
    running: tuple[AttemptKey, ...]
    kv_free: int
    variants: tuple[str, ...]
    load: float
    holds: tuple[str, ...] = ()
    weights_free: int = 0
    load_times: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Disconnected(Event):
    """A worker's socket closed: not a loss yet, a time of grace begins."""

    worker: str
    epoch: str


@dataclass(frozen=True, slots=True)
class Draining(Event):
    """The worker shall get no more work; ``Dismiss`` follows when nothing needs it."""

    worker: str


@dataclass(frozen=True, slots=True)
class OfAttempt(Event):
    """About one start of a stage."""

    worker: str
    request_id: str
    stage: str
    attempt: int


@dataclass(frozen=True, slots=True)
class Accepted(OfAttempt):
    """The stage runs: SCHEDULED -> RUNNING."""


@dataclass(frozen=True, slots=True)
class Waiting(OfAttempt):
    """The stage waits for ``resource`` (``memory``, ``kv``, ``model``, …): RUNNING -> BLOCKED."""

    resource: str


@dataclass(frozen=True, slots=True)
class Resumed(OfAttempt):
    """BLOCKED -> RUNNING."""


@dataclass(frozen=True, slots=True)
class Progress(OfAttempt):
    """Tokens as a decode emits them.

    ``offset``: how many tokens this stage (its ``first`` included, over all attempts) had emitted before these.
    """

    offset: int
    tokens: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True)
class Finished(OfAttempt):
    """``result`` by kind, as ``iegopt.control.results`` reads it. ``seconds``: those that the attempt ran on its
    worker, without its waits; every last message about an attempt has them."""

    result: dict[str, Any]
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Failed(OfAttempt):
    """``cause`` of ``CAUSES``; ``transient`` says that the same again may succeed."""

    cause: str
    message: str
    transient: bool
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Preempted(OfAttempt):
    """Stopped between two tokens; ``kv`` ``{"id", "tokens", "bytes", "copies"}`` as in a result, ``None`` without."""

    kv: dict[str, Any] | None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Reserved(Event):
    worker: str
    request_id: str
    stage: str
    bytes: int


@dataclass(frozen=True, slots=True)
class ReservationRefused(Event):
    worker: str
    request_id: str
    stage: str
    reason: str


# --- from the shell ---


@dataclass(frozen=True, slots=True)
class Ticked(Event):
    """Time has passed: whatever is due by ``at`` happens."""


@dataclass(frozen=True, slots=True)
class Configured(Event):
    """What the controller is started with and goes by from here on. It comes at the time of the event before, so that
    ``Restarted`` still knows how long the controller was away.

    ``policy``: a ControlPolicy's document. ``workers``: name -> role of those that the cluster has, which may take
    their time to come up.
    """

    policy: dict[str, Any]
    workers: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Restarted(Event):
    """The controller was away and has replayed its journal; workers get a time of grace to come back.

    What may not have left before is asked for again: MakePlan, Stream, Answer, WakeAt now, Start and Stop when their
    worker registers.
    """


EVENTS: tuple[type[Event], ...] = (
    Submitted, Cancelled, Acknowledged, Planned, Registered, Heartbeat, Disconnected, Draining, Accepted, Waiting,
    Resumed, Progress, Finished, Failed, Preempted, Reserved, ReservationRefused, Ticked, Configured,
    Restarted,
)  # fmt: skip
