"""A row of the results: what a run left, verified. Costs and bounds are ticks, times seconds.

``status``: a solver's own ``optimal``, ``feasible``, ``infeasible``, ``unknown``; or ``refused`` (the verifier found
its plan or claim wrong), ``crashed``, ``error``, ``unsupported``, ``missing`` (not installed), ``skipped``, each with
its ``reason``. ``start`` is there where a plan's start times are part of it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.bench.process import Outcome, Point
from iegopt.problem.arrays import Problem
from iegopt.solvers.result import OPTIMALITY_GAP, Result, relative_gap
from iegopt.verify.assignment import check_assignment

__all__ = ["ANSWERED", "failed", "row_of"]

ANSWERED = ("optimal", "feasible", "infeasible", "unknown")
"""Statuses of runs that count; the others have only a reason."""

Row = dict[str, Any]
_EMPTY: Row = {
    "objective": None, "bound": None, "proof": None, "makespan": None, "seconds": None, "killed": False,
    "memory": None, "choice": None, "start": None, "trajectory": [],
}  # fmt: skip


def failed(base: Row, status: str, reason: str) -> Row:
    """A row without a run, or whose run gave nothing."""
    return {**base, **_EMPTY, "status": status, "reason": reason}


def row_of(base: Row, problem: Problem, outcome: Outcome) -> Row:
    """The row of a run; of one that was killed or died, what it had streamed until then."""
    trajectory = _trajectory(problem, outcome.points)
    seen: Row = {"seconds": outcome.seconds, "killed": outcome.killed, "memory": outcome.memory}
    result = outcome.result
    if result is None:
        row = {**failed(base, outcome.failure or "unknown", outcome.reason or ""), **seen, "trajectory": trajectory}
        plans = [(point.choice.tolist(), _list(point.start)) for point in outcome.points if point.choice is not None]
        bounds = [(point.bound, point.proof) for point in outcome.points if point.bound is not None]
        if plans:
            row["choice"], row["start"] = plans[-1]
        if bounds:
            row["bound"], row["proof"] = max(bounds, key=lambda pair: pair[0])
        return _checked(row, problem, None) if plans else row
    plan = {"choice": _list(result.choice), "start": _list(result.start)}
    if result.objective is not None or result.bound is not None:
        trajectory = _extended(trajectory, outcome.seconds, result)
    claims = {"bound": result.bound, "proof": result.proof, "trajectory": trajectory}
    row = {**failed(base, str(result.status), result.note), **seen, **plan, **claims}
    return row if result.choice is None else _checked(row, problem, result)


def _checked(row: Row, problem: Problem, result: Result | None) -> Row:
    """The row with the verifier's own objective; refused where a constraint or a claim is broken."""
    report = check_assignment(problem, row["choice"], row["start"])
    broken = [str(violation) for violation in report.violations]
    if result is not None and report.objective != result.objective:
        broken.append(f"claims {result.objective}, is {report.objective}")
    gap = relative_gap(report.objective, row["bound"])
    if gap is not None and gap < 0:
        broken.append(f"its bound {row['bound']} is above its plan's {report.objective}")
    if row["status"] == "optimal" and (gap is None or gap > OPTIMALITY_GAP):
        broken.append("claims an optimum without a bound that meets it")
    if broken:
        return {**row, "status": "refused", "reason": "; ".join(broken), "choice": None, "start": None}
    status = row["status"]
    if result is None and status == "unknown":
        status = "optimal" if gap is not None and gap <= OPTIMALITY_GAP else "feasible"
    return {**row, "status": status, "objective": report.objective, "makespan": report.makespan}


def _list(array: npt.NDArray[np.int64] | None) -> list[int] | None:
    return None if array is None else array.tolist()


def _trajectory(problem: Problem, points: list[Point]) -> list[list[float | int | None]]:
    """[seconds, objective, bound] at every improvement, priced by the verifier; a refused plan is left out."""
    objective: float | None = None
    bound: int | None = None
    found: list[list[float | int | None]] = []
    for point in points:
        if point.choice is not None:
            report = check_assignment(problem, point.choice.tolist(), _list(point.start))
            if report.ok and report.objective is not None and (objective is None or report.objective < objective):
                objective = report.objective
        if point.bound is not None:
            bound = point.bound if bound is None else max(bound, point.bound)
        if not found or found[-1][1:] != [objective, bound]:
            found.append([round(point.seconds, 6), objective, bound])
    return found


def _extended(trajectory: list[list[float | int | None]], seconds: float, result: Result) -> list[list[Any]]:
    last = [result.objective, result.bound]
    if trajectory and trajectory[-1][1:] == last:
        return trajectory
    return [*trajectory, [round(seconds, 6), *last]]
