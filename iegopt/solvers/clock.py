"""One clock for everything inside a solve, and what a process can do to keep it."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

__all__ = ["Clock", "pressure", "punctual"]

_PROMPT = 0.25
"""Seconds of time limit up to which a pause of some milliseconds matters."""
_SWITCH = 2e-5
"""Seconds for which another thread may hold the interpreter while such a limit runs."""
_NEVER = 10**6
"""Threshold of collections of older objects while such a limit runs."""
_MOST_PRESSURE, _FRESH = 8.0, 0.5
"""Pressure at most, and the weight of the last call in it."""


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
        self.running = 0
        self.pressure = 1.0
        self.interval = 0.0
        self.thresholds = gc.get_threshold()

    def enter(self) -> None:
        with self.lock:
            if not self.running:
                self.interval, self.thresholds = sys.getswitchinterval(), gc.get_threshold()
                gc.set_threshold(self.thresholds[0], _NEVER, _NEVER)
                sys.setswitchinterval(min(self.interval, _SWITCH))
            self.running += 1

    def leave(self, wall: float, own: float) -> None:
        """``wall`` seconds have passed, of which the thread ran for ``own``."""
        with self.lock:
            ratio = min(_MOST_PRESSURE, max(1.0, wall / max(own, 1e-9)))
            self.pressure += _FRESH * (ratio - self.pressure)
            self.running -= 1
            if self.running:
                return
            sys.setswitchinterval(self.interval)
            gc.set_threshold(*self.thresholds)


_settings = _Settings()


@contextmanager
def punctual(limit: float | None) -> Iterator[None]:
    """Keep what the process itself does between two polls of the clock short, while a limit of at most 0.25 s runs.

    - The interpreter changes threads after 20 µs in place of 5 ms (``sys.setswitchinterval``): numpy lets go of the
      interpreter in every operation on large arrays, and a thread of pure Python would then keep it for 5 ms each time.
      Such threads get their share all the same; one inside an extension that holds the interpreter's lock cannot be
      interrupted by anybody.
    - Garbage collections of older objects, tens of milliseconds in a large program, wait until afterwards; those of
      young ones go on, since what is put off there comes in one piece at the end. Who wants no pause between calls
      either calls ``gc.freeze()`` once all is loaded, or turns collection off and collects between requests.

    Both hold for the whole process, and are as they were when the last such limit ends.

    Parameters
    ----------
    limit
        Seconds; ``None`` and longer ones change nothing.
    """
    if limit is None or limit > _PROMPT:
        yield
        return
    _settings.enter()
    wall, own = time.perf_counter(), time.thread_time()
    try:
        yield
    finally:
        _settings.leave(time.perf_counter() - wall, time.thread_time() - own)


def pressure() -> float:
    """How many times as long as on a core of its own a step of a short limit takes: as of late, at least 1.

    Other threads of the process, and other processes, take their share of the time between two polls of the clock.
    """
    return _settings.pressure
