"""Prices that bound a level well: a subgradient method on the dual.

Steps are Polyak's towards a level below the best bound so far, which comes nearer where the path gets long without
reaching it (path-based level control: Brännlund 1993; Goffin and Kiwiel 1999). Directions are deflected as Camerini,
Fratta and Maffioli (1975) do it. Every value on the way is a bound, and the least of them is kept.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.dual import Dual
from iegopt.solvers.clock import Clock

__all__ = ["Bound", "descend", "first_prices"]

Floats = npt.NDArray[np.float64]

DEFLECTION = 1.5
MEMORY = 0.02
"""Weight of the last step in averages."""
PATIENCE = 20
"""Steps without a better bound until the level comes nearer."""
IN_VAIN = 20
"""Steps from the start without any gain after which it ends."""
FINEST = 1e-4
"""Relative distance of the level from the best bound at which it ends."""


@dataclass(frozen=True, eq=False)
class Bound:
    """A bound, the prices that prove it, how many times the dual was asked, and the instances of every class that
    decode at every pace, (C, P), on average of the steps: near the relaxation's best."""

    value: float
    prices: Floats
    steps: int
    opened: Floats


def first_prices(dual: Dual, clock: Clock) -> Floats:
    """The best of a few prices that are the same for a second of all classes, but for their speed."""
    C, G, _ = dual.shape
    speed = dual.classes.share / dual.mean_work()
    speed = speed / max(float(speed.sum()), 1e-12)
    best, value = np.zeros(dual.size), dual.at(np.zeros(dual.size)).value
    whole = value
    for g in sorted({G // 4, G // 2, (3 * G) // 4, G - 1}):
        for part in (0.05, 0.15, 0.3, 0.5, 0.8):
            prices = np.zeros(dual.size)
            prices[C * G : 2 * C * G].reshape(C, G)[:, g] = part * whole * speed
            prices[len(dual.scale) :] = 1.0
            found = dual.at(prices).value
            if found < value:
                best, value = prices, found
            if clock.left <= 0.0:
                return best
    return best


def descend(
    dual: Dual, target: float, clock: Clock, *, start: Floats | None = None, steps: int = 300, close: float = 1e-7
) -> Bound:
    """The least bound found from ``start``.

    Parameters
    ----------
    target
        What a plan has: no bound is below it.
    close
        Relative distance from the target at which it ends.
    """
    prices = np.zeros(dual.size) if start is None else start
    best, kept, asked = np.inf, prices, 0
    reach, since, low = np.inf, 0, np.inf
    first = np.inf
    direction: Floats | None = None
    opened = np.zeros(dual.shape[::2])
    while asked < steps:
        asked += 1
        found = dual.at(prices)
        opened += MEMORY * (found.opened - opened)
        if found.value < best:
            best, kept = found.value, prices
        if best - target <= close * max(1.0, abs(target)) or clock.left <= 0.0:
            break
        if not np.isfinite(reach):
            reach, low, first = (best - target) / 2, best, best
        if asked >= IN_VAIN and best >= first:
            break
        since += 1
        if best <= low - reach / 2:
            low, since = best, 0
        elif since >= PATIENCE:
            reach, since, low = reach / 2, 0, best
            prices, direction = kept, None
            if reach < FINEST * max(1.0, abs(best)):
                break
            found = dual.at(prices)
        slope = np.where((prices <= 0.0) & (found.slope > 0.0), 0.0, found.slope)
        if direction is not None:
            along, norm = float(direction @ slope), float(direction @ direction)
            if along < 0.0 < norm:
                slope = slope - DEFLECTION * along / norm * direction
        size = float(slope @ slope)
        if size <= 0.0:
            break
        direction = slope
        goal = max(target, best - reach)
        prices = np.maximum(0.0, prices - (found.value - goal) / size * slope)
    return Bound(best, kept, asked, opened)
