"""Shadow prices at the margin: the multipliers of the relaxation, in the user's units."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import TICKS_PER_SECOND
from iegopt.problem.compile import Compiled
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import finish_times, objective
from iegopt.solvers.exact.margins import margins_of
from iegopt.solvers.exact.prices import unpriceable
from iegopt.solvers.multipliers import Multipliers

__all__ = ["Margin", "margins"]

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Margin:
    """What the next bit of a limit is worth in the relaxation: the slope of its bound.

    Attributes
    ----------
    rule, where
        ``memory`` of one device; ``deadline`` or ``finish_by`` with the stages of the path that it limits, ``budget``
        with its stages.
    price, per
        Seconds of objective per ``GB``, or per ``s`` of limit.
    dollars_per_gb_hour
        For memory: the same in dollars at the request's weight of money, by the hours that the plan takes. ``None``
        for other rules, and where money has no weight or price.
    """

    rule: str
    where: tuple[str, ...]
    price: float
    per: str
    dollars_per_gb_hour: float | None = None

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        return {**asdict(self), "where": list(self.where)}


def margins(compiled: Compiled, choice: Ints, clock: Clock) -> tuple[tuple[Margin, ...], str]:
    """The prices of a plan's limits at the margin, dearest first, and why there are none."""
    problem = compiled.problem
    reason = unpriceable(problem, problem.allowed)
    if reason is None and clock.left <= 0:
        reason = "the time limit came before they were found"
    found = None if reason is not None else margins_of(problem, objective(problem, choice), clock)
    if found is None:
        return (), f"no prices at the margin: {reason}" if reason is not None else ""
    return _in_words(compiled, choice, found), ""


def _in_words(compiled: Compiled, choice: Ints, found: Multipliers) -> tuple[Margin, ...]:
    gamma, reference = compiled.weights.gamma, compiled.cluster.reference_price
    hours = int(finish_times(compiled.problem, choice).max(initial=0)) / TICKS_PER_SECOND / 3600
    # A second of objective is reference / 3600 / gamma dollars, and the memory is held for the whole plan.
    per_second = reference / 3600 / gamma / hours if gamma > 0 and hours > 0 else None
    rows = [
        Margin("memory", (device,), price, "GB", None if per_second is None else price * per_second)
        for device, price in found.memory.items()
    ]
    rows += [Margin(limit.rule, limit.stages, limit.price, "s") for limit in found.limits]
    return tuple(sorted(rows, key=lambda row: (row.rule != "memory", -row.price, row.where)))
