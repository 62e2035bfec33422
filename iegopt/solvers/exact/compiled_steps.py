"""The steps of a beam by compiled kernels (``beam_kernels.py``, ``edge_kernels.py``), as in ``plain_steps.py``."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.compiled import as_ints
from iegopt.solvers.exact.links import LevelLink, Link, TableLink
from iegopt.solvers.exact.partial_plans import Course, Memory, rest_of_penalty
from iegopt.solvers.exact.pricing import Priced
from iegopt.solvers.exact.split_edges import SplitEdges

__all__ = ["CompiledSteps"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


class CompiledSteps:
    """Attributes and methods as those of ``PlainSteps``; for candidates without limits in time."""

    def __init__(
        self, core: SimpleNamespace, c: Candidates, priced: Priced, column: int, keep: Bools, way: Course
    ) -> None:
        self._core, self._c, self._passed, self._column, self._way = core, c, priced.passed, column, way
        self._split = SplitEdges(c, priced, column, keep)
        self._memory = Memory(c, way.order)
        # A column of free memory for each device that plans use so far and that the stages to come could overfill.
        self._free, self._used = np.full((1, 1), NO_LIMIT), np.zeros(0, dtype=np.int64)
        self._place = np.full(len(c.capacity), -1)
        self._devices, self._none = as_ints(c.devices), np.zeros(len(c.option), dtype=np.int64)
        self.chosen = np.zeros((1, c.V), dtype=np.int64)
        self.score, self.spent = np.full(1, int(priced.bound[column])), np.zeros(1, dtype=np.int64)
        self._group, self._first = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)

    def columns(self, place: int) -> int:
        return int(np.count_nonzero(self._memory.later[place][self._used]))

    def extend(self, place: int, upper: int, most: int, narrow: int) -> tuple[int, bool]:
        memory, v = self._memory, self._way.order[place]
        self._need = memory.need(self.chosen, self._first, self._way.order[:place], v)
        self._plan, self._option, score, cut, over = self._core.extend_plans(
            self._rise(place, v), self.score, self._group, upper, self._free, self._place, self._devices,
            self._c.of[v].start, self._c.capacity, self._need, most, narrow,
        )  # fmt: skip
        self.extended = score
        return cut, over

    def place(self, place: int) -> None:
        c, memory, v = self._c, self._memory, self._way.order[place]
        plan, option = self._plan, self._option
        spent = self.spent[plan] + c.cost[c.of[v]][option]
        for e, other in (*self._way.joining[place], *self._way.closing[place]):
            self._spend(spent, e, other)
        for due in self._dues:
            spent += due[self._group[plan], option]
        placed = self._core.place_stage(
            self.chosen, self._group, plan, option, v, self._way.ahead_of[place], self.extended, spent, self._free,
            self._need, self._used, self._place, self._devices, c.of[v].start, memory.later[place], c.capacity,
        )  # fmt: skip
        self.chosen, self.score, self.spent, self._free, self._group, self._first, self._used = placed

    def _rise(self, place: int, v: int) -> Ints:
        """(groups, m) by what the score rises with every option, kept with what affinities add to it."""
        c, passed, column = self._c, self._passed, self._column
        own, sent = passed.upward[v][:, column], passed.sent[v]
        rise = np.empty((len(self._first), len(own)), dtype=np.int64)
        parents = c.reduction.parents[v]
        rise[:] = own if parents else own - own.min()
        near = self._none
        if len(parents) == 1:
            assert sent is not None
            near = np.ascontiguousarray(sent[:, column])
        elif parents:
            assert sent is not None
            self._core.rise_between(rise, self.chosen, self._first, *parents, sent[..., column])
        for p in parents:
            table = passed.tables.get((p, v))
            if table is not None:
                part = table[:, :, column if table.shape[2] > 1 else 0]
                self._core.rise_by_table(rise, self.chosen, self._first, p, part, near, self._none[: len(own)])
            else:
                link, forward = passed.single(p, v)
                self._raise(rise, p, link.of_node(column), forward, near, self._none[: len(own)])
        for e, other in self._way.closing[place]:
            link, forward, near, far = self._split.link(e, other)
            self._raise(rise, other, link, forward, near, far)
        rules = [c.problem.affinities[i] for i in self._way.rules[place]]
        self._dues = [rest_of_penalty(c, rule, self.chosen[self._first], v) for rule in rules]
        for due in self._dues:
            rise += due
        return rise

    def _raise(self, rise: Ints, stage: int, link: Link, forward: bool, near: Ints, far: Ints) -> None:
        if isinstance(link, TableLink):
            table = link.table if forward else link.table.T
            self._core.rise_by_table(rise, self.chosen, self._first, stage, table, near, far)
        else:
            assert isinstance(link, LevelLink)
            self._core.rise_by_tree(rise, self.chosen, self._first, stage, *link.flat(forward), near, far)

    def _spend(self, spent: Ints, edge: int, stage: int) -> None:
        link, forward = self._c.links[edge], self._c.ends[edge][0] == stage
        if isinstance(link, TableLink):
            table = link.table if forward else link.table.T
            self._core.spend_by_table(spent, self.chosen, self._plan, self._option, stage, table)
        else:
            assert isinstance(link, LevelLink)
            self._core.spend_by_tree(spent, self.chosen, self._plan, self._option, stage, *link.flat(forward))
