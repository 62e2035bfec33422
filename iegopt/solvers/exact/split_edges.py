"""Edges that close cycles as a beam meets them: their cost, and what of it the bound of the node knows already."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.links import Link
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pricing import Priced

__all__ = ["SplitEdges"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class SplitEdges:
    """Of one node: ``column`` in ``priced``, with the options ``keep`` (n,)."""

    def __init__(self, c: Candidates, priced: Priced, column: int, keep: Bools) -> None:
        self._c, self._priced, self._column, self._keep = c, priced, column, keep

    def link(self, edge: int, near: int) -> tuple[Link, bool, Ints, Ints]:
        """What an edge costs the node; whether it leads from stage ``near``; its parts over near and far options."""
        c, column = self._c, self._column
        split = self._priced.split[c.reduction.dropped.index(edge)]
        link = self._priced.passed.link(edge).of_node(column)
        part = np.ascontiguousarray(split[:, column])
        keep = self._keep[c.of[c.ends[edge][0]]]
        rest = np.ascontiguousarray(link.send(np.where(keep, -part, UNREACHABLE)[:, None], True)[:, 0])
        return (link, True, part, rest) if c.ends[edge][0] == near else (link, False, rest, part)
