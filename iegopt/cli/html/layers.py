"""A layered drawing of a DAG (Sugiyama, Tagawa, Toda 1981): layers, order in a layer, coordinates.

An edge over several layers goes through a narrow dummy node in each of those between.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Layout", "layout"]

_SWEEPS = 12
_DUMMY = 14.0


@dataclass(frozen=True)
class Layout:
    """``x`` is the middle of every node, ``layer`` its layer from the top; ``paths`` holds, per edge,
    the (x, layer) of its ends and of the dummies between. The drawing spans 0 … ``width``."""

    x: tuple[float, ...]
    layer: tuple[int, ...]
    paths: tuple[tuple[tuple[float, int], ...], ...]
    width: float
    depth: int


def layout(nodes: int, edges: Sequence[tuple[int, int]], node_width: float, gap: float) -> Layout:
    """Lay out a DAG; ``edges`` are (source, target) pairs of node numbers."""
    layer = _layers(nodes, edges)
    chains: list[list[int]] = []
    links: list[tuple[int, int]] = []
    level = list(layer)
    for source, target in edges:
        dummies = list(range(len(level), len(level) + layer[target] - layer[source] - 1))
        level += range(layer[source] + 1, layer[target])
        chains.append([source, *dummies, target])
        links += zip(chains[-1], chains[-1][1:], strict=False)
    widths = [node_width if i < nodes else _DUMMY for i in range(len(level))]
    above: list[list[int]] = [[] for _ in level]
    below: list[list[int]] = [[] for _ in level]
    for upper, lower in links:
        below[upper].append(lower)
        above[lower].append(upper)
    rows = _ordered(level, above, below)
    x = _coordinates(rows, above, below, widths, gap)
    left = min(x[i] - widths[i] / 2 for i in range(len(x)))
    x = [value - left for value in x]
    return Layout(
        x=tuple(x[:nodes]),
        layer=tuple(layer),
        paths=tuple(tuple((x[i], level[i]) for i in chain) for chain in chains),
        width=max(x[i] + widths[i] / 2 for i in range(len(x))),
        depth=len(rows),
    )


def _layers(nodes: int, edges: Sequence[tuple[int, int]]) -> list[int]:
    """Longest path from a source, by which every edge goes down."""
    below: list[list[int]] = [[] for _ in range(nodes)]
    waiting = [0] * nodes
    for source, target in edges:
        below[source].append(target)
        waiting[target] += 1
    layer = [0] * nodes
    ready = [i for i in range(nodes) if not waiting[i]]
    for i in ready:
        for j in below[i]:
            layer[j] = max(layer[j], layer[i] + 1)
            waiting[j] -= 1
            if not waiting[j]:
                ready.append(j)
    return layer


def _ordered(level: list[int], above: list[list[int]], below: list[list[int]]) -> list[list[int]]:
    """Rows of nodes, ordered by the barycentres of their neighbours, down and up in turn."""
    rows: list[list[int]] = [[] for _ in range(max(level) + 1)]
    for i, at in enumerate(level):
        rows[at].append(i)
    best, fewest = [list(row) for row in rows], _crossings(rows, below)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        neighbours = above if down else below
        for row in rows if down else reversed(rows):
            rank = {i: r for other in rows for r, i in enumerate(other)}
            centre = {
                i: sum(rank[j] for j in neighbours[i]) / len(neighbours[i]) if neighbours[i] else float(rank[i])
                for i in row
            }
            row.sort(key=lambda i: centre[i])
        crossings = _crossings(rows, below)
        if crossings < fewest:
            best, fewest = [list(row) for row in rows], crossings
    return best


def _crossings(rows: list[list[int]], below: list[list[int]]) -> int:
    total = 0
    for upper, lower in itertools.pairwise(rows):
        rank = {i: r for r, i in enumerate(lower)}
        ends = [sorted(rank[j] for j in below[i]) for i in upper]
        total += sum(a > b for i, first in enumerate(ends) for second in ends[i + 1 :] for a in first for b in second)
    return total


def _coordinates(
    rows: list[list[int]], above: list[list[int]], below: list[list[int]], widths: list[float], gap: float
) -> list[float]:
    """Every node near the mean of its neighbours, none within ``gap`` of the next."""
    x = [0.0] * len(widths)
    for row in rows:
        at = -sum(widths[i] + gap for i in row) / 2
        for i in row:
            x[i] = at + widths[i] / 2
            at += widths[i] + gap
    for sweep in range(_SWEEPS):
        neighbours = above if sweep % 2 == 0 else below
        for row in rows if sweep % 2 == 0 else reversed(rows):
            wish = [sum(x[j] for j in neighbours[i]) / len(neighbours[i]) if neighbours[i] else x[i] for i in row]
            for i, value in zip(row, _apart(wish, [widths[i] for i in row], gap), strict=True):
                x[i] = value
    return x


def _apart(wish: list[float], widths: list[float], gap: float) -> list[float]:
    """The positions nearest to the wishes, in least squares, that keep their order and distance.

    Pool-adjacent-violators on the wishes less each node's least offset from the first.
    """
    offset = [0.0]
    for left, right in itertools.pairwise(widths):
        offset.append(offset[-1] + (left + right) / 2 + gap)
    blocks: list[tuple[float, int]] = []
    for value, shift in zip(wish, offset, strict=True):
        mean, size = value - shift, 1
        while blocks and blocks[-1][0] > mean:
            before, many = blocks.pop()
            mean, size = (mean * size + before * many) / (size + many), size + many
        blocks.append((mean, size))
    flat = [mean for mean, size in blocks for _ in range(size)]
    return [value + shift for value, shift in zip(flat, offset, strict=True)]
