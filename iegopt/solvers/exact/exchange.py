"""Better plans by exchange: any two stages move at once to where they cost least together, until none gains.

Where memory is scarce, one stage often has to leave a device before another can come. All pairs of stages are looked
at, those with an edge between them and those that merely want one device, over the options that prices look at: a
hundred microseconds of a kernel take a first plan, some per cent from the optimum, to within half a per cent of it,
which leaves the bounds far fewer options. A few stages next to each other are then put anywhere, and all over again
(iterated local search: Lourenço, Martin & Stützle, Handbook of Metaheuristics, 2003).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.clock import Clock, lag
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.exact.messages import UNREACHABLE

__all__ = ["exchange_stages"]

Ints = npt.NDArray[np.int64]

_KICKED = 3
"""Stages that are put anywhere at once."""
_MOST_CELLS, _CELL_NEEDS, _PAIR_NEEDS = 500_000, 2e-8, 8e-7
"""Cells of the tables of all edges; seconds that each takes, and every pair of stages until none gains, as measured on
one core of a server."""
_LOOK_NEEDS, _OF_REST = 4e-9, 0.25
"""Seconds that a look at an option takes where these are many, and the part of the time left that all looks may take:
how many there are does not follow from the cells, where stages have many options and no edges."""
_MOST_LOOKS = 1e15
"""Of a clock without an end."""


def exchange_stages(c: Candidates, best: BestPlan, clock: Clock, kicks: int = 0) -> bool:
    """Offer what exchanges make of the best plan, where all of its options are candidates; whether it is better.

    Nothing without kernels, where tables are large or the time is short. Shared weights are charged every time, which
    is safe.

    Parameters
    ----------
    kicks
        How many times stages are put anywhere, once nothing gains.
    """
    core = kernels()
    if core is None or best.plan is None or c.V < 2:
        return False
    cells = sum(_cells(c, u, v) for link, (u, v) in zip(c.links, c.ends, strict=True) if link is not None)
    place = np.full(len(c.problem.options.site), -1)
    place[c.option] = np.arange(len(c.option))
    at = place[best.plan]
    needs = _CELL_NEEDS * cells + _PAIR_NEEDS * (1 + kicks) * c.V * c.V / 2
    if cells > _MOST_CELLS or clock.left < lag() * needs or at.min() < 0:
        return False
    ptr = np.array([*(part.start for part in c.of), len(c.option)])
    need = c.share + np.where(c.weight_key >= 0, c.weight_share, 0)
    free = c.capacity.copy()
    for row in c.devices[:, at]:
        np.subtract.at(free, row, need[at])
    plan = at - ptr[:-1]
    tables = _tables(c)
    flat = np.concatenate([np.zeros(0, dtype=np.int64), *(each.reshape(-1) for each in tables.values())])
    start = np.append(0, np.cumsum([each.size for each in tables.values()], dtype=np.int64))
    looks = np.array([min(_OF_REST * clock.left / (lag() * _LOOK_NEEDS), _MOST_LOOKS)], dtype=np.int64)
    core.exchange(
        plan, kicks, _KICKED, (ptr, c.cost, flat, start), np.array([*tables], dtype=np.int64).reshape(-1, 2),
        (need, np.ascontiguousarray(c.devices.T), free), np.array([1], dtype=np.uint64), looks,
    )  # fmt: skip
    moved = c.option[plan + ptr[:-1]]
    return not np.array_equal(moved, best.plan) and best.offer(moved)


def _cells(c: Candidates, u: int, v: int) -> int:
    return int((c.of[u].stop - c.of[u].start) * (c.of[v].stop - c.of[v].start))


def _tables(c: Candidates) -> dict[tuple[int, int], Ints]:
    """By two stages what all pairs of their options cost."""
    tables: dict[tuple[int, int], Ints] = {}
    for link, (u, v) in zip(c.links, c.ends, strict=True):
        if link is None:
            continue
        table = link.whole()[:, :, 0]
        if (v, u) in tables:
            u, v, table = v, u, table.T
        known = tables.get((u, v))
        tables[u, v] = table if known is None else np.minimum(known + table, UNREACHABLE)
    return tables
