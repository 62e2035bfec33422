"""Results in figures: per family, limit and solver; in the order of the suite."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import Any

from iegopt.bench.metrics import (
    answered,
    best_known,
    bound_in_time,
    gap_to,
    late,
    primal_integral,
    time_to,
    value_at,
    value_in_time,
)
from iegopt.solvers.result import relative_gap

__all__ = ["EARLY", "Line", "proven_gap", "summary"]

Row = dict[str, Any]

EARLY = 1.0
"""Seconds after which a gap is told beside that at the end."""


@dataclass(frozen=True)
class Line:
    """What a solver did on a family within a limit.

    Attributes
    ----------
    hint
        The solver whose plan it starts from.
    runs, plans, proved
        Runs that count; of these, in time, with a verified plan, and with a proof of optimality or infeasibility.
    early_gap, median_gap, worst_gap
        To the best known value, infinite without a plan: the median over all runs after ``EARLY`` seconds (``None``
        where the limit is not longer), median and worst at the end. ``None`` where no value is known.
    proven_gap
        Median of (objective − bound) / |objective| over all runs, infinite without plan or bound.
    near_seconds
        Median seconds until within 1 % of the best known value, over all runs; ``None`` where most never were.
    integral
        Mean primal integral over all runs.
    seconds
        Mean seconds a run.
    memory
        Largest peak in bytes.
    late
        Runs that went on after their limit, killed or not.
    remarks
        Why runs are missing or broken, with their number: the most frequent first.
    """

    family: str
    limit: float
    solver: str
    hint: str | None
    runs: int
    plans: int
    proved: int
    early_gap: float | None
    median_gap: float | None
    worst_gap: float | None
    proven_gap: float | None
    near_seconds: float | None
    integral: float | None
    seconds: float | None
    memory: int | None
    late: int
    remarks: tuple[str, ...]


def summary(document: dict[str, Any]) -> list[Line]:
    """The table of a results document."""
    rows: list[Row] = document["rows"]
    best = best_known(rows)
    groups: dict[tuple[str, float, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row["family"], row["limit"], row["solver"]), []).append(row)
    families = list(dict.fromkeys(row["family"] for row in rows))
    solvers = list(dict.fromkeys(row["solver"] for row in rows))
    order = sorted(groups, key=lambda key: (families.index(key[0]), key[1], solvers.index(key[2])))
    return [_line(*key, groups[key], best) for key in order]


def _line(family: str, limit: float, solver: str, rows: list[Row], best: dict[str, float]) -> Line:
    ran = [row for row in rows if answered(row)]
    valued = [row for row in ran if row["instance"] in best]
    gaps = [_or_never(gap_to(best[row["instance"]], value_in_time(row))) for row in valued]
    early = [_or_never(gap_to(best[row["instance"]], value_at(row, EARLY))) for row in valued if row["limit"] > EARLY]
    proven = [_or_never(proven_gap(row)) for row in ran if row["status"] != "infeasible"]
    near = [time_to(row, best[row["instance"]]) for row in valued]
    median_near = statistics.median(map(_or_never, near)) if near else math.inf
    times = [row["seconds"] for row in ran if row["seconds"] is not None]
    peaks = [row["memory"] for row in ran if row["memory"] is not None]
    odd = Counter(
        f"{row['status']}: {row['reason']}"
        for row in rows
        if row["status"] not in ("optimal", "feasible", "infeasible")
    )
    return Line(
        family=family,
        limit=limit,
        solver=solver,
        hint=rows[0]["hint"],
        runs=len(ran),
        plans=sum(value_in_time(row) is not None for row in ran),
        proved=sum(row["status"] in ("optimal", "infeasible") and not late(row) for row in ran),
        early_gap=statistics.median(early) if early else None,
        median_gap=statistics.median(gaps) if gaps else None,
        worst_gap=max(gaps, default=None),
        proven_gap=statistics.median(proven) if proven else None,
        near_seconds=median_near if math.isfinite(median_near) else None,
        integral=statistics.fmean(primal_integral(row, best[row["instance"]]) for row in valued) if valued else None,
        seconds=statistics.fmean(times) if times else None,
        memory=max(peaks) if peaks else None,
        late=sum(late(row) for row in ran),
        remarks=tuple(f"{count} × {words}" for words, count in odd.most_common()),
    )


def proven_gap(row: Row) -> float | None:
    """(objective − bound) / |objective| when the time of a run was over; ``None`` without plan or bound."""
    return relative_gap(value_in_time(row), bound_in_time(row))


def _or_never(value: float | None) -> float:
    return math.inf if value is None else value
