"""Where the time of a call went: its steps, garbage collections, and what the system took of it.

Steps are functions of the modules, wrapped while a ``Watch`` is open; each costs some tenths of a microsecond more.
"""

from __future__ import annotations

import functools
import gc
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Spent", "Watch"]

SCHEDSTAT = Path("/proc/thread-self/schedstat")


@dataclass
class Spent:
    """Of one call, in ms unless said otherwise.

    Attributes
    ----------
    waited
        The thread was ready to run and had no processor; 0 where the system does not say.
    worked
        Time of the thread on a processor.
    interrupted, faults
        How often the system took the processor away, and pages it had to find.
    collected
        Garbage collections.
    steps
        Of every step that was entered, with the steps inside it.
    """

    ms: float = 0.0
    waited: float = 0.0
    worked: float = 0.0
    interrupted: int = 0
    faults: int = 0
    collected: float = 0.0
    steps: dict[str, float] = field(default_factory=dict)


class Watch:
    """Watches calls, one at a time; ``steps`` are (class or module, name of its function)."""

    def __init__(self, steps: Sequence[tuple[Any, str]] = ()) -> None:
        self._spent = Spent()
        self._collecting = 0.0
        for owner, name in steps:
            setattr(owner, name, self._timed(getattr(owner, name), name.strip("_")))
        gc.callbacks.append(self._on_collection)

    def call(self, function: Callable[[], Any]) -> tuple[Any, Spent]:
        """What it returned, and what it took."""
        spent = self._spent = Spent()
        before, waited, worked = resource.getrusage(resource.RUSAGE_THREAD), _waited(), time.thread_time()
        start = time.perf_counter()
        answer = function()
        spent.ms = (time.perf_counter() - start) * 1e3
        collected = spent.collected  # what comes from here on is not the call's
        self._spent = Spent()
        spent.collected = collected
        spent.worked = (time.thread_time() - worked) * 1e3
        spent.waited = _waited() - waited
        after = resource.getrusage(resource.RUSAGE_THREAD)
        spent.interrupted, spent.faults = after.ru_nivcsw - before.ru_nivcsw, after.ru_minflt - before.ru_minflt
        return answer, spent

    def _timed(self, function: Callable[..., Any], name: str) -> Callable[..., Any]:
        @functools.wraps(function)
        def timed(*arguments: Any, **more: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*arguments, **more)
            finally:
                steps = self._spent.steps
                steps[name] = steps.get(name, 0.0) + (time.perf_counter() - start) * 1e3

        return timed

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._collecting = time.perf_counter()
        else:
            self._spent.collected += (time.perf_counter() - self._collecting) * 1e3


def _waited() -> float:
    try:
        return int(SCHEDSTAT.read_text(encoding="ascii").split()[1]) / 1e6
    except OSError:
        return 0.0
