"""The objective of the CP-SAT model, exact in integers.

CP-SAT adds in int64 and reports in float64, so that ticks are divided by the greatest common divisor
of all coefficients after each stage's cheapest option is taken out as a constant. Where the sum is still
above 2^60 they are divided further and rounded down: the model then bounds the true objective from
below and the plan is priced by ``evaluate.objective`` as ever.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ortools.sat.python import cp_model

from iegopt.solvers.cpsat.timing import MakespanCost
from iegopt.solvers.cpsat.variables import EdgeVariables, Variables

__all__ = ["Objective", "minimise"]

MOST = 2**60


@dataclass(frozen=True)
class Objective:
    """ticks ≥ ``constant`` + ``divisor`` · value of the model; equal where the divisor divides every cost.

    ``least`` is the smallest sum that signs alone allow, a bound in ticks.
    """

    constant: int
    divisor: int
    least: int

    def ticks(self, value: int) -> int:
        """A bound of the model as a bound in ticks."""
        return max(self.least, self.constant + self.divisor * value)


def minimise(
    variables: Variables,
    edges: Sequence[EdgeVariables],
    penalties: Sequence[tuple[cp_model.IntVar, int]],
    makespan: MakespanCost | None = None,
) -> Objective:
    """min Σ_o cost[o]·x[o] + Σ surcharge·d + Σ pair cost·w + Σ penalty·p + weight·makespan."""
    problem = variables.problem
    cost = problem.options.cost.copy()
    for edge in edges:
        np.add.at(cost, edge.terms.options, edge.terms.cost)
    constant = 0
    terms: list[tuple[cp_model.IntVar, int]] = []
    for own in variables.options:
        cheapest = int(cost[own].min())
        constant += cheapest
        terms += [(variables.x[o], c) for o, c in zip(own.tolist(), (cost[own] - cheapest).tolist(), strict=True) if c]
    terms += [(d.literal, d.cost) for edge in edges for d in edge.due if d.cost]
    terms += penalties
    most = [abs(c) for _, c in terms]
    if makespan is not None:
        terms.append((makespan.variable, makespan.coefficient))
        most.append(makespan.coefficient * makespan.upper)
    coefficients = [c for _, c in terms]
    divisor = math.gcd(*coefficients) or 1
    divisor *= -(-sum(most) // divisor // MOST) or 1
    variables.model.minimize(
        cp_model.LinearExpr.weighted_sum([literal for literal, _ in terms], [c // divisor for c in coefficients])
    )
    return Objective(constant, divisor, constant + sum(c for c in coefficients if c < 0))
