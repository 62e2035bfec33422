"""The controller's clock: seconds that go on where the journal ended, and never back."""

from __future__ import annotations

import time
from collections.abc import Callable

__all__ = ["ControllerClock"]


class ControllerClock:
    """Wall time at the start, or a moment after the journal's last event where the wall clock was set back; from there
    on it counts monotonic seconds."""

    def __init__(
        self,
        last: float = 0.0,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._offset = max(wall(), last) - monotonic()

    def __call__(self) -> float:
        return self._monotonic() + self._offset
