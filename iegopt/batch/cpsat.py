"""The monolithic oracle: the CP-SAT model of the whole, level by level, in a child process that can be killed."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import Outcome
from iegopt.batch.placement import Placement
from iegopt.batch.schedule import evaluate
from iegopt.errors import BackendError
from iegopt.solvers.killable import Child, grace_for

__all__ = ["CpsatAnswer", "CpsatJob", "solve_cpsat"]

Floats = npt.NDArray[np.float64]
Report = Callable[[Placement], None]


@dataclass(frozen=True, eq=False)
class CpsatJob:
    """What the child is given; ``until`` is on the system-wide monotonic clock."""

    model: BatchModel
    hint: Placement | None
    until: float
    threads: int
    seed: int


@dataclass(frozen=True, eq=False)
class CpsatAnswer:
    """The best placement found.

    Attributes
    ----------
    proven
        Levels that were solved to the end, from the first on: no placement of *this model* is better there. What it
        leaves out (``cpsat_model``) may still allow better ones.
    found
        (seconds, objective) of every better placement on the way.
    killed
        Whether the child had to be killed.
    """

    placement: Placement
    outcome: Outcome
    seconds: float
    proven: int
    found: list[tuple[float, Floats]] = field(default_factory=list)
    killed: bool = False

    @property
    def objective(self) -> Floats:
        return self.outcome.objective


def solve_cpsat(
    model: BatchModel, time_limit: float, *, hint: Placement | None = None, threads: int = 1, seed: int = 0
) -> CpsatAnswer:
    """The best placement of the CP-SAT model in so many seconds.

    Raises
    ------
    BackendError
        The engine failed, or the model has what is not modelled (``cpsat_model.unsupported``).
    """
    began = time.monotonic()
    best = Placement.empty(model) if hint is None else hint
    outcome, proven, killed = evaluate(model, best), 0, True
    found: list[tuple[float, Floats]] = []
    child = Child("iegopt.batch.cpsat_child")
    try:
        child.send(CpsatJob(model, hint, began + time_limit, threads, seed))
        while (message := child.receive(began + time_limit + grace_for(time_limit))) is not None:
            kind, *content = message
            if kind in ("error", "died"):
                raise BackendError(f"cpsat: {content[0]}")
            if kind == "proven":
                proven = content[0]
            elif kind == "end":
                killed = False
                break
            else:
                (placement,) = content
                reached = evaluate(model, placement)
                if reached.feasible and _better(reached.objective, outcome.objective):
                    best, outcome = placement, reached
                    found.append((time.monotonic() - began, reached.objective))
    finally:
        child.kill()
    return CpsatAnswer(best, outcome, time.monotonic() - began, proven, found, killed)


def _better(objective: Floats, than: Floats) -> bool:
    """Whether it is more at the first level at which they differ."""
    different = np.flatnonzero(np.abs(objective - than) > 1e-9)
    return bool(len(different) and objective[different[0]] > than[different[0]])
