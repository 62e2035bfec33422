"""In which order messages take the stages: each onto the at most two stages that it still meets then.

A stage with one neighbour left sends it a message, one with two leaves a table over the pairs of their options, as if
these two were joined by an edge. What can be taken apart so, stage by stage, has treewidth 2 at most: chains, trees,
branches that join again, rounds of an agent. Its cycles are then priced exactly. Where that would need wider
tables, or larger ones than pay, the edges that close cycles are dropped, and split over their ends (``pricing.py``).

Source: Arnborg & Proskurowski, Linear time algorithms for NP-hard problems restricted to partial k-trees, Discrete
Applied Mathematics 23 (1989).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from iegopt.solvers.exact.relaxation import Forest

__all__ = ["Reduction", "reduction"]

_MOST_CELLS = 400_000
"""Cells of all tables over three stages: about two milliseconds of every evaluation."""

_Ends = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class Reduction:
    """An order of the stages, the reverse of that in which they are taken apart.

    Attributes
    ----------
    order
        Stages, every parent before its children.
    parents
        Per stage those that it is taken onto, at most two, the earlier in the order first.
    couplings
        Per stage and parent the couplings that join them, none where only a table does.
    dropped
        Couplings with a cost that are left out.
    """

    order: tuple[int, ...]
    parents: tuple[tuple[int, ...], ...]
    couplings: tuple[tuple[tuple[int, ...], ...], ...]
    dropped: tuple[int, ...]

    @cached_property
    def between(self) -> dict[tuple[int, int], tuple[int, ...]]:
        """Couplings by parent and stage."""
        return {
            (p, v): own
            for v, parents in enumerate(self.parents)
            for p, own in zip(parents, self.couplings[v], strict=True)
        }

    @cached_property
    def pairs(self) -> frozenset[tuple[int, ...]]:
        """Pairs of stages that a third is taken onto."""
        return frozenset(parents for parents in self.parents if len(parents) == 2)

    @cached_property
    def tabled(self) -> frozenset[int]:
        """Couplings that are stated as tables, as part of a cycle."""
        return frozenset(
            e
            for (p, v), own in self.between.items()
            for e in own
            if len(self.parents[v]) == 2 or (p, v) in self.pairs or len(own) > 1
        )


def reduction(forest: Forest, ends: _Ends, sizes: Sequence[int]) -> Reduction:
    """The order over all edges where tables can take them, else over a spanning forest.

    Parameters
    ----------
    ends
        Source and target of every coupling.
    sizes
        Options of every stage.
    """
    order = _taken(forest, ends, sizes) if _closable(forest, ends) else None
    if order is None or sum(_cells(sizes, v, around) for v, around in order if len(around) == 2) > _MOST_CELLS:
        return _of_forest(forest)
    rank = {v: i for i, (v, _) in enumerate(reversed(order))}
    parents = [tuple(sorted(around, key=rank.__getitem__)) for _, around in sorted(order)]
    between: dict[tuple[int, int], list[int]] = {}
    for e in _edges(forest):
        first, last = sorted(ends[e], key=rank.__getitem__)
        between.setdefault((first, last), []).append(e)
    couplings = tuple(tuple(tuple(between.get((p, v), ())) for p in own) for v, own in enumerate(parents))
    return Reduction(tuple(rank), tuple(parents), couplings, ())


@lru_cache(maxsize=64)
def _of_forest(forest: Forest) -> Reduction:
    parents = tuple((p,) if p >= 0 else () for p in forest.parent)
    couplings = tuple(((e,),) if e >= 0 else () for e in forest.edge)
    return Reduction(forest.order, parents, couplings, forest.dropped)


@lru_cache(maxsize=64)
def _closable(forest: Forest, ends: _Ends) -> bool:
    """Whether there is a cycle, and the treewidth is 2."""
    return bool(forest.dropped) and _taken(forest, ends, [1] * len(forest.order)) is not None


def _edges(forest: Forest) -> tuple[int, ...]:
    return (*(e for e in forest.edge if e >= 0), *forest.dropped)


def _taken(forest: Forest, ends: _Ends, sizes: Sequence[int]) -> list[tuple[int, set[int]]] | None:
    """The stages as they are taken, with the neighbours that each has then; ``None`` where one has three.

    Of those with two neighbours the one with the smallest table goes first; roots of the forest go last.
    """
    around: list[set[int]] = [set() for _ in forest.order]
    for e in _edges(forest):
        u, v = ends[e]
        around[u].add(v)
        around[v].add(u)
    left = {v for v, parent in enumerate(forest.parent) if parent >= 0}
    light = [v for v in left if len(around[v]) < 2]
    pairs = {v: (_cells(sizes, v, around[v]), v) for v in left if len(around[v]) == 2}
    order: list[tuple[int, set[int]]] = []
    while left:
        if light:
            v = light.pop()
            if v not in left:
                continue
        else:
            if not pairs:
                return None
            v = min(pairs.values())[1]
        near = around[v]
        left.remove(v)
        pairs.pop(v, None)
        order.append((v, near))
        for w in near:
            around[w].remove(v)
            around[w] |= near - {w}
            pairs.pop(w, None)
            if w in left and len(around[w]) == 2:
                pairs[w] = _cells(sizes, w, around[w]), w
            elif w in left and len(around[w]) < 2:
                light.append(w)
    return order + [(v, set()) for v, parent in enumerate(forest.parent) if parent < 0]


def _cells(sizes: Sequence[int], stage: int, around: set[int]) -> int:
    return sizes[stage] * math.prod(sizes[w] for w in around)
