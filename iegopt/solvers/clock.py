"""One clock for everything inside a solve, and what a process can do to keep it."""

from __future__ import annotations

import gc
import sys
import threading
import time
from collections import deque
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

__all__ = ["Clock", "Slowness", "lag", "pressure", "punctual", "slowness"]

_PROMPT = 0.25
"""Seconds of time limit up to which a pause of some milliseconds matters."""
_SWITCH = 2e-5
"""Seconds for which another thread may hold the interpreter while such a limit runs."""
_YOUNG, _NEVER = 10**5, 10**6
"""Thresholds of collections of young and of older objects while such a limit runs."""
_MOST_PRESSURE, _MOST_SLOWNESS, _LAST_CALLS = 8.0, 4.0, 5
"""Pressure and slowness at most, and the calls that they are medians of: one that another process interrupted is no
pressure yet."""
_FORGOTTEN = 0.9
"""What is left of a slowness where a step was not begun for it."""


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
        self.ratios = deque([1.0] * _LAST_CALLS, maxlen=_LAST_CALLS)
        self.interval = 0.0
        self.thresholds = gc.get_threshold()

    def enter(self) -> None:
        with self.lock:
            if not self.running:
                self.interval, self.thresholds = sys.getswitchinterval(), gc.get_threshold()
                gc.set_threshold(max(self.thresholds[0], _YOUNG) if self.thresholds[0] else 0, _NEVER, _NEVER)
                sys.setswitchinterval(min(self.interval, _SWITCH))
            self.running += 1

    def leave(self, wall: float, own: float) -> None:
        """``wall`` seconds have passed, of which the thread ran for ``own``.

        Once the thresholds are as they were, the next object that is made sets off what waited: that is not to be one
        of ours (a ``with`` makes some when it is left).
        """
        self.lock.acquire()
        try:
            self.ratios.append(min(_MOST_PRESSURE, max(1.0, wall / max(own, 1e-9))))
            self.pressure = sorted(self.ratios)[_LAST_CALLS // 2]
            self.running -= 1
            if not self.running:
                sys.setswitchinterval(self.interval)
                gc.set_threshold(*self.thresholds)
        finally:
            self.lock.release()


_settings = _Settings()


class _Punctual:
    """A block with the settings of a short limit."""

    __slots__ = ("own", "wall")

    def __enter__(self) -> None:
        _settings.enter()
        self.wall, self.own = time.perf_counter(), time.thread_time()

    def __exit__(self, *_: object) -> None:
        _settings.leave(time.perf_counter() - self.wall, time.thread_time() - self.own)


_unchanged = nullcontext()


def punctual(limit: float | None) -> AbstractContextManager[None]:
    """Keep what the process itself does between two polls of the clock short, while a limit of at most 0.25 s runs.

    - The interpreter changes threads after 20 µs in place of 5 ms (``sys.setswitchinterval``): numpy lets go of the
      interpreter in every operation on large arrays, and a thread of pure Python would then keep it for 5 ms each time.
      Such threads get their share all the same; one inside an extension that holds the interpreter's lock cannot be
      interrupted by anybody.
    - Garbage collections wait until afterwards: of older objects, tens of milliseconds in a large program, and of young
      ones, up to a millisecond where the cache has lost them, as long as these are fewer than 100,000. Who wants no
      pause between calls either calls ``gc.freeze()`` once all is loaded, or turns collection off and collects between
      requests.

    Both hold for the whole process, and are as they were when the last such limit ends.

    Parameters
    ----------
    limit
        Seconds; ``None`` and longer ones change nothing.
    """
    return _unchanged if limit is None or limit > _PROMPT else _Punctual()


def pressure() -> float:
    """How many times as long as on a core of its own a step of a short limit takes: as of late, at least 1.

    Other threads of the process, and other processes, take their share of the time between two polls of the clock.
    """
    return _settings.pressure


class Slowness:
    """How many times as long as expected a step takes on this processor, learnt from its times: at least 1.

    The median of the last calls; one that is not begun for want of time counts as a little quicker, since else slow
    ones would be the last that are measured.
    """

    def __init__(self) -> None:
        self._last = deque([1.0] * _LAST_CALLS, maxlen=_LAST_CALLS)
        self.ratio = 1.0

    def learn(self, taken: float, expected: float) -> None:
        """Seconds on its core, in place of those expected."""
        self._add(taken / expected)

    def forget(self) -> None:
        """It was not begun."""
        self._add(_FORGOTTEN * self.ratio)

    def _add(self, ratio: float) -> None:
        self._last.append(min(_MOST_SLOWNESS, max(1.0, ratio)))
        self.ratio = sorted(self._last)[_LAST_CALLS // 2]


slowness = Slowness()
"""That of the check of an answer, for steps that are not measured themselves."""


def lag() -> float:
    """How many times as long as was measured on one core of a server a step takes here and now: at least 1."""
    return pressure() * slowness.ratio
