"""What the benchmark can run: an engine of two methods, ours and the peers alike."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, Problem
from iegopt.solvers.incumbent import Report
from iegopt.solvers.result import Params, Result

__all__ = ["Engine", "not_additive"]

Ints = npt.NDArray[np.int64]


class Engine(Protocol):
    """A solver or peer. Its process is warmed up before the clock starts."""

    packages: tuple[str, ...]
    """Import names that must be there; they are imported while it warms up."""
    fresh: bool
    """Whether every run wants a process of its own."""

    def supports(self, problem: Problem) -> str | None:
        """``None`` where it can state the problem, else the reason why it cannot."""

    def solve(self, problem: Problem, params: Params, hint: Ints | None, report: Report) -> Result:
        """Solve; ``report`` gets every better plan and bound as it is found."""


def not_additive(problem: Problem) -> str | None:
    """Why a peer that adds costs of options and of pairs, under linear capacities, cannot state a problem."""
    if problem.timed:
        return "a makespan, an order on devices or memory over time"
    if problem.has_path_limits:
        return "limits on finish times"
    if (problem.options.weight_key >= 0).any():
        return "weights shared between stages"
    if any(not rule.required and len(rule.stages) > 2 for rule in problem.affinities):
        return "a preferred affinity of more than two stages"
    if problem.budget < NO_LIMIT:
        return "a budget of time"
    return None
