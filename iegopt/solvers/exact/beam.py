"""Plans from prices: a beam of partial plans along the forest, with a bound on every plan that it leaves out.

A partial plan places the stages of the forest from the roots down. Its score bounds every plan that completes it: the
bound of the node, and on top of it what the options so far cost more than the relaxed optimum: the regret of each
(its priced cost and the message of its best completion, less the best), and what an edge that closes a cycle costs
more than its split once both its ends are placed. Memory is kept exactly, affinities once all their stages are placed,
and limits in time as far as the placed stages tell.

Partial plans that cannot beat the best known plan are dropped. So are most of those that another one dominates: it has
the same options at every stage that still has an edge, an affinity or shared weights ahead, costs no more, and leaves
no less memory free where that can still bind: dynamic programming with bounds (Morin & Marsten, Operations Research 24,
1976). Where these are too many, the best go on and ``bound`` remembers the best of the others; where they are never too
many, the plans are all that matter and the node is solved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.links import Link
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.partial_plans import Memory, course, rest_of_penalty, undominated
from iegopt.solvers.exact.partial_times import Times
from iegopt.solvers.exact.pricing import Priced

__all__ = ["Beam", "beam"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_DENSE = 10_000
"""Pairs of partial plan and option up to which all are looked at one by one."""
_CHECKED = 4
"""Times as many partial plans as go on are looked at for memory."""
_LEAST_WIDTH = 4
"""Partial plans that are kept at least, whatever the cells."""


@dataclass(frozen=True, eq=False)
class Beam:
    """Plans of a node.

    Attributes
    ----------
    plans (P, V), value (P,)
        Candidate indices, the cheapest first, and their objective in ticks. They keep every constraint but limits in
        time.
    bound
        Ticks: no plan of the node below ``upper`` costs less, unless it is here or no better than one that is.
    """

    plans: Ints
    value: Ints
    bound: int


def beam(
    c: Candidates,
    priced: Priced,
    column: int,
    keep: Bools,
    upper: int,
    width: int,
    cells: int = 40_000,
    clock: Clock | None = None,
    wide: tuple[int, int] | None = None,
) -> Beam:
    """Plans below ``upper``, maybe none.

    Parameters
    ----------
    priced, column, keep (n,)
        A bounded node: its column and its options.
    width, cells
        Partial plans, and partial plans · options of the stage to come, that go on at most.
    clock
        Where it ends first, there are no plans.
    wide
        Another width and cells, which count until partial plans are more for the first time.
    """
    passed, way = priced.passed, course(c)
    memory = Memory(c, way.order)
    rest = {e: _rest(c, priced, e, column, priced.split[i][:, column], keep) for i, e in enumerate(c.reduction.dropped)}
    following = [*(c.of[v].stop - c.of[v].start for v in way.order[1:]), 1]

    def plain(coupling: int) -> Link:
        link = c.links[coupling]
        assert link is not None
        return link

    times = Times(c, keep, way.order) if c.rows.timed else None
    chosen = np.zeros((1, c.V), dtype=np.int64)
    score, spent = np.full(1, int(priced.bound[column])), np.zeros(1, dtype=np.int64)
    free, bound = memory.free, upper
    group, first = np.zeros(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    for place, v in enumerate(way.order):
        narrow = min(width, max(_LEAST_WIDTH, cells // following[place]))
        most = narrow if wide is None else min(wide[0], max(_LEAST_WIDTH, wide[1] // following[place]))
        # What placing v costs depends on the stages ahead alone, which the plans of a group have in common.
        heads = chosen[first]
        rise = passed.growth(v, column, heads)
        dues = []
        for e, other in way.closing[place]:
            near, far = rest[e] if c.ends[e][0] == other else rest[e][::-1]
            at, forward = heads[:, other], c.ends[e][0] == other
            row = plain(e).rows(at, forward)
            own = passed.link(e)
            paid = row if own is c.links[e] else own.of_node(column).rows(at, forward)
            rise = rise + (paid - near[at][:, None] - far[None, :])
        for i in way.rules[place]:
            due = rest_of_penalty(c, c.problem.affinities[i], heads, v)
            dues.append(due)
            rise = rise + due
        plan, option = _below(rise, upper - score, group, len(first))
        if times is not None:
            fine = np.zeros((len(score), c.of[v].stop - c.of[v].start), dtype=np.bool_)
            fine[plan, option] = True
            plan, option = np.nonzero(times.fits(chosen, way.order[:place], v, fine))
        need = memory.need(heads, way.order[:place], v)
        total = score[plan] + _of_pairs(rise, group[plan], option)
        cut = upper
        if len(total) > _CHECKED * most:  # enough of the best will fit
            best = np.argpartition(total, _CHECKED * most)
            cut = int(total[best[_CHECKED * most]])
            plan, option, total = (x[best[: _CHECKED * most]] for x in (plan, option, total))
        taken = _of_pairs(need, group[plan], option)
        fitting = memory.fits(free, taken, plan, option, v)
        plan, option, taken, score = (x[fitting] for x in (plan, option, taken, total))
        if len(score) > most:
            most, wide = narrow, None
            best = np.argpartition(score, most)
            cut = int(score[best[most]])
            plan, option, score, taken = (x[best[:most]] for x in (plan, option, score, taken))
        bound = min(bound, cut)
        if not plan.size or (clock is not None and clock.left <= 0):
            return _given_up(c, bound, score)
        if times is not None:
            times.take(plan, option, v)
        free = memory.take(free, taken, plan, option, place, v)
        spent = spent[plan] + c.cost[c.of[v]][option]
        chosen = chosen[plan]
        for e, other in (*way.joining[place], *way.closing[place]):
            ends = (chosen[:, other], option)
            spent += plain(e).pairs(*(ends if c.ends[e][0] == other else ends[::-1]))
        for due in dues:
            spent += _of_pairs(due, group[plan], option)
        chosen[:, v] = option
        group = first = np.arange(len(plan))
        if times is None:
            kept, group, first = undominated(chosen[:, list(way.ahead[place])], free, spent)
            chosen, score, spent, free = chosen[kept], score[kept], spent[kept], free[kept]
    cheapest = np.argsort(spent, kind="stable")
    return Beam(chosen[cheapest] + np.array([part.start for part in c.of]), spent[cheapest], bound)


def _given_up(c: Candidates, bound: int, score: Ints) -> Beam:
    """No plans; the bound counts partial ones with these scores (P,) as left out."""
    return Beam(np.zeros((0, c.V), dtype=np.int64), np.zeros(0, dtype=np.int64), int(score.min(initial=bound)))


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


def _rest(c: Candidates, priced: Priced, edge: int, column: int, part: Ints, keep: Bools) -> tuple[Ints, Ints]:
    """The two parts of the split of an edge that closes a cycle: over the options of its source and its target."""
    source = c.of[c.ends[edge][0]]
    link = priced.passed.link(edge).of_node(column)
    return part, link.send(np.where(keep[source], -part, UNREACHABLE)[:, None], True)[:, 0]
