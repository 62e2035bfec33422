"""Prices of a search as multipliers that outlive it, and multipliers of an earlier solve as prices to start from.

Any prices give a valid bound, so those of another request or of a cluster that has changed since cost steps at worst.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.solvers.exact.time_rows import Row, TimeRows
from iegopt.solvers.multipliers import LimitPrice, Multipliers

__all__ = ["multipliers_of", "prices_from"]

Floats = npt.NDArray[np.float64]

_GB = 10**9
_MOST_PRICE = 2.0**44
"""Ticks per device that a price may start from."""


def multipliers_of(problem: Problem, price: Floats, rows: TimeRows, toll: Floats) -> Multipliers:
    """The prices above 0 of devices (D,), in ticks for all their memory, and of rows (R,), in ticks per unit."""
    per_gb = price / np.maximum(problem.capacity, 1) * (problem.memory_scale * _GB / TICKS_PER_SECOND)
    devices = problem.topology.devices
    memory = {devices[d]: float(per_gb[d]) for d in np.flatnonzero(price > 0).tolist()}
    each = rows.prices(rows.padded(toll[:, None]))[:, 0].tolist()
    limits = [_limit_price(problem, rows, row, value) for row, value in zip(rows.rows, each, strict=True) if value > 0]
    return Multipliers(memory, tuple(limits))


def _limit_price(problem: Problem, rows: TimeRows, row: Row, price: float) -> LimitPrice:
    names, order = problem.stages, problem.order.tolist()
    stages = tuple(names[v] for v in sorted(row.stages, key=order.index))
    ends = [rows.ends[e] for e in row.couplings]
    edges = tuple((names[u], names[v]) for u, v in sorted(ends, key=lambda end: order.index(end[1])))
    if row.end is None:
        return LimitPrice("budget", stages, edges, price)
    own = problem.finish_by[row.end] <= problem.deadline
    return LimitPrice("finish_by" if own else "deadline", stages, edges, price)


def prices_from(problem: Problem, known: Multipliers, rows: TimeRows) -> tuple[Floats, Floats]:
    """Prices of devices (D,) and rows (R,) of a problem by the names of an earlier one; its paths become rows.

    What the problem does not have is left out: devices, paths over other stages or edges, limits that are slack now.
    """
    price = np.zeros(problem.topology.D)
    if known.memory:
        per_byte = TICKS_PER_SECOND / (_GB * problem.memory_scale)
        numbers = problem.topology.device_numbers
        for d, value in ((numbers.get(name), value) for name, value in known.memory.items()):
            if d is not None:
                price[d] = np.rint(np.clip(value * per_byte * float(problem.capacity[d]), 0.0, _MOST_PRICE))
    found: dict[int, float] = {}
    for limit in known.limits:
        row = _row(problem, rows, limit)
        number = None if row is None else rows.add(row)
        if number is not None:
            found[number] = limit.price
    toll = np.zeros(len(rows))
    for number, value in found.items():
        toll[number] = value * float(rows.unit[number])
    return price, np.rint(np.clip(toll, 0.0, rows.most[:, 0]))


def _row(problem: Problem, rows: TimeRows, limit: LimitPrice) -> Row | None:
    """The row of a limit with these names, ``None`` where the problem has none."""
    index = {name: v for v, name in enumerate(problem.stages)}
    if limit.rule == "budget":
        return next((row for row in rows.rows if row.end is None), None)
    if any(name not in index for name in limit.stages):
        return None
    ends = {end: e for e, end in reversed(list(enumerate(rows.ends[: problem.E])))}
    couplings = [ends.get((index.get(u, -1), index.get(v, -1))) for u, v in limit.edges]
    end = index[limit.stages[-1]]
    by = int(rows.finish_by[end])
    if by >= NO_LIMIT or any(e is None for e in couplings):
        return None
    stages, edges = sorted(index[name] for name in limit.stages), sorted(e for e in couplings if e is not None)
    return Row(tuple(stages), tuple(edges), by, end)
