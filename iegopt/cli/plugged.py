"""Commands that other packages add, found by entry points: iegopt itself imports nothing of them.

``iegopt.commands`` names modules with ``add_commands(commands)``; ``iegopt.models`` such with ``add_actions(actions)``
for ``iegopt models``. A module is loaded when the command line is built, so it imports what is heavy in its handlers.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import entry_points
from types import ModuleType

__all__ = ["plugged"]


def plugged(group: str) -> Iterator[ModuleType]:
    """The modules of a group, in the order of their names."""
    found = {point.value: point for point in entry_points(group=group)}  # once, where a package is installed twice
    for point in sorted(found.values(), key=lambda point: point.name):
        yield point.load()
