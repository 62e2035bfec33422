"""Charts of results, as data: performance profiles and gaps over time. How they are drawn is for others.

Performance profile (Dolan & Moré, Math. Programming 91, 2002): ρ_s(τ) is the share of problems that solver s solves in
at most τ times the time of the fastest. Runs that a solver does not solve, or cannot state, count as never.

Solvers that start from the plan of another are in the profile of proofs alone: they had a plan before the first moment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iegopt.bench.metrics import answered, best_known, late, main_limit, primal_gap, time_to, value_at

__all__ = ["Chart", "Series", "charts", "gaps_over_time", "profile"]

Row = dict[str, Any]
_SHORTEST = 1e-3
"""Seconds; below it clocks and not solvers differ."""
_GRID = 80
_LEAST_GAP = 1e-5
"""Smaller gaps are drawn as this."""


@dataclass(frozen=True)
class Series:
    """Steps: from ``x[i]`` on the value is ``y[i]``. ``number`` is the solver's, the same in every chart."""

    name: str
    number: int
    x: tuple[float, ...]
    y: tuple[float, ...]


@dataclass(frozen=True)
class Chart:
    """Step lines over a logarithmic x axis from ``start`` to ``end``; y is a share, from ``bottom`` to ``top``.

    The y axis is logarithmic where ``bottom`` is above 0; what is below it is drawn at it.
    """

    title: str
    x_label: str
    y_label: str
    start: float
    end: float
    bottom: float
    top: float
    series: tuple[Series, ...]


def charts(document: dict[str, Any]) -> list[Chart]:
    """All charts of a results document, up to its main limit; those without a line are left out."""
    rows: list[Row] = document["rows"]
    limit = main_limit(rows)
    best = best_known(rows)
    solvers = list(dict.fromkeys(row["solver"] for row in rows))
    rows = [row for row in rows if row["limit"] <= limit]
    last = [row for row in rows if row["limit"] == limit]
    alone = [row for row in rows if row["hint"] is None]

    def proof(row: Row) -> float | None:
        return row["seconds"] if row["status"] in ("optimal", "infeasible") and not late(row) else None

    def near(row: Row) -> float | None:
        return time_to(row, best.get(row["instance"]))

    found = [
        profile(last, f"Time to proof, limit {limit:g} s", proof, solvers),
        profile(
            [row for row in last if row["hint"] is None],
            f"Time to 1 % of the best known, limit {limit:g} s",
            near,
            solvers,
        ),
    ]
    families = dict.fromkeys(row["family"] for row in alone)
    found += [gaps_over_time([row for row in alone if row["family"] == name], name, best, solvers) for name in families]
    return [chart for chart in found if chart.series]


def profile(rows: list[Row], title: str, time: Callable[[Row], float | None], solvers: list[str]) -> Chart:
    """The profile of every solver over (instance, seed, repetition); ``time`` is ``None`` for not solved."""
    seconds: dict[tuple[Any, ...], dict[str, float]] = {}
    for row in rows:
        if row["status"] == "skipped":
            continue
        taken = time(row)
        problem = seconds.setdefault((row["instance"], row["seed"], row["repetition"]), {})
        problem[row["solver"]] = math.inf if taken is None else max(taken, _SHORTEST)
    ratios: dict[str, list[float]] = {}
    for problem in seconds.values():
        fastest = min(problem.values())
        for solver, taken in problem.items():
            ratios.setdefault(solver, []).append(taken / fastest if math.isfinite(taken) else math.inf)
    solved = {solver: sorted(r for r in own if math.isfinite(r)) for solver, own in ratios.items()}
    end = max((own[-1] for own in solved.values() if own), default=1.0) * 1.2
    series = tuple(
        Series(solver, solvers.index(solver), (1.0, *own), (0.0, *((i + 1) / len(seconds) for i in range(len(own)))))
        for solver, own in solved.items()
        if own
    )
    return Chart(title, "times the fastest", "share of problems", 1.0, max(end, 2.0), 0.0, 1.0, series)


def gaps_over_time(rows: list[Row], family: str, best: dict[str, float], solvers: list[str]) -> Chart:
    """The mean primal gap of every solver at each moment, of its runs with the longest limit.

    Until such a run has a plan, those with shorter limits count: of a solver that tells only its end they know more.
    """
    runs: dict[str, dict[tuple[Any, ...], list[Row]]] = {}
    for row in rows:
        if answered(row) and row["instance"] in best:
            key = (row["instance"], row["seed"], row["repetition"])
            runs.setdefault(row["solver"], {}).setdefault(key, []).append(row)
    longest = max((row["limit"] for row in rows), default=1.0)
    grid = [_SHORTEST * (longest / _SHORTEST) ** (i / (_GRID - 1)) for i in range(_GRID)]
    series = []
    for solver, own in runs.items():
        means = [sum(_gap_at(each, moment, best) for each in own.values()) / len(own) for moment in grid]
        series.append(Series(solver, solvers.index(solver), tuple(grid), tuple(means)))
    end = max(longest, 2 * _SHORTEST)
    title = f"Gap over time, {family}"
    return Chart(title, "seconds", "mean primal gap", _SHORTEST, end, _LEAST_GAP, 1.0, tuple(series))


def _gap_at(rows: list[Row], moment: float, best: dict[str, float]) -> float:
    reached: float | None = None
    for row in sorted(rows, key=lambda row: -float(row["limit"])):
        reached = value_at(row, moment)
        if reached is not None:
            break
    return primal_gap(best[rows[0]["instance"]], reached)
