"""One clock for everything inside a solve, and what a process can do to keep it."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Clock", "punctual"]

_PROMPT = 0.25
"""Seconds of time limit up to which a pause of some milliseconds matters."""
_SWITCH_SHARE, _SHORTEST_SWITCH = 0.02, 5e-5
"""Share of a time limit, and seconds at least, for which another thread may hold the interpreter."""


@dataclass(frozen=True)
class Clock:
    """Seconds since ``start`` (``time.perf_counter``), and how many are left of ``limit``."""

    limit: float
    start: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.start

    @property
    def left(self) -> float:
        return self.limit - self.seconds

    def slice(self, seconds: float) -> Clock:
        """A clock that ends ``seconds`` from now, or with this one."""
        now = self.seconds
        return Clock(min(self.limit, now + seconds), self.start)


class _Settings:
    """The process's settings while any limit runs: kept by the first to come, given back by the last to leave."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: list[float] = []
        self.interval = 0.0
        self.collects = False

    def enter(self, limit: float) -> None:
        with self.lock:
            if not self.running:
                self.interval, self.collects = sys.getswitchinterval(), gc.isenabled()
                gc.disable()
            self.running.append(limit)
            self._switch()

    def leave(self, limit: float) -> None:
        with self.lock:
            self.running.remove(limit)
            if self.running:
                self._switch()
                return
            sys.setswitchinterval(self.interval)
            if self.collects:
                gc.enable()

    def _switch(self) -> None:
        wanted = max(_SHORTEST_SWITCH, _SWITCH_SHARE * min(self.running))
        sys.setswitchinterval(min(self.interval, wanted))


_settings = _Settings()


@contextmanager
def punctual(limit: float | None) -> Iterator[None]:
    """Keep what the process itself does between two polls of the clock short, while a limit of at most 0.25 s runs.

    - The interpreter changes threads at a fiftieth of the limit in place of every 5 ms (``sys.setswitchinterval``):
      with other Python threads at work, each turn of theirs would be 5 ms late. They get their share all the same;
      a thread inside an extension that holds the interpreter's lock cannot be interrupted by anybody.
    - Garbage is collected afterwards: a full collection takes tens of milliseconds in a large program.

    Both hold for the whole process, and are as they were when the last such limit ends.

    Parameters
    ----------
    limit
        Seconds; ``None`` and longer ones change nothing.
    """
    if limit is None or limit > _PROMPT:
        yield
        return
    _settings.enter(limit)
    try:
        yield
    finally:
        _settings.leave(limit)
