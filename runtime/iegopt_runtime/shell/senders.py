"""Who may say what: the messages that a frame of a worker or a client may be."""

from __future__ import annotations

from iegopt.control import messages
from iegopt.control.documents import read
from iegopt.control.messages import Event
from iegopt.errors import InputError
from iegopt.units import shown
from iegopt_runtime.net.frames import Frame

__all__ = ["asked_by_client", "event_of_client", "event_of_worker"]

_ASKED = ("Follow", "State")
"""What a client asks the shell itself."""

_OF_CLIENT = (messages.Submitted, messages.Cancelled, messages.Acknowledged)
_OF_WORKER = (
    messages.Progress, messages.Finished, messages.Accepted, messages.Heartbeat, messages.Registered, messages.Draining,
    messages.Waiting, messages.Resumed, messages.Failed, messages.Preempted, messages.Reserved,
    messages.ReservationRefused,
)  # fmt: skip
"""Looked through in this order: what is said most often comes first."""
_WORDS_OF_WORKER = tuple(message.__name__ for message in _OF_WORKER)


def event_of_worker(frame: Frame, name: str, at: float) -> Event:
    """What a worker says.

    Raises
    ------
    InputError
        Where it is no message of a worker, or of another than the one that has proven its name.
    """
    if frame.get("type") not in _WORDS_OF_WORKER:
        raise InputError(f"worker {name}: {shown(frame.get('type'))} is not for a worker to say")
    event = _event(frame, at, f"worker {name}")
    assert isinstance(event, _OF_WORKER)
    if event.worker != name:
        raise InputError(f"worker {name}: it speaks of itself as {shown(event.worker)}")
    return event


def event_of_client(frame: Frame, name: str, at: float) -> Event:
    """What a client says that changes something; raises as ``event_of_worker``."""
    words = [message.__name__ for message in _OF_CLIENT]
    if frame.get("type") not in words:
        expected = f"expected {', '.join((*words, _ASKED[0]))} or {_ASKED[1]}"
        raise InputError(f"client {name}: {shown(frame.get('type'))} is not for a client to say: {expected}")
    return _event(frame, at, f"client {name}")


def asked_by_client(frame: Frame, name: str) -> str | None:
    """Whose answer a client wants to follow, ``""`` where it asks for the state; ``None`` for anything else.

    Raises
    ------
    InputError
        It does not say whose.
    """
    if frame.get("type") == "State":
        return ""
    if frame.get("type") != "Follow":
        return None
    request_id = frame.get("request_id")
    if not isinstance(request_id, str) or not request_id:
        raise InputError(f"client {name}: Follow: request_id: {shown(request_id)}: expected the id of a request")
    return request_id


def _event(frame: Frame, at: float, source: str) -> Event:
    frame["at"] = at
    message = read(frame, source)
    assert isinstance(message, Event)
    return message
