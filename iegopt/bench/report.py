"""Results in figures: per family, limit and solver; in the order of the suite."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from dataclasses import dataclass
from typing import Any

from iegopt.bench.metrics import answered, best_known, gap_to, late, primal_integral, time_to, value_in_time

__all__ = ["Line", "summary"]

Row = dict[str, Any]


@dataclass(frozen=True)
class Line:
    """What a solver did on a family within a limit.

    Attributes
    ----------
    runs, plans, proved
        Runs that count; of these, in time, with a verified plan, and with a proof of optimality or infeasibility.
    mean_gap, median_gap
        To the best known value: the mean over runs with a plan, the median over all runs, infinite
        without one. ``None`` where there is nothing to take it over.
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
    runs: int
    plans: int
    proved: int
    mean_gap: float | None
    median_gap: float | None
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
    gaps = [gap_to(best[row["instance"]], value_in_time(row)) for row in valued]
    known = [gap for gap in gaps if gap is not None]
    near = [time_to(row, best[row["instance"]]) for row in valued]
    median_near = statistics.median([math.inf if time is None else time for time in near]) if near else math.inf
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
        runs=len(ran),
        plans=sum(value_in_time(row) is not None for row in ran),
        proved=sum(row["status"] in ("optimal", "infeasible") and not late(row) for row in ran),
        mean_gap=statistics.fmean(known) if known else None,
        median_gap=statistics.median([math.inf if gap is None else gap for gap in gaps]) if gaps else None,
        near_seconds=median_near if math.isfinite(median_near) else None,
        integral=statistics.fmean(primal_integral(row, best[row["instance"]]) for row in valued) if valued else None,
        seconds=statistics.fmean(row["seconds"] for row in ran) if ran else None,
        memory=max(peaks) if peaks else None,
        late=sum(late(row) for row in ran),
        remarks=tuple(f"{count} × {words}" for words, count in odd.most_common()),
    )
