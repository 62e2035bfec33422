"""Prices at the margin: the multipliers of the Lagrangian relaxation of a whole problem.

The dual bound is concave in the limits, and its multipliers are its slopes: a GB or a second more raises what is left
to save by the price, as the LP's dual values do (Geoffrion, Math. Programming Study 2, 1974). Nothing is pruned, since
an option that no better plan can use now may be what more of a limit is for; and memory counts as it is, not as
strengthened weights, whose steps have no slope.
"""

from __future__ import annotations

import numpy as np

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.branching import propagate
from iegopt.solvers.exact.candidates import candidates
from iegopt.solvers.exact.handover import multipliers_of
from iegopt.solvers.exact.pricing import Pricing, no_split
from iegopt.solvers.multipliers import Multipliers

__all__ = ["margins_of"]

_PHASES, _STEPS, _DECAY = 16, 25, 0.75
_GAIN = 1e-5
"""Relative gain of the bound in a phase below which prices are taken as settled, from the third phase on."""


def margins_of(problem: Problem, value: int, clock: Clock) -> Multipliers | None:
    """Multipliers of a problem whose best known plan costs ``value`` ticks; ``None`` where it has no plan at all.

    The clock ends the steps early; at least one is made.
    """
    c = candidates(problem, problem.allowed)
    keep = propagate(c, np.ones(len(c.option), dtype=np.bool_))
    if keep is None:
        return None
    price, toll, split = np.zeros((len(c.capacity), 1)), np.zeros((0, 1)), tuple(no_split(c, 1))
    bound = 0
    for phase in range(_PHASES):
        pricing = Pricing(c, keep[:, None], price, split, toll, strengthened=False)
        priced = pricing.run(lambda: value, _STEPS, _DECAY**phase, lambda plan: None, lambda ahead: clock.left <= ahead)
        before, bound = bound, int(priced.bound[0])
        price, toll, split = priced.price, priced.toll, priced.split
        if bound >= value or clock.left <= 0 or (phase > 1 and bound - before < _GAIN * abs(bound)):
            break
    devices = np.zeros(problem.topology.D)
    devices[c.used] = price[:-1, 0]
    return multipliers_of(problem, devices, c.rows, toll[:, 0])
