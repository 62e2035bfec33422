"""The passes of ``sweeps.py`` and the subgradient by kernels, where all links are tables (``node_kernels.py``)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.links import Link, TableLink
from iegopt.solvers.exact.reduction import Reduction

__all__ = ["Slots", "TablePasses"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
_Pair = tuple[int, int]


@dataclass(frozen=True, eq=False)
class Slots:
    """Where kernels find what belongs to stages, and to slots: slot 2·v + k is stage v with its k-th parent.

    Attributes
    ----------
    ptr (V + 1,), order (V,), parent (2V,)
        Options of stages; stages, parents first; −1 where a slot has none.
    first (2V + 1,), coupling, at, turned (2V,)
        Links of slots: the coupling of each, and where its flat table starts, a row for every option of the stage, or
        where it is turned, of the parent.
    whole (2V,)
        Where in the buffer of a node the table of a slot starts that is not one plain link; −1 for one that is.
    into, sent (V,)
        The slot of the two parents of a stage; where in the buffer of a node what it sends starts.
    """

    ptr: Ints
    order: Ints
    parent: Ints
    first: Ints
    coupling: Ints
    at: Ints
    turned: Ints
    whole: Ints
    into: Ints
    sent: Ints

    @cached_property
    def packed(self) -> tuple[Ints, ...]:
        """As kernels take them."""
        return (
            self.ptr, self.order, self.parent, self.first, self.coupling, self.at, self.turned, self.whole, self.into,
            self.sent,
        )  # fmt: skip


class TablePasses:
    """What a reduction over tables looks like to kernels.

    Parameters
    ----------
    of
        Per stage its slice of the candidates.
    links, ends
        As in ``Candidates``; tables wherever messages go.

    Attributes
    ----------
    slots, tables
        The layout; flat costs and times of pairs, the second empty where no limit in time asks for it.
    messages, wholes
        Cells of a node for all that stages send, and for all tables that are not one plain link.
    """

    def __init__(self, order: Reduction, of: Sequence[slice], links: Sequence[Link | None], ends: Sequence[_Pair]):
        self._order = order
        self._size = size = [part.stop - part.start for part in of]
        V = len(of)
        timed = any(isinstance(link, TableLink) and link.time is not None for link in links)
        parent, turned, whole = [-1] * (2 * V), [0] * (2 * V), [-1] * (2 * V)
        first, coupling, costs, times = [0], [], [], []
        self.wholes = 0
        for v, parents in enumerate(order.parents):
            for k, p in enumerate(parents):
                slot, own = 2 * v + k, order.between[p, v]
                parent[slot] = p
                plain = len(own) == 1 and (p, v) not in order.pairs and not (timed and len(parents) == 2)
                if not plain:
                    whole[slot] = self.wholes
                    self.wholes += size[p] * size[v]
                turned[slot] = int(plain and len(parents) == 1 and ends[own[0]][0] == p)
                for e in own:
                    link = links[e]
                    assert isinstance(link, TableLink)
                    turn = ends[e][0] == p and not turned[slot]
                    costs.append(_flat(link.table, turn))
                    if timed:
                        times.append(_flat(np.zeros_like(link.table) if link.time is None else link.time, turn))
                    coupling.append(e)
                first.append(len(coupling))
            first += [len(coupling)] * (2 - len(parents))
        into = [2 * own[1] + order.parents[own[1]].index(own[0]) if len(own) == 2 else -1 for own in order.parents]
        cells = [math.prod(size[p] for p in own) if own else 0 for own in order.parents]
        self.messages = sum(cells)
        ints = [
            [0, *_stops(size)], order.order, parent, first, coupling, [0, *_stops(map(len, costs))][: len(coupling)],
            turned, whole, into, [0, *_stops(cells)][:V],
        ]  # fmt: skip
        self.slots = Slots(*(np.array(each, dtype=np.int64) for each in ints))
        self._sent, self._whole, self._at, self._first = ints[9], whole, ints[5], first
        none = np.zeros(0, dtype=np.int64)
        self.tables = np.concatenate([none, *costs]), np.concatenate([none, *times])

    def buffers(self, nodes: int) -> tuple[Ints, Ints, Ints]:
        """For θ with what came from below, what stages send, and the tables that are not one plain link, of B nodes."""
        sizes = sum(self._size), self.messages, self.wholes
        n, messages, wholes = (np.empty((nodes, cells), dtype=np.int64) for cells in sizes)
        return n, messages, wholes

    def sent(self, buffer: Ints) -> Iterator[Ints | None]:
        """Per stage what it sent, as in ``Passed``."""
        for v, own in enumerate(self._order.parents):
            shape = [self._size[p] for p in reversed(own)]
            yield _view(buffer, self._sent[v], shape) if own else None

    def whole(self, buffer: Ints) -> dict[_Pair, Ints]:
        """The tables of pairs, as in ``Passed``."""
        tables = {}
        for v, own in enumerate(self._order.parents):
            for k, p in enumerate(own):
                slot, shape = 2 * v + k, [self._size[v], self._size[p]]
                if self._whole[slot] >= 0:
                    tables[p, v] = _view(buffer, self._whole[slot], shape)
                elif len(own) == 2:
                    tables[p, v] = _view(self.tables[0][None, :], self._at[self._first[slot]], shape)
        return tables


def _flat(table: Ints, turn: bool) -> Ints:
    return (table.T if turn else table).ravel()


def _stops(sizes: Iterator[int] | Sequence[int]) -> list[int]:
    total, stops = 0, []
    for size in sizes:
        total += size
        stops.append(total)
    return stops


def _view(buffer: Ints, start: int, shape: Sequence[int]) -> Ints:
    """Part of the buffers (B, …) of nodes, with axes in reverse and the nodes last."""
    part = buffer[:, start : start + math.prod(shape)].reshape(len(buffer), *shape)
    return part.transpose(*range(len(shape), 0, -1), 0)
