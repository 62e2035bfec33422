"""Repair: walk through infeasible plans until one breaks nothing (min-conflicts with tabu and device weights).

A stage that takes part in a broken constraint is moved to the option with the least violation, cost breaking
ties; it may not go back for a few steps, so that what it displaced moves next (an ejection chain). Where
no option lowers the violation, the overloaded devices weigh more from then on (breakout).

Sources: Minton et al., Minimizing conflicts, AIJ 58 (1992); Morris, The breakout method, AAAI 1993.
"""

from __future__ import annotations

import random

import numpy as np

from iegopt.solvers.clock import Clock
from iegopt.solvers.search.state import State

__all__ = ["repair"]

_NOISE = 0.03
"""Chance of a random option instead of the least violating one."""
_DEAR = 100.0
"""A violation of 1 / this outweighs the whole range of a stage's costs."""


def repair(state: State, clock: Clock, rng: random.Random, steps: int | None = None) -> bool:
    """Make a complete plan feasible; returns whether it is. Costs at least one look at the plan, whatever the clock."""
    held: dict[tuple[int, int], int] = {}
    step = 0
    while True:
        culprits = state.culprits()
        if not culprits:
            return True
        if clock.left <= 0 or (steps is not None and step >= steps):
            return False
        step += 1
        stage = rng.choice(culprits)
        offers = state.offers(stage)
        start, now = state.ptr[stage], state.choice[stage]
        violation = offers.violation.copy()
        open_options = np.isfinite(violation)
        here = float(violation[now - start])
        violation[now - start] = np.inf
        for (v, option), until in held.items():
            if v == stage and until > step:
                violation[option - start] = np.inf
        choices = np.flatnonzero(np.isfinite(violation))
        if not choices.size:
            continue
        if rng.random() < _NOISE:
            pick = int(choices[rng.randrange(choices.size)])
        else:
            span = float(np.ptp(offers.cost[open_options])) + 1.0
            pick = int((violation * (_DEAR * span) + offers.cost).argmin())
        if violation[pick] >= here:
            state.memory.press()
        held[stage, now] = step + rng.randint(3, 8 + len(culprits))
        state.place(stage, start + pick)
