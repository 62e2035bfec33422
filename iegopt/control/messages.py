"""What reaches the controller (events) and what it asks for (commands); ``documents`` writes and reads both.

::

    client ── Submitted, Cancelled, Acknowledged ──▶ ┌────────────┐ ── Stream, Answer ─────────────────▶ client
    planner ── Planned ────────────────────────────▶ │ Controller │ ── MakePlan ───────────────────────▶ planner
    worker ── Registered, Heartbeat, Accepted, … ──▶ └────────────┘ ── Start, Stop, Reserve, Release … ▶ worker
    shell ── Configured, Restarted, Ticked, … ────▶                 ── WakeAt, Discard ───────────────▶ shell

Times are seconds of the controller's own clock, stamped by the shell; sizes are bytes. Every field is plain data (text,
whole and finite numbers, lists, mappings with text as keys), so that a message crosses JSON and msgpack unchanged.

An *attempt* counts the starts of one stage; a message about any but the present one changes nothing. A *generation*
counts the plans of one request; a plan of an older one is refused. An *epoch* is the random name of one life of a
worker's process: who comes back with another has lost everything.
"""

from __future__ import annotations

from iegopt.control.commands import (
    COMMANDS,
    HOW,
    Answer,
    Command,
    Differs,
    Discard,
    Dismiss,
    Forget,
    Introduce,
    MakePlan,
    Release,
    Reserve,
    Start,
    Stop,
    Stream,
    WakeAt,
)
from iegopt.control.events import (
    CAUSES,
    EVENTS,
    ROLES,
    Accepted,
    Acknowledged,
    AttemptKey,
    Cancelled,
    Configured,
    Disconnected,
    Draining,
    Event,
    Failed,
    Finished,
    Heartbeat,
    OfAttempt,
    Planned,
    Preempted,
    Progress,
    Registered,
    ReservationRefused,
    Reserved,
    Restarted,
    Resumed,
    Submitted,
    Ticked,
    Waiting,
)

__all__ = [
    "CAUSES",
    "COMMANDS",
    "EVENTS",
    "HOW",
    "ROLES",
    "Accepted",
    "Acknowledged",
    "Answer",
    "AttemptKey",
    "Cancelled",
    "Command",
    "Configured",
    "Differs",
    "Discard",
    "Disconnected",
    "Dismiss",
    "Draining",
    "Event",
    "Failed",
    "Finished",
    "Forget",
    "Heartbeat",
    "Introduce",
    "MakePlan",
    "Message",
    "OfAttempt",
    "Planned",
    "Preempted",
    "Progress",
    "Registered",
    "Release",
    "ReservationRefused",
    "Reserve",
    "Reserved",
    "Restarted",
    "Resumed",
    "Start",
    "Stop",
    "Stream",
    "Submitted",
    "Ticked",
    "Waiting",
    "WakeAt",
]

Message = Event | Command
