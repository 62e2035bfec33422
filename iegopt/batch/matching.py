"""Long prefills that each need an instance, dealt out at once: the largest weight that can be matched.

Sets of requests that can be matched to instances are independent sets of a matroid, so that the greedy algorithm is
exact (Edmonds and Fulkerson, Transversals and matroid partition, 1965): the highest priority and weight first, each
with an augmenting path.
"""

from __future__ import annotations

import numpy as np

from iegopt.batch.long_sets import LongSets
from iegopt.batch.model import BatchModel

__all__ = ["matched"]


def matched(model: BatchModel, sets: LongSets) -> dict[int, int]:
    """Request -> instance, for those of ``sets`` that need most of one.

    An instance that fewer requests can have is the first choice of those that can.
    """
    queue, rows = model.queue, sets.rows
    asked = sets.alone[sets.whole].sum(axis=0)
    taken: dict[int, int] = {}
    for n in np.lexsort((rows, -queue.weight[rows], queue.priority[rows])).tolist():
        if sets.whole[n]:
            _augment(sets, asked.tolist(), taken, n, set())
    return {int(rows[n]): j for j, n in taken.items()}


def _augment(sets: LongSets, asked: list[int], taken: dict[int, int], n: int, seen: set[int]) -> bool:
    """Give request ``n`` an instance, where need be one whose request takes another."""
    for j in sorted(np.flatnonzero(sets.alone[n]).tolist(), key=lambda j: (asked[j], j)):
        if j in seen:
            continue
        seen.add(j)
        if j not in taken or _augment(sets, asked, taken, taken[j], seen):
            taken[j] = n
            return True
    return False
