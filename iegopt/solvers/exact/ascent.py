"""Steps of prices up the bounds of many nodes: a deflected subgradient with Polyak's step towards the best known plan.

Source: Camerini, Fratta, Maffioli, On improving relaxation methods by modified gradient techniques, Math. Programming
Study 3 (1975).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from iegopt.solvers.exact.compiled import kernels
from iegopt.solvers.exact.messages import UNREACHABLE
from iegopt.solvers.exact.time_rows import TimeRows

__all__ = ["Ascent", "in_order"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

_PATIENCE, _SHRINK = 5, 0.6
"""Steps without a gain until the step length shrinks, and by what."""
_DEFLECTION = 0.5
_FALL, _CUT = 0.1, 0.3
"""Fall of the bound, in parts of the distance to the best known plan, from which a step was too long and is taken again
from the best prices, and by what it is shorter then: a gap of the integers makes Polyak's step too long."""
_GAIN = 1e-5
"""Relative gain of the bound that counts as one."""
_FARTHEST = 0.05
"""Distance to the best known plan that a step reckons with at most, in parts of the bound."""


class Ascent:
    """Prices of B nodes on their way.

    Parameters
    ----------
    price (D + 1, B), toll (R, B)
        To start from: ticks for a whole device, and per unit of a limit in time.
    length
        Of the first step, in parts of Polyak's.
    again
        Whether a step that was too long is taken again from the best prices.

    Attributes
    ----------
    price, toll
        Of the next evaluation.
    best (B,), best_price, best_toll
        The best bounds in ticks, and the prices that prove them.
    """

    def __init__(self, price: Floats, toll: Floats, rows: TimeRows, length: float, again: bool) -> None:
        B = price.shape[1]
        self._rows, self._again = rows, again
        self.price, self.toll = price, toll
        self.best_price, self.best_toll = self.price.copy(), toll.copy()
        self.best = np.full(B, -UNREACHABLE)
        self._excess, self._late = np.zeros_like(self.price), np.zeros_like(toll)
        self._steepest, self._latest = np.zeros_like(self.price), np.zeros_like(toll)
        self._direction, self._pressure = np.zeros_like(self.price), np.zeros_like(toll)
        self._bound = self.best
        self._pace, self._stall = np.full(B, length), np.zeros(B, dtype=np.int64)

    def record(self, bound: Ints, excess: Floats, late: Floats) -> Bools:
        """Take what an evaluation at the prices gave: bounds (B,) and subgradients; the nodes with a new best bound.

        ``late`` (R, B) may have more rows than the prices that were evaluated: paths that are late there.
        """
        self._bound, self._excess = bound, excess
        self.toll, self._pressure, self._latest, self.best_toll = map(
            self._rows.padded, (self.toll, self._pressure, self._latest, self.best_toll)
        )
        self._late = late
        gain: Bools = bound > self.best
        ready = kernels()
        if len(self.toll):
            self.best_toll, self._latest = (
                np.where(gain, new, old) for new, old in ((self.toll, self.best_toll), (late, self._latest))
            )
        if ready is not None:
            self.best = self.best.copy()
            ready.record_prices(bound, self.best, self._stall, (self.price, self.best_price, excess, self._steepest))
            return gain
        self._stall = np.where(bound > self.best + np.abs(self.best) * _GAIN, 0, self._stall + 1)
        self.best_price[:, gain] = self.price[:, gain]
        self._steepest[:, gain] = excess[:, gain]
        self.best = np.maximum(self.best, bound)
        return gain

    def move(self, upper: int) -> Floats:
        """Take a step; (B,) ticks to the best known plan, of ``upper``, that it reckoned with."""
        ready = kernels()
        if ready is not None and not len(self.toll):
            room = np.empty(len(self.best))
            prices = self.price, self.best_price, self._excess, self._steepest, self._direction
            ready.move_prices(upper, self._again, self._bound, self.best, self._stall, self._pace, prices, room)
            return room
        best, bound = self.best, self._bound
        fell = (best - bound > _FALL * (upper - best.astype(np.float64))) & self._again
        price, toll = np.where(fell, self.best_price, self.price), np.where(fell, self.best_toll, self.toll)
        excess, late = np.where(fell, self._steepest, self._excess), np.where(fell, self._latest, self._late)
        tired = self._stall >= _PATIENCE
        self._pace = np.where(fell, self._pace * _CUT, np.where(tired, self._pace * _SHRINK, self._pace))
        self._stall = np.where(fell | tired, 0, self._stall)
        reach = np.where(fell, best, bound)
        excess[(price <= 0) & (excess < 0)] = 0.0
        late[(toll <= 0) & (late < 0)] = 0.0
        direction = excess + _DEFLECTION * np.where(fell, 0.0, self._direction)
        pressure = late + _DEFLECTION * np.where(fell, 0.0, self._pressure)
        norm = np.maximum(in_order(direction * direction) + in_order(pressure * pressure), 1e-9)
        size = np.abs(np.minimum(reach, UNREACHABLE // 2)).astype(np.float64)
        room = np.clip(upper - reach.astype(np.float64), 1e-4 * size, _FARTHEST * size)
        length = self._pace * room / norm
        self.price = np.rint(np.maximum(0.0, price + length * direction))
        self.toll = np.rint(np.clip(toll + length * pressure, 0.0, self._rows.most))
        self._direction, self._pressure = direction, pressure
        return room


def in_order(values: Floats) -> Floats:
    """(B,) sums of columns (R, B), from the first row to the last as kernels take them: floats round by their order."""
    return np.cumsum(values, axis=0)[-1] if len(values) else np.zeros(values.shape[1])
