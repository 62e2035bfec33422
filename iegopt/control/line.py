"""The stages that wait for a worker, in a line for each place; only what has changed is looked at.

A stage is looked at when it begins to wait and whenever something of its own has changed: its plan, the time of its
next try. If its place has no room it stays in the line of that place, the most urgent first, and the line is looked at
when a slot is free there, or when something there may give way. After workers came or went everybody is looked at.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from iegopt.control.pool import Place

__all__ = ["Line", "Urgency", "Waiting"]

Waiting = tuple[str, str]
"""A request and a stage of it."""

Urgency = tuple[int, bool, float, int, str]
"""Priority first, then who was preempted, then who waits longest."""


@dataclass
class Line:
    """``fresh`` are to be looked at themselves, ``stirred`` are places whose line is.

    An entry of a heap counts only if ``standing`` says the same of its stage; others lie there until they come up.
    """

    fresh: dict[Waiting, None] = field(default_factory=dict)
    stirred: dict[Place, None] = field(default_factory=dict)
    standing: dict[Waiting, tuple[Place, Urgency]] = field(default_factory=dict)
    heaps: dict[Place, list[tuple[Urgency, Waiting]]] = field(default_factory=dict)

    def stand(self, who: Waiting, place: Place, urgency: Urgency) -> None:
        """Join the line of a place, which is to be looked at."""
        if self.standing.get(who) != (place, urgency):
            self.back(place, (urgency, who))
        self.stirred[place] = None

    def leave(self, who: Waiting) -> None:
        self.fresh.pop(who, None)
        self.standing.pop(who, None)

    def stir(self, place: Place) -> None:
        """Something at a place has changed."""
        if place in self.heaps:
            self.stirred[place] = None

    def first(self, place: Place) -> tuple[Urgency, Waiting] | None:
        """Take the most urgent out of the line of a place, ``None`` where nobody stands there."""
        heap = self.heaps.get(place, [])
        while heap:
            entry = heapq.heappop(heap)
            if self.standing.get(entry[1]) == (place, entry[0]):
                del self.standing[entry[1]]
                return entry
        self.heaps.pop(place, None)
        return None

    def back(self, place: Place, entry: tuple[Urgency, Waiting]) -> None:
        """Put one back that was taken out, for as long as nothing changes."""
        urgency, who = entry
        self.standing[who] = place, urgency
        heapq.heappush(self.heaps.setdefault(place, []), entry)

    def clear(self) -> None:
        for part in (self.fresh, self.stirred, self.standing, self.heaps):
            part.clear()
