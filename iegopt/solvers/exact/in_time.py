"""Options that no plan can use in time: least finish and latest start of every option, by messages in time.

The least finish of option o of a stage v is its time and the greatest, over the edges into v, of the least
[ finish(o') + transfer(o', o) ] over the source's options; every edge is taken alone, so no plan is earlier. Backwards
the same gives the latest finish that leaves what follows time to keep its limits. An option whose least finish is after
its latest one is in no plan that keeps them; nor is one that takes so long that the budget breaks even where all other
stages take their least time.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.links import Link
from iegopt.solvers.exact.messages import UNREACHABLE

__all__ = ["finish_windows", "in_time"]

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


def in_time(c: Candidates, keep: Bools) -> Bools:
    """The options of nodes (n, B) that limits in time leave; a node without plans may keep some."""
    problem = c.problem
    if problem.budget < NO_LIMIT:
        keep = _within_budget(c, keep)
    if not problem.has_path_limits:
        return keep
    least, latest = finish_windows(c, keep)
    return np.asarray(keep & (least <= latest))


def finish_windows(c: Candidates, keep: Bools) -> tuple[Ints, Ints]:
    """(n, B) least and latest ticks at which a stage ends with an option, by the other options of nodes (n, B)."""
    problem, into = c.problem, c.rows.into
    moving = [link and link.moving for link in c.links]
    time = c.time[:, None]
    least: list[Ints] = [np.zeros(0, dtype=np.int64)] * c.V
    for v in problem.order.tolist():
        part = c.of[v]
        start = np.zeros((part.stop - part.start, keep.shape[1]), dtype=np.int64)
        for u, e in into[v]:
            np.maximum(start, _send(moving[e], least[u], True, len(start)), out=start)
        finish = np.minimum(start + time[part], UNREACHABLE)
        least[v] = np.where(keep[part], finish, UNREACHABLE)
    latest: list[Ints] = [np.full_like(least[v], min(int(c.rows.finish_by[v]), UNREACHABLE)) for v in range(c.V)]
    for v in problem.order[::-1].tolist():
        part = c.of[v]
        # Negated, so that the latest is a least: the messages take minima.
        must = np.where(keep[part], np.minimum(time[part] - latest[v], UNREACHABLE), UNREACHABLE)
        for u, e in into[v]:
            np.minimum(latest[u], -_send(moving[e], must, False, len(latest[u])), out=latest[u])
    return np.concatenate(least), np.concatenate(latest)


def _send(link: Link | None, value: Ints, forward: bool, far: int) -> Ints:
    if link is None:
        return np.broadcast_to(value.min(axis=0), (far, value.shape[1]))
    return link.send(value, forward)


def _within_budget(c: Candidates, keep: Bools) -> Bools:
    """Options that the budget allows where every other stage takes its least time."""
    problem = c.problem
    times = np.bincount(problem.budget_stages, minlength=c.V)
    spent = np.where(keep, c.time[:, None], UNREACHABLE // max(1, c.V))
    least = np.stack([spent[part].min(axis=0) for part in c.of]) * times[:, None]
    left = problem.budget - (least.sum(axis=0) - least)
    return np.asarray(
        keep & ((times[c.stage] == 0)[:, None] | (c.time[:, None] * times[c.stage][:, None] <= left[c.stage]))
    )
