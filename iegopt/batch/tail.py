"""What comes after the search, the answer and its verification, and how long it takes: as long as of late."""

from __future__ import annotations

from threading import Lock

from iegopt.batch.model import BatchModel

__all__ = ["Tail"]

PLACED, WAITING, RUNNING, INSTANCE = 1.8e-4, 8e-5, 8e-5, 8e-5
"""Seconds of each, measured on one core of a busy server; only their ratios matter once a plan has been made."""
MARGIN = 1.15
"""What is kept back for every second expected."""
SLOWEST = 8.0
"""How many times as long as those figures it is ever taken to last: one call that was held up says little."""


class Tail:
    """Seconds after the search, learnt from plan to plan; threads may share one."""

    def __init__(self) -> None:
        self._pace, self._lock = 1.0, Lock()

    def seconds(self, model: BatchModel, placed: int) -> float:
        """To be kept back for a plan that places so many."""
        return MARGIN * self._pace * _units(model, placed)

    @property
    def each(self) -> float:
        """What one more that is placed takes."""
        return MARGIN * self._pace * (PLACED - WAITING)

    def learn(self, model: BatchModel, placed: int, seconds: float) -> None:
        """A plan took so long: at once where that is longer than thought, half of the way where it is less."""
        pace = min(SLOWEST, seconds / max(1e-4, _units(model, placed)))
        with self._lock:
            self._pace = max(pace, 0.5 * (self._pace + pace))


def _units(model: BatchModel, placed: int) -> float:
    return PLACED * placed + WAITING * (model.N - placed) + RUNNING * model.R + INSTANCE * model.J
