"""What goes into a solver and what comes out: parameters, status, result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.errors import InputError
from iegopt.solvers.multipliers import Multipliers
from iegopt.units import a_kind

__all__ = ["MOST_SECONDS", "OPTIMALITY_GAP", "Params", "Report", "Result", "Status", "relative_gap", "unheard"]

OPTIMALITY_GAP = 1e-6
"""``optimal`` means proven to this relative gap (the instance contract)."""
_LARGEST = 2**31 - 1
"""Threads, and seed, at most."""

MOST_SECONDS = 10 * 365.25 * 86400.0
"""A longer time limit counts as this one: no wait of the operating system or of an engine takes much longer ones."""

Report = Callable[..., None]
"""Receives (plan or ``None``, bound in ticks or ``None``, what proved the bound[, start times]) as a solver runs."""


def unheard(*_: object) -> None:
    """The report to nobody."""


class Status(StrEnum):
    """How a solve ended.

    ``OPTIMAL``: a plan, and a bound within ``OPTIMALITY_GAP`` of it. ``FEASIBLE``: a plan.
    ``INFEASIBLE``: proven that there is none. ``UNKNOWN``: stopped by a limit before either.
    """

    OPTIMAL = "optimal"
    FEASIBLE = "feasible"
    INFEASIBLE = "infeasible"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Params:
    """Limits and knobs shared by all solvers.

    ``time_limit`` is in seconds, ``None`` for none; one above ``MOST_SECONDS`` becomes that. ``log`` receives progress
    lines. ``check`` makes delta evaluations recompute in full and compare. ``report`` receives plans and bounds as they
    are found, those that are better than all before, and some that are not; an exception that it raises ends the solve.
    ``multipliers`` are prices to start from, such as the result of a similar problem has: they change how soon a bound
    is found, never whether it holds.

    Raises
    ------
    InputError
        A time limit below 0 or not a number; ``threads`` or ``seed`` not a whole number from 1, or 0, to 2³¹ − 1,
        which is what every engine takes; a ``log`` or ``report`` that cannot be called, ``multipliers`` that are none.
    """

    time_limit: float | None = None
    threads: int = 1
    seed: int = 0
    log: Callable[[str], None] | None = None
    check: bool = False
    report: Report = unheard
    multipliers: Multipliers | None = None

    def __post_init__(self) -> None:
        limit = self.time_limit
        if limit is not None:
            if isinstance(limit, bool) or not isinstance(limit, Real) or not limit >= 0:
                raise InputError(f"time_limit {limit!r}: expected a number of seconds, at least 0")
            object.__setattr__(self, "time_limit", float(min(limit, MOST_SECONDS)))
        for name, value, least in (("threads", self.threads, 1), ("seed", self.seed, 0)):
            whole = isinstance(value, Integral) and not isinstance(value, bool)
            if not whole or not least <= value <= _LARGEST:
                raise InputError(f"{name} {value!r}: expected a whole number from {least} to {_LARGEST}")
            object.__setattr__(self, name, int(value))
        if not (self.log is None or callable(self.log)):
            raise InputError(f"log: {a_kind(type(self.log))}, expected a function of a line, or None")
        if not callable(self.report):
            raise InputError(
                f"report: {a_kind(type(self.report))}, expected a function of a plan, a bound and its proof"
            )
        if not (self.multipliers is None or isinstance(self.multipliers, Multipliers)):
            raise InputError(f"multipliers: {a_kind(type(self.multipliers))}, expected those of a result, or None")


@dataclass(frozen=True, eq=False)
class Result:
    """A solver's claim; nothing in it is taken for true before ``verify``.

    Attributes
    ----------
    choice (V,)
        Option index of every stage, or ``None``.
    objective, bound
        Ticks; ``bound`` is a proven lower bound, ``None`` where nothing is proven.
    proof
        Name of what proved the bound, or that there is no plan; ``None`` without either.
    note
        One sentence on how it ended, e.g. why a solver does not apply.
    start (V,)
        Ticks at which every stage starts, where stages must not overlap; ``None`` elsewhere: as soon as possible.
    multipliers
        Prices of memory and limits in time at the root of a search with prices; ``None`` where there was none.
    """

    status: Status
    choice: npt.NDArray[np.int64] | None
    objective: int | None
    bound: int | None
    proof: str | None
    solver: str
    seconds: float
    note: str
    stats: Mapping[str, Any] = field(default_factory=dict)
    start: npt.NDArray[np.int64] | None = None
    multipliers: Multipliers | None = None

    def __post_init__(self) -> None:
        if (self.choice is None) != (self.objective is None):
            raise ValueError("a result has a choice and an objective, or neither")
        if self.status in (Status.OPTIMAL, Status.FEASIBLE) and self.choice is None:
            raise ValueError(f"status {self.status} without a plan")
        if self.status in (Status.INFEASIBLE, Status.UNKNOWN) and self.choice is not None:
            raise ValueError(f"status {self.status} with a plan")
        if self.status is Status.INFEASIBLE and self.bound is not None:
            raise ValueError(f"status {self.status} with a bound")
        if self.status is Status.INFEASIBLE and not self.proof:
            raise ValueError(f"status {self.status} without a proof")
        if self.choice is None and self.start is not None:
            raise ValueError("start times without a plan")
        if self.objective is not None and self.bound is not None and self.bound > self.objective:
            raise ValueError(f"bound {self.bound} above objective {self.objective}")

    @property
    def gap(self) -> float | None:
        """(objective − bound) / |objective|; ``None`` where either is missing."""
        return relative_gap(self.objective, self.bound)


def relative_gap(objective: float | None, bound: float | None) -> float | None:
    """(objective − bound) / |objective|, 0 where both are equal."""
    if objective is None or bound is None:
        return None
    if objective == bound:
        return 0.0
    return (objective - bound) / abs(objective) if objective else float("inf")
