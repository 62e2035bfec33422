"""Better plans by windows: a few stages in a row are set free, all others stay, and a beam solves what is left.

A beam over all stages forgets, on its way, what would have paid at the end; with most stages fixed it need not. Every
window costs one evaluation of the bound and a beam over few options.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from iegopt.solvers.exact.beam import beam
from iegopt.solvers.exact.best_plan import BestPlan
from iegopt.solvers.exact.branching import propagate
from iegopt.solvers.exact.candidates import Candidates
from iegopt.solvers.exact.partial_plans import course
from iegopt.solvers.exact.pricing import Pricing, no_split

__all__ = ["through_windows"]

_FREE, _STEP = 7, 3
"""Stages of a window, and how far it moves on."""
_WIDTH = 64


def through_windows(c: Candidates, best: BestPlan, late: Callable[[float], bool], needs: float) -> None:
    """One pass of windows over the stages, in the order in which a beam places them.

    Parameters
    ----------
    best
        Has a plan, all of whose options are candidates, and takes better ones.
    late
        Whether time is up in so many seconds.
    needs
        Seconds that the first window may take; one is not begun where the longest before it would end late.
    """
    order = course(c).order
    begun = 0.0
    for first in range(0, max(1, c.V - _FREE + _STEP), _STEP):
        now = time.perf_counter()
        needs, begun = max(needs, now - begun) if begun else needs, now
        if late(needs):
            return
        assert best.plan is not None
        keep = np.isin(c.option, best.plan)
        for v in order[first : first + _FREE]:
            keep[c.of[v]] = True
        left = propagate(c, keep)
        if left is None or int(left.sum()) == c.V:
            continue
        part = c.restrict(left, reorder=True)
        whole = np.ones((len(part.option), 1), dtype=np.bool_)
        pricing = Pricing(part, whole, np.zeros((len(part.capacity), 1)), no_split(part, 1))
        priced = pricing.run(lambda: best.upper, 1, 1.0, lambda chosen: None, lambda _: False)
        if priced.bound[0] >= best.upper:
            continue
        found = beam(part, priced, 0, whole[:, 0], best.upper, _WIDTH)
        for each, value in zip(found.plans, found.value.tolist(), strict=True):
            if value >= best.upper or best.offer(part.option[each]):
                break
