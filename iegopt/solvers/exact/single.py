"""The messages of ``sweeps.py`` for one node over tables alone: the root of most searches, where every call counts.

The same numbers with fewer and smaller operations: one axis less, and tables that are put together once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.links import Link, TableLink
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.reduction import Reduction

__all__ = ["OneNode", "SingleNode", "least_between"]

Ints = npt.NDArray[np.int64]
_Pair = tuple[int, int]

_BLOCK = 1 << 15
"""Cells of a table over three stages that are worked out at a time: what stays in the cache."""


@dataclass(frozen=True, eq=False)
class OneNode:
    """Messages of one evaluation: ``upward``, ``sent`` and ``tables`` as in ``Passed``, without the axis of nodes."""

    upward: list[Ints]
    sent: list[Ints | None]
    tables: dict[_Pair, Ints]


class SingleNode:
    """The passes over the candidates of a reduction whose links are tables.

    Parameters
    ----------
    of
        Per stage its slice of the candidates.

    Attributes
    ----------
    table
        Per pair of a stage with one that it is taken onto (options of that, options of it) what its links cost.
    """

    def __init__(
        self, order: Reduction, of: Sequence[slice], links: Sequence[Link | None], ends: Sequence[_Pair]
    ) -> None:
        self._order, self._of = order, of
        self.table: dict[_Pair, Ints] = {}
        for (p, v), couplings in order.between.items():
            for e in couplings:
                link = links[e]
                assert isinstance(link, TableLink)
                own = link.table if ends[e][0] == p else link.table.T
                known = self.table.get((p, v))
                self.table[p, v] = own if known is None else np.minimum(known + own, UNREACHABLE)

    @staticmethod
    def fits(links: Sequence[Link | None], order: Reduction) -> bool:
        """Whether links are tables wherever messages go."""
        return all(isinstance(links[e], TableLink) for own in order.between.values() for e in own)

    def up(self, theta: Ints) -> OneNode:
        """The way up from θ (n,), at most ``UNREACHABLE``, which becomes what every stage knows then."""
        order = self._order
        upward = [theta[part] for part in self._of]
        sent: list[Ints | None] = [None] * len(upward)
        tables: dict[_Pair, Ints] = {}
        message: Ints
        for v in reversed(order.order):
            parents = order.parents[v]
            if len(parents) == 1:
                p = parents[0]
                message = np.minimum.reduce(self._between(p, v, tables) + upward[v], axis=1)
                np.minimum(message, UNREACHABLE, out=message)
                sent[v] = message
                upward[p] += message
                np.minimum(upward[p], UNREACHABLE, out=upward[p])
            elif parents:
                p, q = parents
                near = np.minimum(self._between(p, v, tables) + upward[v], UNREACHABLE)
                message = least_between(near, self._between(q, v, tables).T)
                sent[v] = message
                known = tables.get((p, q))
                tables[p, q] = message if known is None else np.minimum(known + message, UNREACHABLE)
        for pair in tables.keys() & self.table.keys():
            tables[pair] = np.minimum(tables[pair] + self.table[pair], UNREACHABLE)
        return OneNode(upward, sent, tables)

    def choose(self, node: OneNode) -> tuple[int, list[int]]:
        """The least cost, and the options, counted within their stage, that attain it."""
        order = self._order
        least, chosen = 0, [0] * len(self._of)
        for v in order.order:
            total = node.upward[v]
            for p in order.parents[v]:
                total = total + self._complete(p, v, node.tables)[chosen[p]]
            chosen[v] = int(total.argmin())
            if not order.parents[v]:
                least += int(total[chosen[v]])
        return least, chosen

    def beliefs(self, node: OneNode) -> Ints:
        """(n,) least cost of any plan that uses an option."""
        order = self._order
        belief = list(node.upward)
        joint: dict[_Pair, Ints] = {}
        root: dict[int, int] = {}
        least: dict[int, int] = {}
        for v in order.order:
            parents, up = order.parents[v], node.sent[v]
            root[v] = root[parents[0]] if parents else v
            if not parents:
                least[v] = int(belief[v].min())
                continue
            assert up is not None
            near = self._complete(parents[0], v, node.tables)
            if len(parents) == 1:
                p = parents[0]
                rest = np.minimum(belief[p] - up, UNREACHABLE)
                if (p, v) in order.pairs:
                    joint[p, v] = np.minimum(np.minimum(near + rest[:, None], UNREACHABLE) + belief[v], UNREACHABLE)
                    belief[v] = joint[p, v].min(axis=0)
                else:
                    message = np.minimum((near + rest[:, None]).min(axis=0), UNREACHABLE)
                    belief[v] = np.minimum(message + belief[v], UNREACHABLE)
                continue
            p, q = parents
            rest = np.minimum(joint[p, q] - up, UNREACHABLE)
            far = self._complete(q, v, node.tables)
            of_near = least_between(rest, far)
            pairs = np.minimum(np.minimum(near + of_near, UNREACHABLE) + belief[v], UNREACHABLE)
            if (p, v) in order.pairs:
                joint[p, v] = pairs
            if (q, v) in order.pairs:
                of_far = least_between(rest.T, near)
                joint[q, v] = np.minimum(np.minimum(far + of_far, UNREACHABLE) + belief[v], UNREACHABLE)
            belief[v] = pairs.min(axis=0)
        total = sum(min(value, UNREACHABLE // len(least)) for value in least.values())
        if len(least) == 1:
            return np.concatenate(belief)
        return np.concatenate([np.minimum(own + (total - least[root[v]]), UNREACHABLE) for v, own in enumerate(belief)])

    def _between(self, parent: int, stage: int, tables: dict[_Pair, Ints]) -> Ints:
        """What a pair costs by its links and by what was taken onto it so far."""
        own, known = self.table.get((parent, stage)), tables.get((parent, stage))
        if known is None:
            assert own is not None
            return own
        return known if own is None else np.minimum(known + own, UNREACHABLE)

    def _complete(self, parent: int, stage: int, tables: dict[_Pair, Ints]) -> Ints:
        table = tables.get((parent, stage))
        return self.table[parent, stage] if table is None else table


def least_between(near: Ints, far: Ints) -> Ints:
    """(a, b) min over o of near (a, o) + far (o, b), at most ``UNREACHABLE``."""
    a, o = near.shape
    b = far.shape[1]
    least: Ints = np.empty((a, b), dtype=np.int64)
    step = max(1, _BLOCK // (o * b))
    inner = o > b  # minima are quick along whole blocks of memory: of b or of o
    if inner:
        near, far = np.ascontiguousarray(near), np.ascontiguousarray(far.T)
    for start in range(0, a, step):
        part = slice(start, start + step)
        if inner:
            (near[part, None] + far[None]).min(axis=2, out=least[part])
        else:
            (near[part, :, None] + far[None]).min(axis=1, out=least[part])
    return np.minimum(least, UNREACHABLE, out=least)
