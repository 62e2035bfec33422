"""One clock for everything inside a solve."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

__all__ = ["Clock"]


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
