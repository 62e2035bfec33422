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

import time
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.exact.compiled_steps import CompiledSteps
from iegopt.solvers.exact.partial_plans import course
from iegopt.solvers.exact.plain_steps import PlainSteps
from iegopt.solvers.exact.pricing import Priced

__all__ = ["Beam", "beam"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_COLUMNS, _GROWTH = 64, 1.5
"""Columns of memory that the rest of a partial plan takes as long as to place, and times as long as at the stage before
that one may take: caches hold fewer."""
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
        Where it ends first, or would in placing a stage by the pace so far, there are no plans.
    wide
        A greater width and more cells, which count until partial plans are more for the first time.
    """
    way = course(c, sized=wide is not None)
    following = [*(c.of[v].stop - c.of[v].start for v in way.order[1:]), 1]
    core = None if c.rows.timed else kernels()
    steps = (
        PlainSteps(c, priced, column, keep, way) if core is None else CompiledSteps(core, c, priced, column, keep, way)
    )
    bound, each = upper, 0.0
    for place in range(c.V):
        begun = time.perf_counter()
        narrow = min(width, max(_LEAST_WIDTH, cells // following[place]))
        most = narrow if wide is None else max(narrow, min(wide[0], wide[1] // following[place]))
        cut, over = steps.extend(place, upper, most, narrow)
        bound = min(bound, cut)
        if over:
            wide = None
        placed = len(steps.extended) * (_COLUMNS + steps.columns(place))
        if not placed or (clock is not None and clock.left <= _GROWTH * each * placed):
            return _given_up(c, bound, steps.extended)
        steps.place(place)
        each = (time.perf_counter() - begun) / placed
    cheapest = np.argsort(steps.spent, kind="stable")
    return Beam(steps.chosen[cheapest] + np.array([part.start for part in c.of]), steps.spent[cheapest], bound)


def _given_up(c: Candidates, bound: int, score: Ints) -> Beam:
    """No plans; the bound counts partial ones with these scores (P,) as left out."""
    return Beam(np.zeros((0, c.V), dtype=np.int64), np.zeros(0, dtype=np.int64), int(score.min(initial=bound)))
