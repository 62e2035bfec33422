"""What open stages of a partial plan cost at least with the pairs of a spanning tree among them, for many at a time.

The bound of every stage by itself leaves out what open stages cost with each other. A tree of them counts as much of
that as dynamic programming can in one sweep from the leaves up: every option sends the least of its cost and the
pair's to the stage before. At the root, the next stage to be fixed, the sum bounds all plans that use an option, so
that children are dropped before they are made.

Source: Sánchez, de Givry, Schiex, Mendelian error detection in complex pedigrees using weighted constraint
satisfaction techniques, Constraints 13 (2008), for trees in bounds of weighted constraints.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

__all__ = ["LEAST_OPEN", "heaviest_trees", "root_costs"]

Ints = npt.NDArray[np.int64]
Tree = tuple[tuple[int, int], ...]

LEAST_OPEN = 3
"""Open stages from which a tree knows more than the children will, in less time."""


def heaviest_trees(pairs: Ints) -> list[Tree]:
    """For every depth the heaviest tree of the stages after it, as (stage, the one before) from the leaves up.

    Parameters
    ----------
    pairs (V, K, V, K)
        Ticks between the options of two stages, in the order in which stages are fixed; the mean is a pair's weight.
    """
    weight = pairs.mean(axis=(1, 3)).tolist()
    return [_heaviest_tree(weight, depth + 1) for depth in range(len(weight))]


def _heaviest_tree(weight: list[list[float]], root: int) -> Tree:
    """Prim's algorithm; a loop of numbers, since graphs are small."""
    tree: list[tuple[int, int]] = []
    nearest = dict.fromkeys(range(root + 1, len(weight)), root)
    while nearest:
        stage = max(nearest, key=lambda v: weight[nearest[v]][v])
        tree.append((stage, nearest.pop(stage)))
        own = weight[stage]
        for v, known in nearest.items():
            if own[v] > weight[known][v]:
                nearest[v] = stage
    return tuple(reversed(tree))


def root_costs(cost: Ints, pairs: Ints, tree: Tree) -> Ints:
    """(n, K) ticks that every option of the first open stage costs at least with all others, by a tree.

    Parameters
    ----------
    cost (n, open, K)
        Of the options of the open stages, which are the last of all.
    pairs (V, K, V, K), tree
        As for ``heaviest_trees``.
    """
    first = len(pairs) - cost.shape[1]
    total = np.ascontiguousarray(cost.transpose(1, 2, 0))
    for stage, before in tree:
        own, between = total[stage - first], pairs[before, :, stage]
        for option, row in enumerate(between):
            total[before - first, option] += (own + row[:, None]).min(axis=0)
    return np.asarray(total[0].T)
