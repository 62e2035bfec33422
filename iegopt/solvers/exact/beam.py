"""Plans from prices: beam search along the forest, guided by the priced messages.

A partial plan places the stages of the forest from the roots down. Its score is exact for the relaxed problem: what is
placed at its priced cost, and for all that is not placed yet the message of its best completion; so extending a
plan by an option adds that option's regret, at least 0. Memory is kept exactly, and an edge that closes a cycle
enters with its true cost once both its ends are placed. The ``width`` best partial plans go on.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.pricing import Passed

__all__ = ["beam"]

Ints = npt.NDArray[np.int64]

_LEAST_WIDTH, _MOST_CELLS = 4, 40_000
"""Plans · options of a stage above which fewer plans are kept than asked for, but never fewer than so many."""


def beam(c: Candidates, passed: Passed, own: int, width: int) -> Ints:
    """At most ``width`` plans that keep every memory, shared weights left out; maybe none.

    Fewer are kept on the way where a stage has very many options.

    Parameters
    ----------
    passed, own
        Messages, and the column in them of the node whose plans are wanted.

    Returns
    -------
    (plans, V) candidate indices, the cheapest first (penalties of affinities left out).
    """
    chosen = np.full((1, c.V), -1, dtype=np.int64)
    score = np.zeros(1, dtype=np.int64)
    free = c.capacity[None, :].copy()
    widest = max(part.stop - part.start for part in c.of)
    around: list[list[tuple[int, int, bool]]] = [[] for _ in range(c.V)]
    for e in c.forest.dropped:
        u, v = c.ends[e]
        around[u].append((e, v, False))
        around[v].append((e, u, True))
    for v in c.forest.order:
        part = c.of[v]
        regret = passed.upward[v][:, own][None, :]
        parent, edge = c.forest.parent[v], c.forest.edge[v]
        if parent >= 0:
            link, up = passed.link(edge).of_node(own), passed.sent[v]
            assert up is not None
            at = chosen[:, parent]
            regret = regret + link.rows(at, c.ends[edge][0] == parent) - up[at, own][:, None]
        total = score[:, None] + regret
        for e, other, forward in around[v]:
            if chosen[0, other] >= 0:
                between = c.links[e]
                assert between is not None
                total = total + between.rows(chosen[:, other], forward)
        fits = np.ones(total.shape, dtype=np.bool_)
        for devices in c.devices[:, part]:
            fits &= free[:, devices] >= c.share[part]
        total = np.where(fits, np.minimum(total, UNREACHABLE), UNREACHABLE).ravel()
        kept = min(width, max(_LEAST_WIDTH, _MOST_CELLS // widest))
        best = np.argpartition(total, kept)[:kept] if len(total) > kept else np.arange(len(total))
        best = best[total[best] < UNREACHABLE // 2]
        best = best[np.argsort(total[best], kind="stable")]
        if not best.size:
            return np.zeros((0, c.V), dtype=np.int64)
        plan, option = np.divmod(best, part.stop - part.start)
        chosen = chosen[plan]
        chosen[:, v] = option
        score = total[best]
        free = free[plan]
        for devices in c.devices[:, part]:
            free[np.arange(len(plan)), devices[option]] -= c.share[part][option]
            free[:, -1] = c.capacity[-1]
    plans: Ints = chosen + np.array([part.start for part in c.of])
    return np.asarray(plans[np.argsort(c.cost_of(plans), kind="stable")])
