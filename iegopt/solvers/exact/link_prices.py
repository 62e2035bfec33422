"""What every edge pays on every link of the topology tree, for shards of every width.

R links are counted through the levels as in ``TreeIndex``; K widths are 1 and those of gangs whose shards move in
parallel, which divide the bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import TICKS_PER_SECOND, Edges
from iegopt.solvers.exact.tree_index import TreeIndex

__all__ = ["LinkPrices", "link_prices", "ticks_of"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class LinkPrices:
    """Prices of links.

    Attributes
    ----------
    widths
        K, the first 1.
    raw, least (K, E, R)
        Seconds, and what no overlap can hide of them; ``least`` has no element where no edge overlaps.
    ticks (K, E, R)
        Cost of the raw seconds.
    monotone (K, E)
        Whether no link is faster than that of a group inside.
    """

    widths: tuple[int, ...]
    raw: Floats
    least: Floats
    ticks: Ints
    monotone: Bools


def link_prices(edges: Edges, tree: TreeIndex) -> LinkPrices:
    """Every edge on every link of a tree."""
    widths = (1, *tree.widths)
    by = np.array(widths, dtype=np.float64)[:, None, None]
    size = edges.bytes[:, None] / by
    raw = tree.latency + size * tree.seconds_per_byte
    if edges.chunk.any() or any(hidden is not None for hidden in edges.hidden):
        least = tree.latency + np.minimum(edges.chunk[:, None] / by, size) * tree.seconds_per_byte
    else:
        least = np.zeros((0, 0, 0))
    return LinkPrices(widths, raw, least, ticks_of(raw, edges.weight[:, None]), _never_falls(raw, tree))


def ticks_of(seconds: Floats, weight: float | Floats) -> Ints:
    """As ``cost_ticks``, in the same order of operations."""
    ticks: Ints = np.rint(weight * seconds * TICKS_PER_SECOND).astype(np.int64)
    return ticks


def _never_falls(raw: Floats, tree: TreeIndex) -> Bools:
    levels, offsets = tree.levels, tree.offsets
    if offsets[-1] == len(levels):
        return np.asarray(np.logical_and.reduce(raw[..., 1:] >= raw[..., :-1], axis=2))
    fine = np.ones(raw.shape[:2], dtype=np.bool_)
    for i in range(1, len(levels)):
        low = slice(offsets[i - 1], offsets[i])
        high = slice(offsets[i], offsets[i + 1])
        up = raw[..., high]
        if low.stop - low.start > 1 and high.stop - high.start > 1:
            up = up[..., levels[i].parent]
        elif low.stop - low.start == 1:
            up = up.min(axis=2, keepdims=True)
        fine &= (raw[..., low] <= up).all(axis=2)
    return fine
