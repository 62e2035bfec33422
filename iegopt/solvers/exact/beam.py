"""Plans from prices: a beam of partial plans along the forest, with a bound on every plan that it leaves out.

A partial plan places the stages of the forest from the roots down. Its score bounds every plan that completes it: the
bound of the node, and on top of it what the options so far cost more than the relaxed optimum: the regret of each
(its priced cost and the message of its best completion, less the best), and what an edge that closes a cycle costs
more than its split once both its ends are placed. Memory is kept exactly, affinities once all their stages are placed,
and limits in time as far as the placed stages tell.

Partial plans that cannot beat the best known plan are dropped, and of those that look the same to the stages to come
(the same options at every stage that still has an edge, an affinity or shared weights ahead, the same free memory where
that can still bind) all but the cheapest: dynamic programming with bounds (Morin & Marsten, Operations Research 24,
1976). Where these are too many, the best go on and ``bound`` remembers the best of the others; where they are never too
many, the plans are all that matter and the node is solved.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.partial_plans import Memory, course, first_of_equals, rest_of_penalty
from iegopt.solvers.exact.partial_times import Times
from iegopt.solvers.exact.pricing import Priced

__all__ = ["Beam", "beam"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

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


def beam(c: Candidates, priced: Priced, column: int, keep: Bools, upper: int, width: int, cells: int = 40_000) -> Beam:
    """Plans below ``upper``, maybe none.

    Parameters
    ----------
    priced, column, keep (n,)
        A bounded node: its column and its options.
    width, cells
        Partial plans, and partial plans · options of the widest stage, that go on at most.
    """
    passed, forest, way = priced.passed, c.forest, course(c)
    memory = Memory(c, way.order)
    rest = {e: _rest(c, priced, e, column, priced.split[i][:, column], keep) for i, e in enumerate(forest.dropped)}
    widest = max(part.stop - part.start for part in c.of)
    most = min(width, max(_LEAST_WIDTH, cells // widest))
    times = Times(c, keep, way.order) if c.rows.timed else None
    chosen = np.zeros((1, c.V), dtype=np.int64)
    score, spent = np.full(1, int(priced.bound[column])), np.zeros(1, dtype=np.int64)
    free, bound = memory.free, upper
    for place, v in enumerate(way.order):
        part, parent, edge = c.of[v], forest.parent[v], forest.edge[v]
        own = passed.upward[v][:, column][None, :]
        cost = c.cost[part][None, :]
        if parent < 0:
            total = score[:, None] + (own - own.min())
        else:
            at, up = chosen[:, parent], passed.sent[v]
            assert up is not None
            row, paid = _rows(c, priced, edge, column, at, parent)
            cost = cost + row
            total = (score - up[at, column])[:, None] + own + paid
        for e, other in way.closing[place]:
            near, far = rest[e] if c.ends[e][0] == other else rest[e][::-1]
            at = chosen[:, other]
            row, paid = _rows(c, priced, e, column, at, other)
            cost = cost + row
            total += paid - near[at][:, None] - far[None, :]
        for i in way.rules[place]:
            due = rest_of_penalty(c, c.problem.affinities[i], chosen, v)
            cost, total = cost + due, total + due
        need = memory.need(chosen, way.order[:place], v)
        fine = memory.fits(free, need, v, total < upper)
        if times is not None:
            fine = times.fits(chosen, way.order[:place], v, fine)
        plan, option = np.nonzero(fine)
        score = total[plan, option]
        if len(score) > most:
            best = np.argpartition(score, most)
            bound = min(bound, int(score[best[most]]))
            plan, option, score = (x[best[:most]] for x in (plan, option, score))
        if not plan.size:
            return Beam(np.zeros((0, c.V), dtype=np.int64), np.zeros(0, dtype=np.int64), bound)
        if times is not None:
            times.take(plan, option, v)
        free = memory.take(free, need, plan, option, place, v)
        spent = spent[plan] + (cost[0, option] if len(cost) == 1 else cost[plan, option])
        chosen = chosen[plan]
        chosen[:, v] = option
        if times is None and len(score) > 1:
            kept = first_of_equals(np.hstack([chosen[:, list(way.ahead[place])], free[:, :-1]]), spent)
            chosen, score, spent, free = chosen[kept], score[kept], spent[kept], free[kept]
    cheapest = np.argsort(spent, kind="stable")
    return Beam(chosen[cheapest] + np.array([part.start for part in c.of]), spent[cheapest], bound)


def _rest(c: Candidates, priced: Priced, edge: int, column: int, part: Ints, keep: Bools) -> tuple[Ints, Ints]:
    """The two parts of the split of an edge that closes a cycle: over the options of its source and its target."""
    source = c.of[c.ends[edge][0]]
    link = priced.passed.link(edge).of_node(column)
    return part, link.send(np.where(keep[source], -part, UNREACHABLE)[:, None], True)[:, 0]


def _rows(c: Candidates, priced: Priced, edge: int, column: int, at: Ints, stage: int) -> tuple[Ints, Ints]:
    """(N, m) cost of an edge from options (N,) of a stage at one end to all of the other: plain, and as priced."""
    plain, own = c.links[edge], priced.passed.link(edge)
    assert plain is not None
    forward = c.ends[edge][0] == stage
    rows = plain.rows(at, forward)
    return rows, rows if own is plain else own.of_node(column).rows(at, forward)
