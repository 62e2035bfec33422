"""The objective of the mixed-integer programme, in floats of a size that a simplex can stand.

Each stage's cheapest option is taken out as a constant and the rest is divided so that the largest coefficient is 1e6.
Where all are multiples of a grain of ticks, and few enough of them, that is the divisor: an engine then sees whole
numbers and rounds its bounds up to them. Bounds come back with a tolerance: a simplex is exact to about 1e-9 of its
numbers, we allow 1e-7; and an engine asks of a plan to be better than the last one by some 1e-5 (CBC), 1e-6 (HiGHS).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from iegopt.solvers.milp.variables import EdgeColumns, Variables

__all__ = ["Objective", "minimise"]

LARGEST = 1e6
TOLERANCE = 1e-7
INCREMENT = 2e-5
"""Units by which a plan may be better than the one that an engine calls optimal."""


@dataclass(frozen=True)
class Objective:
    """ticks = ``constant`` + Σ ``ticks``·column; ``least`` is the bound by signs alone.

    Every plan is worth a multiple of ``grain`` ticks above ``constant``; an engine is told of units of ``unit`` ticks.
    """

    ticks: dict[int, int]
    constant: int
    unit: float
    least: int
    grain: int

    @property
    def coefficient(self) -> dict[int, float]:
        """By column, in units."""
        return {column: c / self.unit for column, c in self.ticks.items()}

    def bound_ticks(self, value: float) -> int:
        """A dual bound of the programme as a proven bound in ticks, less the tolerance."""
        if not math.isfinite(value):
            return self.least
        above = value * self.unit
        slack = TOLERANCE * abs(above) + INCREMENT * self.unit
        return max(self.least, self.constant + math.ceil((above - slack) / self.grain) * self.grain)

    def up_to(self, most: int) -> Objective:
        """The same for every plan of at most ``most`` ticks, and more than that for every other.

        A column that makes a plan dearer by itself does so by a grain: what is left is closer together.
        """
        enough = most - self.least + self.grain
        ticks = {column: min(c, enough) for column, c in self.ticks.items()}
        return replace(self, ticks=ticks, unit=_unit(ticks, self.grain))


def minimise(variables: Variables, edges: Sequence[EdgeColumns], penalties: Sequence[tuple[int, int]]) -> Objective:
    """min Σ_o cost[o]·x[o] + Σ surcharge·w + Σ pair cost·w + Σ penalty·p."""
    cost = variables.problem.options.cost.copy()
    for edge in edges:
        np.add.at(cost, edge.terms.options, edge.terms.cost)
    constant = 0
    ticks: dict[int, int] = {}
    for own in variables.options:
        cheapest = int(cost[own].min())
        constant += cheapest
        ticks |= {variables.x[o]: c for o, c in zip(own.tolist(), (cost[own] - cheapest).tolist(), strict=True) if c}
    ticks |= {d.column: d.cost for edge in edges for d in edge.due if d.cost}
    ticks |= {column: penalty for column, penalty in penalties if penalty}
    grain = math.gcd(*ticks.values()) or 1
    least = constant + sum(c for c in ticks.values() if c < 0)
    return Objective(ticks, constant, _unit(ticks, grain), least, grain)


def _unit(ticks: dict[int, int], grain: int) -> float:
    largest = max(map(abs, ticks.values()), default=0)
    return float(grain) if largest <= LARGEST * grain else largest / LARGEST
