"""The topology tree as batched messages need it: children of every group in a table, and where two sites meet."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from iegopt.problem.topology import Topology
from iegopt.solvers.exact.tree_index import Level, tree_index

__all__ = ["SiteTree"]

Ints = npt.NDArray[np.int64]

_MOST_KEPT = 2048
"""Sites up to which the meeting links of all pairs are kept, 16 MB."""


class SiteTree:
    """A topology laid out for batched messages: children of every group as a padded table."""

    def __init__(self, topology: Topology) -> None:
        index = tree_index(topology)
        self.S = topology.S
        self.position = index.position
        self.levels = index.levels
        self.flat = index.flat
        counts = [self.S, *(len(level.start) for level in index.levels)]
        self.children = [_padded(level, below) for level, below in zip(self.levels, counts, strict=False)]

    def meeting(self, near: Ints, far: Ints) -> npt.NDArray[np.int32]:
        """Number of the link over which positions (broadcast) meet, counted through the levels from 1; 0 at home."""
        if self.S <= _MOST_KEPT:
            return np.asarray(self._kept[near, far])
        meeting: npt.NDArray[np.int32] = np.zeros(np.broadcast_shapes(near.shape, far.shape), dtype=np.int32)
        offset = 1 + sum(len(level.latency) for level in self.levels)
        for level in reversed(self.levels):
            offset -= len(level.latency)
            group = level.of_site[near]
            link = offset + (group if len(level.latency) > 1 else np.zeros_like(group))
            meeting = np.where(group == level.of_site[far], link, meeting).astype(np.int32)
        meeting[np.broadcast_to(near == far, meeting.shape)] = 0
        return meeting

    @cached_property
    def _kept(self) -> npt.NDArray[np.int32]:
        """(S, S), filled from the widest level down: the sites of a group are a slice."""
        kept = np.zeros((self.S, self.S), dtype=np.int32)
        offset = 1 + sum(len(level.latency) for level in self.levels)
        for level in reversed(self.levels):
            offset -= len(level.latency)
            for group, (first, stop) in enumerate(pairwise(level.first.tolist())):
                kept[first:stop, first:stop] = offset + (group if len(level.latency) > 1 else 0)
        np.fill_diagonal(kept, 0)
        return kept


def _padded(level: Level, below: int) -> tuple[Ints, Ints]:
    """(fan-out, G) children of every group, padded with ``below``; (children,) the slot of each in the flat table."""
    count = np.diff(level.start, append=below)
    groups, fan_out = len(count), int(count.max())
    step = np.arange(below) - np.repeat(level.start, count)
    table = np.full((fan_out, groups), below)
    table[step, level.parent] = np.arange(below)
    return table, step * groups + level.parent
