"""What a row is worth: gaps, times, integrals; and claims that contradict each other.

Primal gap (Berthold, Operations Research Letters 41(6), 2013): γ = |z − z*| / max(|z|, |z*|), 1 without a plan, with z*
the best value known: published, or of any verified plan of the results. Primal integral: ∫ γ(t) dt / T over a run's
limit T.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from iegopt.bench.rows import ANSWERED

__all__ = [
    "NEAR",
    "answered",
    "best_known",
    "bound_in_time",
    "contradictions",
    "gap_to",
    "in_time",
    "late",
    "main_limit",
    "primal_gap",
    "primal_integral",
    "time_to",
    "value_at",
    "value_in_time",
]

Row = dict[str, Any]

NEAR = 0.01
"""Within this gap of the best known value a plan counts as near."""
_TOLERANCE = 1e-6
_LATE_SHARE, _LATE_SECONDS = 0.1, 0.05
"""A run is late when it ends this share of its limit, and these seconds, after it."""


def answered(row: Row) -> bool:
    """Whether a solver was there and could state the problem: it counts, with whatever it did."""
    return row["status"] in (*ANSWERED, "refused", "crashed", "error")


def best_known(rows: Iterable[Row]) -> dict[str, float]:
    """Instance -> the least of its published value and the verified plans."""
    best: dict[str, float] = {}
    for row in rows:
        for value in (row["published"], row["objective"]):
            if value is not None:
                best[row["instance"]] = min(value, best.get(row["instance"], value))
    return best


def main_limit(rows: Iterable[Row]) -> float:
    """The limit that most solvers ran with, the longest of these; a reference of a few with more time is not it."""
    solvers: dict[float, set[str]] = {}
    for row in rows:
        solvers.setdefault(row["limit"], set()).add(row["solver"])
    return max(solvers, key=lambda limit: (len(solvers[limit]), limit), default=0.0)


def late(row: Row) -> bool:
    """Whether a run went on after its limit."""
    return row["seconds"] is not None and not in_time(row, row["seconds"])


def in_time(row: Row, seconds: float) -> bool:
    """Whether what came after so many seconds of a run still counts."""
    return seconds <= _latest(row)


def value_in_time(row: Row) -> float | None:
    """The objective of the plan that a run had when its time was over."""
    if not late(row):
        return row["objective"]  # type: ignore[no-any-return]
    return value_at(row, _latest(row))


def bound_in_time(row: Row) -> float | None:
    """The best bound that a run had proven when its time was over."""
    if not late(row):
        return row["bound"]  # type: ignore[no-any-return]
    bounds = [bound for seconds, _, bound in row["trajectory"] if bound is not None and in_time(row, seconds)]
    return max(bounds, default=None)


def value_at(row: Row, moment: float) -> float | None:
    """The objective of the plan that a run had after so many seconds, ``None`` before it had one."""
    values = [value for seconds, value, _ in row["trajectory"] if value is not None and seconds <= moment]
    return min(values, default=None)


def _latest(row: Row) -> float:
    return float(row["limit"]) * (1 + _LATE_SHARE) + _LATE_SECONDS


def gap_to(best: float | None, objective: float | None) -> float | None:
    """(z − z*) / |z*|; ``None`` where either is missing."""
    if best is None or objective is None:
        return None
    return 0.0 if objective == best else (objective - best) / abs(best) if best else float("inf")


def primal_gap(best: float, objective: float | None) -> float:
    """γ, between 0 and 1."""
    if objective is None or objective * best < 0:
        return 1.0
    return 0.0 if objective == best else abs(objective - best) / max(abs(objective), abs(best))


def primal_integral(row: Row, best: float) -> float:
    """∫ γ(t) dt / T, between 0 and 1; what came after the limit does not count."""
    limit = float(row["limit"])
    area, since, gap = 0.0, 0.0, 1.0
    for seconds, objective, _ in row["trajectory"]:
        if objective is not None and seconds < limit:
            reached = primal_gap(best, objective)
            if reached != gap:  # points that change nothing do not count, not even in the last bit
                area += gap * (seconds - since)
                since, gap = seconds, reached
    return (area + gap * (limit - since)) / limit


def time_to(row: Row, best: float | None, gap: float = NEAR) -> float | None:
    """Seconds until the plan was within a gap of the best known value; ``None`` where it never was in time."""
    for seconds, objective, _ in row["trajectory"]:
        reached = gap_to(best, objective)
        if reached is not None and reached <= gap and in_time(row, seconds):
            return float(seconds)
    return None


def contradictions(rows: Iterable[Row]) -> list[str]:
    """Claims that cannot all be true, in words: bounds above plans, infeasibility beside a plan, a beaten optimum."""
    rows = list(rows)
    plans: dict[str, tuple[float, str]] = {}
    for row in rows:
        if row["objective"] is not None:
            plans[row["instance"]] = min(
                plans.get(row["instance"], (float("inf"), "")), (row["objective"], row["solver"])
            )
    found: dict[str, None] = {}
    for row in rows:
        name = row["instance"]
        if row["status"] == "refused":
            found[f"{name}: {row['solver']} was refused: {row['reason']}"] = None
        if name not in plans:
            continue
        value, owner = plans[name]
        slack = _TOLERANCE * abs(value)
        if row["status"] == "infeasible":
            found[f"{name}: {row['solver']} calls it infeasible, {owner} has a plan of {value:.9g}"] = None
        if row["bound"] is not None and row["bound"] > value + slack:
            found[f"{name}: bound {row['bound']:.9g} of {row['solver']} is above the plan {value:.9g} of {owner}"] = (
                None
            )
        if row["published_optimal"] and value < row["published"] - slack:
            found[f"{name}: {owner} has {value:.9g}, below the published optimum {row['published']:.9g}"] = None
    return list(found)
