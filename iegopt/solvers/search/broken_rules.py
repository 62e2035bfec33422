"""How far the affinities of a plan under search are broken, with some stages placed and a site for one more."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Affinity
from iegopt.problem.topology import Topology

__all__ = ["broken_pairs", "penalty"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


def broken_pairs(topology: Topology, rule: Affinity, others: Sequence[int], sites: Ints) -> Floats:
    """(n,) pairs of a rule that are broken with one more stage on each of ``sites``, the others of the rule standing on
    ``others``; 0 where the rule holds."""
    group = topology.group
    together = np.zeros(len(sites))
    for s in others:
        match = sites == s
        if rule.level >= 0 and group[rule.level, s] >= 0:
            match = match | (group[rule.level, sites] == group[rule.level, s])
        together += match
    among = sum(_together(topology, rule.level, a, b) for i, a in enumerate(others) for b in others[:i])
    pairs = len(others) * (len(others) - 1) / 2
    if rule.apart:
        return together + among
    return (len(others) - together) + (pairs - among)


def penalty(topology: Topology, rule: Affinity, sites: Sequence[int]) -> int:
    """Ticks that a preferred rule costs whose placed stages stand on ``sites``; 0 where it holds."""
    pairs = [_together(topology, rule.level, a, b) for i, a in enumerate(sites) for b in sites[:i]]
    return rule.penalty if (any(pairs) if rule.apart else not all(pairs)) else 0


def _together(topology: Topology, level: int, a: int, b: int) -> bool:
    group = topology.group
    return a == b or (level >= 0 and bool(group[level, a] == group[level, b] >= 0))
