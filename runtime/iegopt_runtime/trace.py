"""What happened when, in the Trace Event Format that Chrome and Perfetto read.

A row per worker, with a slice for each attempt of a stage and marks for what befell it; a row per request, with its
plans. Format: "Trace Event Format" (Google, 2016), events of phase X, i and M; times in microseconds.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from iegopt.control import messages
from iegopt.control.messages import Command, Event
from iegopt.errors import InputError
from iegopt.files import write_whole

__all__ = ["Trace"]

_GROUPS = {"requests": 1, "workers": 2}
_ENDS = (messages.Finished, messages.Failed, messages.Preempted)
_MARKS = (messages.Waiting, messages.Resumed, messages.Reserved, messages.ReservationRefused)


class Trace:
    """Collects events of a shell (``Shell.watch``)."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._rows: dict[tuple[str, str], int] = {}
        self._open: dict[tuple[str, str, int], tuple[float, int]] = {}
        self._tokens: dict[tuple[str, str, int], int] = {}
        self._planning: dict[tuple[str, int], tuple[float, str]] = {}

    def watch(self, event: Event, commands: tuple[Command, ...]) -> None:
        """Take in an event and what followed from it."""
        if isinstance(event, messages.Accepted):
            self._lost(event)
            self._open.setdefault(_key(event), (event.at, self._row("workers", event.worker)))
        elif isinstance(event, messages.Progress):
            self._tokens[_key(event)] = self._tokens.get(_key(event), 0) + len(event.tokens)
        elif isinstance(event, _ENDS):
            self._ended(event)
        elif isinstance(event, _MARKS):
            details = {"stage": event.stage}
            self._mark(type(event).__name__, event.at, self._row("workers", event.worker), details)
        elif isinstance(event, messages.Disconnected):
            self._mark("Disconnected", event.at, self._row("workers", event.worker), {})
        elif isinstance(event, messages.Planned):
            self._planned(event)
        for command in commands:
            if isinstance(command, messages.MakePlan):
                self._planning[command.request_id, command.generation] = (event.at, command.reason)
            elif isinstance(command, messages.Answer):
                row = self._row("requests", command.request_id)
                self._mark(f"answer: {command.answer['status']}", event.at, row, {"reason": command.answer["reason"]})

    def _ended(self, event: messages.Finished | messages.Failed | messages.Preempted) -> None:
        begun, row = self._open.pop(_key(event), (event.at, self._row("workers", event.worker)))
        begun = min(begun, event.at - (event.seconds or 0.0))  # short ones are accepted without a word, others late
        details: dict[str, Any] = {
            "request": event.request_id, "attempt": event.attempt, "tokens": self._tokens.pop(_key(event), 0),
            "ended": type(event).__name__,
        }  # fmt: skip
        if isinstance(event, messages.Failed):
            details |= {"cause": event.cause, "message": event.message}
        self._slice(event.stage, begun, event.at, row, details)

    def _lost(self, event: messages.Accepted) -> None:
        """Earlier attempts of a stage that begins anew ended without a word, with their worker."""
        for key in [key for key in self._open if key[:2] == (event.request_id, event.stage) and key[2] < event.attempt]:
            begun, row = self._open.pop(key)
            tokens = self._tokens.pop(key, 0)
            details = {"request": key[0], "attempt": key[2], "tokens": tokens, "ended": "lost"}
            self._slice(event.stage, begun, event.at, row, details)

    def _planned(self, event: messages.Planned) -> None:
        asked = self._planning.pop((event.request_id, event.generation), None)
        if asked is not None:
            row = self._row("requests", event.request_id)
            details = {"reason": asked[1], "answer": event.reason or "a plan"}
            self._slice(f"plan {event.generation}", asked[0], event.at, row, details)

    def _row(self, group: str, name: str) -> int:
        row = self._rows.get((group, name))
        if row is None:
            row = self._rows[group, name] = len(self._rows) + 1
            about = {"ph": "M", "pid": _GROUPS[group], "tid": row}
            self._events.append(about | {"name": "process_name", "args": {"name": group}})
            self._events.append(about | {"name": "thread_name", "args": {"name": name}})
        return row

    def _place(self, row: int) -> dict[str, int]:
        group = next(group for (group, _), number in self._rows.items() if number == row)
        return {"pid": _GROUPS[group], "tid": row}

    def _slice(self, name: str, begin: float, end: float, row: int, details: dict[str, Any]) -> None:
        times = {"ts": begin * 1e6, "dur": (end - begin) * 1e6}
        self._events.append({"ph": "X", "name": name, **self._place(row), **times, "args": details})

    def _mark(self, name: str, at: float, row: int, details: dict[str, Any]) -> None:
        self._events.append({"ph": "i", "s": "t", "name": name, **self._place(row), "ts": at * 1e6, "args": details})

    def document(self) -> dict[str, Any]:
        """The trace as one JSON object, its times from the first event on."""
        first = min((event["ts"] for event in self._events if "ts" in event), default=0.0)
        moved = [event | {"ts": event["ts"] - first} if "ts" in event else event for event in self._events]
        return {"traceEvents": moved, "displayTimeUnit": "ms"}

    def write(self, file: Path) -> None:
        """
        Raises
        ------
        InputError
            Where the file cannot be written.
        """
        try:
            write_whole(file, json.dumps(self.document()))
        except OSError as error:
            raise InputError(f"{file}: cannot be written: {error.strerror}") from error


def _key(event: Any) -> tuple[str, str, int]:
    return event.request_id, event.stage, event.attempt
