"""Capacity as prices, for stages that share memory and no cost: a bound and reduced costs of all options, quickly.

Generalised assignment relaxes with a price λ_d ≥ 0 for the whole memory of every device into a choice for each
stage by itself, so that a step costs O(options):

    bound(λ) = Σ_v min_o [ cost(o) + ⌊λ_d(o) · share(o) / capacity(d)⌋ ] − Σ_d ⌈λ_d⌉

λ follows a deflected subgradient towards a target above the best bound so far (Camerini, Fratta, Maffioli, Math.
Programming Study 3, 1975). The optimum over λ is that of the linear relaxation.

Source: Fisher, Jaikumar, Van Wassenhove, A multiplier adjustment method for the generalized assignment problem,
Management Science 32 (1986).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import Problem
from iegopt.solvers.clock import Clock
from iegopt.solvers.exact.messages import UNREACHABLE

__all__ = ["CapacityPrices", "capacity_prices"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_STEPS, _PATIENCE, _SHRINK, _SHORTEST = 2_000, 20, 0.7, 1e-3
"""Steps at most; steps without a gain until the step length shrinks, by what, and the length at which it ends."""
_DEFLECTION = 0.6
_GAIN = 1e-6
"""Relative gain of the bound that counts as one."""
_AHEAD = 0.05
"""The target above the best bound, in parts of it, where no plan is known."""
_BELOW = 1 - 1e-12
"""What prices are charged at, so that what is rounded in floats never exceeds them."""


@dataclass(frozen=True, eq=False)
class CapacityPrices:
    """What the best prices found prove.

    Attributes
    ----------
    bound
        Ticks; no plan costs less.
    price (D,)
        Ticks for the whole memory of every device.
    marginals (O,)
        Lower bounds on any plan that uses the option; ``UNREACHABLE`` where it is not allowed.
    """

    bound: int
    price: Floats
    marginals: Ints


def capacity_prices(problem: Problem, upper: int | None, clock: Clock) -> CapacityPrices:
    """Prices of a problem whose sites have one device each; costs of edges count as 0.

    Parameters
    ----------
    upper
        The best known objective, in ticks, to step towards.
    """
    options, topology = problem.options, problem.topology
    first, stage, D = options.ptr[:-1], options.stage, topology.D
    device = topology.device_index[topology.device_ptr[options.site]]
    weight = options.share / np.maximum(problem.capacity[device], 1) * _BELOW
    cost = np.where(problem.allowed, options.cost, UNREACHABLE)
    above_any_plan = float(np.maximum.reduceat(np.where(problem.allowed, options.cost, 0), first).sum()) + 1.0
    dearest = UNREACHABLE / 2 / D
    price, best_price, best = np.zeros(D), np.zeros(D), -float(UNREACHABLE)
    direction, length, idle = np.zeros(D), 1.0, 0
    for _ in range(_STEPS):
        reduced = cost + price[device] * weight
        chosen = _first_least(reduced, first, stage)
        bound = float(reduced[chosen].sum() - price.sum())
        if bound > best + _GAIN * abs(best):
            best, best_price, idle = bound, price, 0
        else:
            idle += 1
            if idle >= _PATIENCE:
                length *= _SHRINK
                price, direction, idle = best_price, np.zeros(D), 0
                continue
        slope = np.bincount(device[chosen], weight[chosen], D) - 1.0
        slope[(price <= 0) & (slope < 0)] = 0.0
        direction = slope + _DEFLECTION * direction
        norm = float(direction @ direction)
        if norm < 1e-9 or length < _SHORTEST or best > above_any_plan or clock.left <= 0:
            break
        target = best + _AHEAD * abs(best) if upper is None else float(upper)
        room = max(target - bound, 1e-4 * abs(best))
        price = np.clip(price + length * room / norm * direction, 0.0, dearest)
    charged = np.floor(best_price[device] * weight).astype(np.int64)
    reduced_ticks = np.where(problem.allowed, options.cost + charged, UNREACHABLE)
    least = np.minimum.reduceat(reduced_ticks, first)
    proven = int(least.sum()) - int(np.ceil(best_price).sum())
    marginals = np.where(problem.allowed, reduced_ticks - least[stage] + proven, UNREACHABLE)
    return CapacityPrices(proven, best_price, marginals)


def _first_least(value: Floats, first: Ints, stage: Ints) -> Ints:
    """(V,) the first of the least options of every stage."""
    at = np.flatnonzero(value <= np.minimum.reduceat(value, first)[stage])
    return np.asarray(at[np.unique(stage[at], return_index=True)[1]])
