"""Seeded graphs of the families of ``families.py``: kinds of stages, and edges in topological order.

============  =====================================================================================
``chain``     prefill and decode in turn: a path
``agent``     rounds of prefill, decode and parallel tools that join in the next prefill, which also
              takes the KV cache of the round before by an edge that skips the tools (treewidth 2)
``fanout``    a stage, its parallel branches, their join, and again
``layered``   random layers of up to 4 stages, 1.8 edges a stage
``joins``     a path on which one or two stages fan out into 2 to 4 branches that join again
============  =====================================================================================
"""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

import numpy as np

__all__ = ["GRAPHS", "Family", "Graph"]

Family = Literal["chain", "agent", "fanout", "layered", "joins"]
Graph = tuple[list[str], list[tuple[int, int]]]
"""Kind of every stage, and its edges as pairs of stages."""


def _chain(stages: int, rng: np.random.Generator) -> Graph:
    return [("prefill", "decode")[v % 2] for v in range(stages)], [(v, v + 1) for v in range(stages - 1)]


def _agent(stages: int, rng: np.random.Generator) -> Graph:
    kinds: list[str] = []
    pairs: list[tuple[int, int]] = []
    loose: list[int] = []
    while len(kinds) < stages:
        prefill = len(kinds)
        pairs += [(u, prefill) for u in loose]
        tools = int(rng.integers(1, 4))
        kinds += ["prefill", "decode", *["tool"] * tools]
        pairs += [(prefill, prefill + 1), *((prefill + 1, prefill + 2 + i) for i in range(tools))]
        loose = list(range(prefill + 1, len(kinds)))
    return kinds[:stages], [(u, v) for u, v in pairs if v < stages]


def _fanout(stages: int, rng: np.random.Generator) -> Graph:
    kinds = ["prefill"]
    pairs: list[tuple[int, int]] = []
    while len(kinds) < stages:
        root, width = len(kinds) - 1, int(rng.integers(2, 5))
        branches = range(root + 1, root + 1 + width)
        join = root + 1 + width
        kinds += [*["decode"] * width, "prefill"]
        pairs += [*((root, b) for b in branches), *((b, join) for b in branches)]
    return kinds[:stages], [(u, v) for u, v in pairs if v < stages]


def _layered(stages: int, rng: np.random.Generator) -> Graph:
    kinds = [("prefill", "decode", "tool")[k] for k in rng.integers(3, size=stages).tolist()]
    pairs: list[tuple[int, int]] = []
    before: list[int] = []
    while (first := (before[-1] + 1 if before else 0)) < stages:
        layer = list(range(first, min(stages, first + int(rng.integers(1, 5)))))
        for v in layer:
            degree = min(len(before), 1 + int(rng.random() < 0.75) + int(rng.random() < 0.5))
            pairs += [(int(u), v) for u in np.sort(rng.permutation(before)[:degree])]
        before = layer
    return kinds, pairs


def _joins(stages: int, rng: np.random.Generator) -> Graph:
    """Branches of one or two stages each; what does not fit into the number of stages is left out."""
    blocks = [rng.integers(1, 3, size=int(rng.integers(2, 5))).tolist() for _ in range(int(rng.integers(1, 3)))]
    while blocks and sum(map(sum, blocks)) + len(blocks) + 1 > stages:
        blocks.pop()
    path = stages - sum(map(sum, blocks))
    after = np.sort(rng.permutation(np.arange(1, path))[: len(blocks)]).tolist()
    kinds: list[str] = []
    pairs: list[tuple[int, int]] = []
    loose: list[int] = []
    for i in range(path):
        pairs += [(u, len(kinds)) for u in loose]
        loose = [len(kinds)]
        kinds.append(("prefill", "decode")[i % 2])
        if i + 1 in after:
            fork, loose = loose[0], []
            for length in blocks[after.index(i + 1)]:
                branch = [fork, *range(len(kinds), len(kinds) + length)]
                pairs += list(pairwise(branch))
                kinds += ["decode", "tool"][:length]
                loose.append(branch[-1])
    return kinds, pairs


GRAPHS = {"chain": _chain, "agent": _agent, "fanout": _fanout, "layered": _layered, "joins": _joins}
