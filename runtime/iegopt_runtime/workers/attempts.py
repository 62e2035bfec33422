"""The attempts that a worker runs or has ended, and what it says about them.

What has ended is kept until the controller says Forget: a controller that was away, or lost, asks for nothing twice and
misses nothing. Tokens streamed are kept likewise, so that a controller that comes back hears them from the first.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from iegopt.control.documents import plain
from iegopt.control.messages import AttemptKey
from iegopt.errors import SpecError
from iegopt_runtime.errors import WireError
from iegopt_runtime.net.frames import Frame, encode, fitting

__all__ = ["EndedAttempts", "RunningAttempt"]

_TOLD_AT_ONCE = 2**20
"""Bytes of results that a worker tells of its own accord when it comes back: the controller has most of them."""


@dataclass
class RunningAttempt:
    """An attempt as its executor sees it (``workers.executor.Attempt``), and what is to be said of it again."""

    key: AttemptKey
    worker: str
    send: Callable[[Frame], None]
    stop_wanted: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[Frame] | None = None
    _resource: str | None = None
    _since: float = field(default_factory=lambda: time.monotonic())
    _waited: float = 0.0
    _waits_since: float | None = None
    _offset: int = 0
    _tokens: list[int] = field(default_factory=list)
    _text: str = ""

    @property
    def request_id(self) -> str:
        return self.key.request_id

    @property
    def stage(self) -> str:
        return self.key.stage

    @property
    def number(self) -> int:
        return self.key.attempt

    def frame(self, kind: str, **fields: object) -> Frame:
        """A message about this attempt; the shell adds the time."""
        return {
            "type": kind, "worker": self.worker, "request_id": self.key.request_id, "stage": self.key.stage,
            "attempt": self.key.attempt, **fields,
        }  # fmt: skip

    def progress(self, offset: int, tokens: list[int], text: str) -> None:
        if not self._tokens:
            self._offset = offset
        self._tokens += tokens
        self._text += text
        self.send(self.frame("Progress", offset=offset, tokens=tokens, text=text))

    def last(self, kind: str, **fields: object) -> Frame:
        """The message that it has ended: with the seconds that it ran, waits left out."""
        now = time.monotonic()
        waits = self._waited + (now - self._waits_since if self._waits_since is not None else 0.0)
        return self.frame(kind, seconds=max(0.0, now - self._since - waits), **fields)

    def waiting(self, resource: str) -> None:
        self._resource = resource
        self._waits_since = self._waits_since or time.monotonic()
        self.send(self.frame("Waiting", resource=resource))

    def resumed(self) -> None:
        self._resource = None
        if self._waits_since is not None:
            self._waited += time.monotonic() - self._waits_since
            self._waits_since = None
        self.send(self.frame("Resumed"))

    def so_far(self) -> list[Frame]:
        """All that a controller must have heard of it."""
        said = [self.frame("Accepted")]
        if self._resource is not None:
            said.append(self.frame("Waiting", resource=self._resource))
        if self._tokens:
            said.append(self.frame("Progress", offset=self._offset, tokens=list(self._tokens), text=self._text))
        return said


class EndedAttempts:
    """The last message of each attempt that has ended."""

    def __init__(self) -> None:
        self._last: dict[AttemptKey, Frame] = {}

    def keep(self, attempt: RunningAttempt, last: Frame) -> Frame:
        """What is to be said of its end: ``last``, or that this cannot be said, which a controller would take for a
        broken worker."""
        with contextlib.suppress(MemoryError):  # it may well be said later
            try:
                encode(last)
                plain(last, f"stage {attempt.stage}", "end")
            except (WireError, SpecError) as error:
                last = attempt.last("Failed", cause="error", message=str(error)[:1000], transient=False)
        self._last[attempt.key] = last
        return last

    def get(self, key: AttemptKey) -> Frame | None:
        return self._last.get(key)

    def newest(self) -> list[Frame]:
        """The last ones, in their order, as far as one frame holds them. A start of any other is answered with it."""
        return fitting(reversed(self._last.values()), _TOLD_AT_ONCE)[::-1]

    def requests(self) -> set[str]:
        return {key.request_id for key in self._last}

    def forget(self, request_id: str) -> None:
        for key in [key for key in self._last if key.request_id == request_id]:
            del self._last[key]
