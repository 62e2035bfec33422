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
    place, other = (_places(topology, rule.level, each) for each in (sites, np.array(others, dtype=np.int64)))
    held = np.bincount(other, minlength=int(place.max(initial=-1)) + 1)
    together = held[place].astype(np.float64)
    among = float((held * (held - 1)).sum()) / 2
    pairs = len(others) * (len(others) - 1) / 2
    if rule.apart:
        return together + among
    return (len(others) - together) + (pairs - among)


def penalty(topology: Topology, rule: Affinity, sites: Sequence[int]) -> int:
    """Ticks that a preferred rule costs whose placed stages stand on ``sites``; 0 where it holds."""
    group = topology.group
    places = {int(group[rule.level, s]) if rule.level >= 0 and group[rule.level, s] >= 0 else -1 - s for s in sites}
    holds = len(places) == len(sites) if rule.apart else len(places) <= 1
    return 0 if holds else rule.penalty


def _places(topology: Topology, level: int, sites: Ints) -> Ints:
    """(n,) where sites stand, equal where together: the group of a level, else the site itself."""
    if level < 0:
        return sites
    group = topology.group[level, sites]
    return np.asarray(np.where(group >= 0, topology.S + group, sites))
