"""Who may say what: the messages that a frame of a worker or a client may be."""

from __future__ import annotations

from iegopt.control import messages
from iegopt.control.documents import read
from iegopt.control.messages import Event
from iegopt.errors import InputError
from iegopt_runtime.net.frames import Frame

__all__ = ["event_of_client", "event_of_worker"]

_OF_CLIENT = (messages.Submitted, messages.Cancelled, messages.Acknowledged)
_OF_WORKER = (
    messages.Registered, messages.Heartbeat, messages.Draining, messages.Accepted, messages.Waiting, messages.Resumed,
    messages.Progress, messages.Finished, messages.Failed, messages.Preempted, messages.Reserved,
    messages.ReservationRefused,
)  # fmt: skip


def event_of_worker(frame: Frame, name: str, at: float) -> Event:
    """What a worker says.

    Raises
    ------
    InputError
        Where it is no message of a worker, or of another than the one that has proven its name.
    """
    event = _event(frame, at, f"worker {name}")
    if not isinstance(event, _OF_WORKER):
        raise InputError(f"worker {name}: {type(event).__name__} is not for a worker to say")
    if event.worker != name:
        raise InputError(f"worker {name}: it speaks of itself as {event.worker}")
    return event


def event_of_client(frame: Frame, name: str, at: float) -> Event:
    """What a client says; raises as ``event_of_worker``."""
    event = _event(frame, at, f"client {name}")
    if not isinstance(event, _OF_CLIENT):
        raise InputError(f"client {name}: {type(event).__name__} is not for a client to say")
    return event


def _event(frame: Frame, at: float, source: str) -> Event:
    message = read({**frame, "at": at}, source)
    if not isinstance(message, Event):
        raise InputError(f"{source}: {type(message).__name__} is a command: expected an event")
    return message
