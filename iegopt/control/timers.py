"""What is due when: a heap of times with keys, where a key has one time at most."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

__all__ = ["Key", "Timers"]

Key = tuple[str, ...]
"""What the timer is for, then its ids: ``("worker", "w1")``."""

_LEFT_TO_LIE = 1000
"""Entries of the heap beyond twice those that count, above which it is made anew."""


@dataclass
class Timers:
    """Equal where the same keys are due at the same times; entries of the heap that were set anew are left to lie."""

    times: dict[Key, float] = field(default_factory=dict)
    heap: list[tuple[float, Key]] = field(default_factory=list, compare=False)

    def __post_init__(self) -> None:
        self._sort()

    def _sort(self) -> None:
        self.heap = [(at, key) for key, at in self.times.items()]
        heapq.heapify(self.heap)

    def set(self, key: Key, at: float) -> None:
        """Set a timer, or set it anew."""
        if self.times.get(key) != at:
            self.times[key] = at
            heapq.heappush(self.heap, (at, key))

    def clear(self, *keys: Key) -> None:
        for key in keys:
            self.times.pop(key, None)
        if len(self.heap) > _LEFT_TO_LIE + 2 * len(self.times):
            self._sort()

    def next(self) -> float | None:
        """When the earliest is due."""
        while self.heap and self.times.get(self.heap[0][1]) != self.heap[0][0]:
            heapq.heappop(self.heap)
        return self.heap[0][0] if self.heap else None

    def pop(self, now: float) -> Key | None:
        """The earliest that is due, ties by key; it is cleared."""
        at = self.next()
        if at is None or at > now:
            return None
        key = heapq.heappop(self.heap)[1]
        del self.times[key]
        return key
