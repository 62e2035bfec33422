"""Branching on where a stage stands, from the widest group down, and what fixed stages rule out for the others.

Half a plan here and half a plan there use half of the memory of both places, so the fractional optimum likes to be
everywhere. A node is therefore split at the highest level of the topology at which its relaxed plans disagree: the
stage whose plans are spread most goes to one of the groups that they use, one child each, or to any other, one more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Affinity
from iegopt.problem.topology import WAN
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.compiled import kernels

__all__ = ["Branching", "propagate"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_AGREED = 0.9
"""Share of the relaxed plans in one group from which on they agree about a level."""
_USED, _MOST_CHILDREN = 0.1, 6
"""Share of the plans from which on a group gets a child of its own, and how many do at most."""


@dataclass(frozen=True, eq=False)
class Branching:
    """Groups of candidates: ``labels`` has (n,) numbers from 0 per level, the widest level first, options last."""

    candidates: Candidates
    labels: tuple[Ints, ...]

    @classmethod
    def of(cls, candidates: Candidates) -> Branching:
        topology = candidates.problem.topology
        site = candidates.problem.options.site[candidates.option]
        raw = [
            np.where(topology.group[level, site] >= 0, topology.group[level, site], -1 - site)
            for level in reversed(range(WAN))
        ]
        raw += [site, candidates.option]
        labels = [np.unique(level, return_inverse=True)[1] for level in raw]
        finer = [b for a, b in zip([np.zeros_like(site), *labels], labels, strict=False) if not np.array_equal(a, b)]
        return cls(candidates, tuple(finer) or (labels[-1],))

    def children(self, keep: Bools, mass: Floats) -> list[tuple[int, Bools]]:
        """(stage, mask over its options) of every child, in order of promise; none for a node with one plan.

        Parameters
        ----------
        mass (n,)
            How often the relaxed plans of the node used an option.
        """
        starts, stage = self.candidates.starts, self.candidates.stage
        open_stages = np.add.reduceat(keep.astype(np.int64), starts) > 1
        rows = np.flatnonzero(keep & open_stages[stage])
        if not rows.size:
            return []
        for labels in self.labels:
            last = labels is self.labels[-1]
            count = int(labels.max()) + 1
            cell = stage[rows] * count + labels[rows]
            used, cells = np.unique(cell, return_inverse=True)
            share = np.bincount(cells, mass[rows])
            owner = used // count
            several = np.bincount(owner, minlength=len(starts)) > 1
            if not several.any():
                continue
            most = np.zeros(len(starts))
            np.maximum.at(most, owner, share)
            v = int(np.where(several, most, np.inf).argmin())
            if most[v] >= _AGREED and not last:
                continue
            mine = np.flatnonzero(owner == v)
            mine = mine[np.argsort(-share[mine], kind="stable")]
            own = [int(used[i]) % count for i in mine if share[i] >= _USED][:_MOST_CHILDREN]
            own = own or [int(used[mine[0]]) % count]
            part = self.candidates.of[v]
            masks = [keep[part] & (labels[part] == group) for group in own]
            masks.append(keep[part] & ~np.isin(labels[part], own))
            return [(v, mask) for mask in masks if mask.any()]
        return []


def propagate(candidates: Candidates, keep: Bools) -> Bools | None:
    """The options of a node (n,) that its fixed stages leave: what still fits, and what required affinities allow.

    ``None`` where a stage has none left.
    """
    c, ready = candidates, kernels()
    if ready is not None:
        rest = keep.copy()
        return rest if ready.propagate_fixed(rest, *c.packed, *c.required) else None
    done: set[int] = set()
    brought = {-1}
    need = c.share + np.where(c.weight_key >= 0, c.weight_share, 0)
    free = c.capacity.copy()
    while True:
        left = [int(keep[part].sum()) for part in c.of]
        if min(left) == 0:
            return None
        fixed = [v for v, n in enumerate(left) if n == 1 and v not in done]
        if not fixed:
            return keep
        others: Bools = keep.copy()
        for v in fixed:
            done.add(v)
            option = c.of[v].start + int(keep[c.of[v]].argmax())
            key = int(c.weight_key[option])
            free[c.devices[:, option]] -= c.share[option] + (c.weight_share[option] if key not in brought else 0)
            free[-1] = c.capacity[-1]
            brought.add(key)
            for rule in c.problem.affinities:
                if rule.required and v in rule.stages:
                    _follow(c, rule, v, option, others)
        if (free < 0).any():
            return None
        if len(brought) > 1:
            need = np.where(np.isin(c.weight_key, list(brought)), c.share, need)
        fits: Bools = np.asarray((free[c.devices] >= need).all(axis=0))
        for v in done:
            fits[c.of[v]] = True
        keep = np.asarray(others & fits)


def _follow(candidates: Candidates, rule: Affinity, stage: int, option: int, keep: Bools) -> None:
    """Take from ``keep`` what a rule forbids the other stages once one has its option."""
    topology = candidates.problem.topology
    site = candidates.problem.options.site[candidates.option]
    together = site == site[option]
    if rule.level >= 0:
        group = topology.group[rule.level]
        together |= (group[site] == group[site[option]]) & (group[site] >= 0)
    for v in rule.stages:
        if v != stage:
            part = candidates.of[v]
            keep[part] &= ~together[part] if rule.apart else together[part]
