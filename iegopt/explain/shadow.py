"""What a little more of a binding limit would save: shadow prices by finite differences.

Placement is a discrete problem, so a price is a difference and not a derivative: the limit is raised by a step, the
problem solved again, and the saving divided by the step. Two steps are taken, a unit one (1 GB of memory, a
hundredth of a limit in time) and, where it is larger, the least that lets the cheapest forbidden move happen. Only
limits that forbid a cheaper move of one stage are priced; all others have price 0 as far as single moves go.

Beside them stand the prices at the margin (``margins.py``): slopes of the relaxation's bound, which say of all devices
and paths at once what carries a price, and how much the next bit is worth where stages could be split.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.explain.alternatives import Move, moves
from iegopt.explain.chosen import spent_dollars
from iegopt.explain.margins import Margin, margins
from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.problem.compile import Compiled
from iegopt.solvers.api import solve
from iegopt.solvers.clock import Clock
from iegopt.solvers.evaluate import device_load, objective
from iegopt.solvers.result import Params, Status

__all__ = ["GB", "ShadowPrice", "ShadowPrices", "shadow_prices"]

Ints = npt.NDArray[np.int64]

GB = 10**9
_MARGINS_SHARE, _MARGINS_MOST = 0.2, 2.0
"""Share of the time, and seconds at most, for the prices at the margin."""
_OF_A_LIMIT = 0.01
"""The unit step of a limit in time, as a share of it."""


@dataclass(frozen=True)
class ShadowPrice:
    """What raising one limit by one step saves.

    Attributes
    ----------
    rule, where
        As in the explanation. For ``memory`` every device that the forbidden move overfills, each raised by the step.
    allowed, step, unit
        The limit (of memory, the least of these devices) and by how much it is raised, in ``B`` or ``s``.
    saving, dollars
        Seconds of objective, and dollars of the plan (negative: it costs more), that the step saves.
    price, dollar_price
        The same per GB, or per second of limit.
    forbids
        The stage whose cheaper move the limit forbids.
    proven
        Whether both plans are proven optimal.
    margin
        The price at the margin of the same limit, of all its devices or paths together: seconds of objective per GB
        or per second of limit. 0 where the relaxation does not pay for it, ``None`` where there are no such prices
        or none of this rule.
    """

    rule: str
    where: tuple[str, ...]
    allowed: float
    step: float
    unit: str
    saving: float
    dollars: float
    forbids: str
    proven: bool
    margin: float | None = None

    @property
    def per(self) -> str:
        """What the prices are per: ``GB`` or ``s``."""
        return "GB" if self.unit == "B" else "s"

    @property
    def price(self) -> float:
        return self.saving / self._steps

    @property
    def dollar_price(self) -> float:
        return self.dollars / self._steps

    @property
    def _steps(self) -> float:
        return self.step / GB if self.unit == "B" else self.step


@dataclass(frozen=True)
class ShadowPrices:
    """Prices, dearest first; ``note`` says which limits have none and why; ``margins`` are those of the relaxation."""

    prices: tuple[ShadowPrice, ...]
    complete: bool
    note: str
    margins: tuple[Margin, ...] = ()

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        rows = [
            {**asdict(row), "where": list(row.where), "price": row.price, "dollar_price": row.dollar_price,
             "per": row.per}
            for row in self.prices
        ]  # fmt: skip
        margins = [row.document() for row in self.margins]
        return {"prices": rows, "complete": self.complete, "note": self.note, "margins": margins}


@dataclass(frozen=True)
class _Limit:
    """A limit that forbids a cheaper move: ``excess`` is by how much the move breaks it, in ticks or scaled bytes."""

    rule: str
    index: tuple[int, ...]
    where: tuple[str, ...]
    allowed: int
    excess: int
    forbids: str


def shadow_prices(
    compiled: Compiled, choice: Ints, clock: Clock, params: Params | None = None, *, optimal: bool = True
) -> ShadowPrices:
    """Prices of the limits that forbid a cheaper move of one stage; ``optimal`` says what is proven of ``choice``."""
    limits, notes = _limits(compiled, choice)
    share = clock.slice(min(_MARGINS_MOST, _MARGINS_SHARE * clock.left))
    at_margin, why = margins(compiled, choice, share)
    before, spent = objective(compiled.problem, choice), spent_dollars(compiled, choice)
    prices: list[ShadowPrice] = []
    todo = [(limit, step) for limit in limits for step in _steps(compiled.problem, limit)]
    unit = {"B": compiled.problem.memory_scale, "s": TICKS_PER_SECOND}
    done = 0
    for number, (limit, step) in enumerate(todo):
        if clock.left <= 0:
            break
        kind = "B" if limit.rule == "memory" else "s"
        limit_of_step = clock.left / (len(todo) - number)
        wider = _raised(compiled.problem, limit, step)
        result = solve(wider, "auto", dataclasses.replace(params or Params(), time_limit=limit_of_step), choice)
        done += 1
        if result.choice is None or result.objective is None:
            continue
        prices.append(
            ShadowPrice(
                limit.rule, limit.where, limit.allowed / unit[kind], step / unit[kind], kind,
                (before - result.objective) / TICKS_PER_SECOND, spent - spent_dollars(compiled, result.choice),
                limit.forbids, optimal and result.status is Status.OPTIMAL, _margin(limit, at_margin, not why),
            )
        )  # fmt: skip
    if done < len(todo):
        notes.append(f"the time limit came before {len(todo) - done} of {len(todo)} steps were solved")
    notes += [why] if why else []
    prices.sort(key=lambda row: (row.rule, row.where, row.step))
    prices.sort(key=lambda row: -row.price)
    return ShadowPrices(tuple(prices), done == len(todo), "; ".join(notes), at_margin)


def _margin(limit: _Limit, at_margin: tuple[Margin, ...], known: bool) -> float | None:
    """The price at the margin of a limit: of its devices, of all paths to its stage, of the budget."""
    if not known or limit.rule == "sla":
        return None
    rows = [row for row in at_margin if row.rule == limit.rule]
    if limit.rule == "memory":
        rows = [row for row in rows if row.where[0] in limit.where]
    if limit.rule == "finish_by":
        rows = [row for row in rows if row.where[-1] == limit.where[0]]
    return sum((row.price for row in rows), 0.0)


def _limits(compiled: Compiled, choice: Ints) -> tuple[list[_Limit], list[str]]:
    """The limits that forbid the cheapest forbidden move of any stage, each once, with the least excess."""
    found: dict[tuple[str, tuple[int, ...]], _Limit] = {}
    notes = []
    for v in range(len(compiled.graph.stages)):
        blocked = moves(compiled, choice, v)[1]
        if blocked is None or blocked.obstacle is None:
            continue
        if blocked.obstacle.rule == "affinity":
            notes.append(f"the affinity of {blocked.obstacle.where} has no unit to price")
            continue
        limit = _limit(compiled.problem, choice, blocked)
        key = (limit.rule, limit.index)
        if key not in found or limit.excess < found[key].excess:
            found[key] = limit
    return list(found.values()), notes


def _limit(problem: Problem, choice: Ints, move: Move) -> _Limit:
    obstacle = move.obstacle
    assert obstacle is not None
    stage = problem.stages[move.stage]
    if obstacle.rule == "memory":
        moved = choice.copy()
        moved[move.stage] = move.option
        over = device_load(problem, moved) - problem.capacity
        devices = tuple(np.flatnonzero(over > 0).tolist())
        names = tuple(problem.topology.devices[d] for d in devices)
        return _Limit(
            "memory", devices, names, int(problem.capacity[list(devices)].min()), int(over.max()), stage
        )  # fmt: skip
    used, allowed = (round(value * TICKS_PER_SECOND) for value in (obstacle.used, obstacle.allowed))
    index = problem.stages.index(obstacle.where) if obstacle.rule in ("sla", "finish_by") else 0
    return _Limit(obstacle.rule, (index,), (obstacle.where,), allowed, used - allowed, stage)


def _steps(problem: Problem, limit: _Limit) -> list[int]:
    """The unit step, and the excess of the forbidden move where that is more."""
    unit = GB * problem.memory_scale if limit.rule == "memory" else max(1, math.ceil(_OF_A_LIMIT * limit.allowed))
    return [unit, limit.excess] if limit.excess > unit else [unit]


def _raised(problem: Problem, limit: _Limit, step: int) -> Problem:
    if limit.rule == "memory":
        capacity = problem.capacity.copy()
        capacity[list(limit.index)] += step
        return dataclasses.replace(problem, capacity=capacity)
    if limit.rule == "deadline":
        return dataclasses.replace(problem, deadline=problem.deadline + step)
    if limit.rule == "budget":
        return dataclasses.replace(problem, budget=problem.budget + step)
    of_stage = (problem.sla if limit.rule == "sla" else problem.finish_by).copy()
    of_stage[limit.index[0]] += step
    if limit.rule == "sla":
        return dataclasses.replace(problem, sla=of_stage)
    return dataclasses.replace(problem, finish_by=of_stage)
