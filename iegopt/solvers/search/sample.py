"""The sites that a quick plan looks at, and what it takes of options (``quick.py``)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.problem.transfer import kept_links, site_links

__all__ = ["PROBES", "SITES", "alike", "first_share", "need_of", "sample"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

SITES = 64
"""Sites of the sample: some hundred microseconds' worth of pairs. Where the links of all pairs are kept, all sites."""
PROBES = 1
"""Stages whose costs choose the sample, besides that of the largest share."""


def sample(problem: Problem, tightest: Ints, limit: Ints, same: bool) -> Ints:
    """(m,) sites, ascending: the cheapest for the probes, counting the transfer from the cheapest of all."""
    options, edges, S = problem.options, problem.edges, problem.topology.S
    if S <= SITES or kept_links(problem.topology) is not None:
        return np.arange(S)
    largest = int(first_share(problem).argmax())
    probes = dict.fromkeys((largest, *range(0, problem.V, -(-problem.V // PROBES))))
    score = np.zeros(S)
    for v in probes:
        span = options.of(v)
        site = options.site[span]
        cost = options.cost[span] / TICKS_PER_SECOND
        room = tightest if same else tightest[site]
        usable = (options.time[span] <= limit[v]) & (need_of(problem, span) <= room)
        # Where a probe cannot stand is worse than any place where it can, and no reason to leave the place out.
        worst = 2.0 * float(cost.max())
        own = np.where(usable, cost, worst)
        if not same:
            least = np.full(S, worst)
            np.minimum.at(least, site, own)
            own = least
        score += own
    score /= len(probes)
    if problem.E:
        best = np.array(score.argmin())
        latency, rate = site_links(problem.topology, best, np.arange(S))
        score += _mean(edges.weight) * (latency + _mean(edges.bytes) * rate)
    return _least(score, SITES)


def need_of(problem: Problem, which: Ints | slice) -> Ints:
    """What options take of each of their devices, shared weights included."""
    options = problem.options
    share, shared = options.share[which], options.weight_key[which] >= 0
    return np.asarray(share + np.where(shared, options.weight_share[which], 0) if shared.any() else share)


def first_share(problem: Problem) -> Ints:
    """(V,) what the first option of every stage takes of each of its devices."""
    return np.asarray(problem.options.share[problem.options.ptr[:-1]])


def alike(problem: Problem) -> bool:
    """Whether every stage has one option on every site, in their order."""
    S, site = problem.topology.S, problem.options.site
    if len(site) != problem.V * S or (np.diff(problem.options.ptr) != S).any():
        return False
    return bool((site.reshape(-1, S) == np.arange(S)).all())


def _mean(figures: Floats) -> float:
    """Summed one after the other, as a loop does."""
    return float(figures.cumsum()[-1]) / len(figures)


def _least(score: Floats, count: int) -> Ints:
    """The sites of the least scores, of equal ones the first, ascending."""
    most = score[np.argpartition(score, count - 1)[count - 1]]
    below, equal = np.flatnonzero(score < most), np.flatnonzero(score == most)
    return np.sort(np.concatenate([below, equal[: count - len(below)]]))
