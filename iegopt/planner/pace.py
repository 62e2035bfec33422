"""What a step of a planner takes, learnt from the times it was taken."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace"]

_QUICKEST, _SLOWEST = 0.7, 4.0


@dataclass
class Pace:
    """Seconds of a step: ``least``, and ``each`` more for every stage, times a factor that is learnt.

    A step that has lain idle is slower by as much for few stages as for many, and one on a slower processor by a share,
    so that a factor errs less than seconds per stage would where few and many stages take turns.

    Attributes
    ----------
    fresh
        Weight of the last time in what is expected of the next.
    """

    least: float
    each: float
    fresh: float = 0.2
    factor: float = 1.0

    def seconds(self, stages: int) -> float:
        """What it will take for so many stages."""
        return self.factor * (self.least + self.each * stages)

    def learn(self, seconds: float, stages: int) -> None:
        """It took so long: slower ones count as much as quicker ones."""
        self._set(self.factor + self.fresh * (seconds / (self.least + self.each * stages) - self.factor))

    def learn_slowest(self, seconds: float, stages: int) -> None:
        """It took so long: slower ones count at once, and are forgotten slowly."""
        self._set(max(seconds / (self.least + self.each * stages), (1.0 - self.fresh) * self.factor))

    def forget(self) -> None:
        """It was not begun for want of time: else slow ones would be the last that are measured."""
        self._set((1.0 - self.fresh) * self.factor)

    def _set(self, factor: float) -> None:
        self.factor = min(_SLOWEST, max(factor, _QUICKEST))
