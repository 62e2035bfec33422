"""The steps of a beam (``beam.py``) by numpy: partial plans take an option each, then those that others dominate fall.

Partial plans of a group have the same options at all stages that later ones depend on, and stand next to each other:
what placing a stage costs is worked out once for each group.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.dominance import undominated
from iegopt.solvers.exact.links import Link
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.partial_plans import Course, FreeMemory, rest_of_penalty
from iegopt.solvers.exact.partial_times import Times
from iegopt.solvers.exact.pricing import Priced
from iegopt.solvers.exact.split_edges import SplitEdges

__all__ = ["PlainSteps"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_DENSE = 10_000
"""Pairs of partial plan and option up to which all are looked at one by one."""
_CHECKED, _FEW_CHECKED = 4, 1_000
"""Times as many pairs as go on are looked at for memory first; pairs up to which all are."""


class PlainSteps:
    """Partial plans of a node.

    Parameters
    ----------
    column, keep (n,)
        The node: its column in ``priced`` and its options.

    Attributes
    ----------
    chosen (N, V), score (N,), spent (N,)
        Options, counted within their stage; a bound on every plan that completes them, and what they cost so far.
    extended (P,)
        Scores of the pairs of partial plan and option that go on.
    """

    def __init__(self, c: Candidates, priced: Priced, column: int, keep: Bools, way: Course) -> None:
        self._c, self._passed, self._column, self._way = c, priced.passed, column, way
        self._split = SplitEdges(c, priced, column, keep)
        self._memory = FreeMemory(c, way.order)
        self._times = Times(c, keep, way.order) if c.rows.timed else None
        self.chosen = np.zeros((1, c.V), dtype=np.int64)
        self.score, self.spent = np.full(1, int(priced.bound[column])), np.zeros(1, dtype=np.int64)
        self._group, self._first = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)

    def columns(self, place: int) -> int:
        """Devices whose free memory placing a stage works out for every plan."""
        return int(self._memory.free.shape[1])

    def extend(self, place: int, upper: int, most: int, narrow: int) -> tuple[int, bool]:
        """Pair the partial plans with the options of the next stage; only the best ``narrow``, if over ``most`` fit.

        Returns the least score left out for that, else ``upper``; and whether they were over ``most``.
        """
        memory, placed, v = self._memory, self._way.order[:place], self._way.order[place]
        rise = self._rise(place, v)
        plan, option = _below(rise, upper - self.score, self._group, len(self._first))
        if self._times is not None:
            fine = np.zeros((len(self.score), rise.shape[1]), dtype=np.bool_)
            fine[plan, option] = True
            plan, option = np.nonzero(self._times.fits(self.chosen, placed, v, fine))
        total = self.score[plan] + _of_pairs(rise, self._group[plan], option)
        taken = _of_pairs(memory.need(self.chosen, self._first, placed, v), self._group[plan], option)
        fitting: Ints | None = None
        if len(total) > max(_CHECKED * most, _FEW_CHECKED):
            best, _ = _least(total, _CHECKED * most)
            fitting = best[memory.fits(taken[best], plan[best], option[best], v)]
        if fitting is None or len(fitting) <= most:
            fitting = np.flatnonzero(memory.fits(taken, plan, option, v))
        cut, over = upper, len(fitting) > most
        if over:
            best, cut = _least(total[fitting], narrow)
            fitting = fitting[best]
        self._plan, self._option, self._taken, self.extended = (x[fitting] for x in (plan, option, taken, total))
        return cut, over

    def place(self, place: int) -> None:
        """Go on with these pairs, less those that others dominate."""
        c, memory, v = self._c, self._memory, self._way.order[place]
        plan, option = self._plan, self._option
        spent = self.spent[plan] + c.cost[c.of[v]][option]
        for e, other in (*self._way.joining[place], *self._way.closing[place]):
            at = self.chosen[plan, other]
            spent += self._plain(e).pairs(*((at, option) if c.ends[e][0] == other else (option, at)))
        for due in self._dues:
            spent += due[self._group[plan], option]
        taken, extended, stages = self._taken, self.extended, self._way.ahead_of[place]
        last = bool(stages.size) and stages[-1] == v
        if self._times is None and not last and len(plan) > len(self.score):
            some = _cheapest(spent, plan, memory.spared(place, v)[option], len(self.score))
            plan, option, spent, taken, extended = (x[some] for x in (plan, option, spent, taken, extended))
        memory.free = memory.take(taken, plan, option, place, v)
        kept = self._group = self._first = np.arange(len(plan))
        if self._times is not None:
            self._times.take(plan, option, v)
        else:
            ahead = self.chosen.take(stages, 1).take(plan, 0)
            if last:
                ahead[:, -1] = option
            kept, self._group, self._first = undominated(ahead, memory.free[:, :-1], spent)
            memory.free = memory.free[kept]
        self.chosen, self.score, self.spent = self.chosen[plan[kept]], extended[kept], spent[kept]
        self.chosen[:, v] = option[kept]

    def _rise(self, place: int, v: int) -> Ints:
        """(groups or 1, m) by what the score rises with every option, kept with what affinities add to it."""
        c = self._c
        heads = self.chosen[self._first]
        rise = self._passed.growth(v, self._column, heads)
        for e, other in self._way.closing[place]:
            link, forward, near, far = self._split.link(e, other)
            at = heads[:, other]
            # Several that are unreachable would be more than an integer holds.
            known = near[at][:, None] + far[None, :]
            rise = np.minimum(rise, UNREACHABLE) + (link.rows(at, forward) - known)
        rules = [c.problem.affinities[i] for i in self._way.rules[place]]
        self._dues = [rest_of_penalty(c, rule, heads, v) for rule in rules]
        for due in self._dues:
            rise = np.minimum(rise, UNREACHABLE) + due
        return rise

    def _plain(self, coupling: int) -> Link:
        link = self._c.links[coupling]
        assert link is not None
        return link


def _cheapest(spent: Ints, plan: Ints, spared: Bools, plans: int) -> Bools:
    """(P,) which pairs cost less than all ``spared`` ones (P,) of their plan, which take nothing that matters later.

    Nothing ahead depends on the option, so that the cheapest of these, which stays, dominates all that cost more.
    """
    least = np.full(plans, UNREACHABLE)
    np.minimum.at(least, plan[spared], spent[spared])
    own = least[plan]
    return np.asarray((spent < own) | (spared & (spent == own)))


def _below(rise: Ints, room: Ints, group: Ints, groups: int) -> tuple[Ints, Ints]:
    """Pairs of plan and option whose rise (groups or 1, m) is below the room (N,) that the plan has left."""
    if len(group) * rise.shape[1] <= _DENSE:
        plan, option = np.nonzero((rise[group] if len(rise) > 1 else rise) < room[:, None])
        return plan, option
    most = np.full(groups, -UNREACHABLE)
    np.maximum.at(most, group, room)
    of, option = np.nonzero(rise < most[:, None])
    count = np.bincount(of, minlength=groups)
    each = count[group]
    plan = np.repeat(np.arange(len(group)), each)
    at = np.arange(len(plan)) + np.repeat((np.cumsum(count) - count)[group] - np.cumsum(each) + each, each)
    risen = _of_pairs(rise, of, option)
    below = risen[at] < room[plan]
    return plan[below], option[at[below]]


def _of_pairs(values: Ints, rows: Ints, columns: Ints) -> Ints:
    """Values (N or 1, m) of pairs."""
    return np.asarray(values[0, columns] if len(values) == 1 else values[rows, columns])


def _least(values: Ints, count: int) -> tuple[Ints, int]:
    """Places of the ``count`` least of more values, the first of equals, ascending; and the least of the others."""
    last, following = np.partition(values, (count - 1, count))[count - 1 : count + 1].tolist()
    kept = values < last
    kept[np.flatnonzero(values == last)[: count - int(kept.sum())]] = True
    return np.flatnonzero(kept), following
