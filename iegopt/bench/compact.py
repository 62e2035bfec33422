"""Results small enough to keep beside the code: what a report reads, and not more.

Plans are left out, and of every trajectory all points but these: every change of the plan's objective, the best bound
within the time of the run, and the last. Every figure of a report, of all rows or a part, stays what it was to the bit.
"""

from __future__ import annotations

from typing import Any

from iegopt.bench.metrics import in_time

__all__ = ["compact"]

Row = dict[str, Any]
Point = list[Any]


def compact(document: dict[str, Any], packages: tuple[str, ...]) -> dict[str, Any]:
    """The same results, smaller; of the versions of a session those of ``packages`` stay."""
    sessions = [
        {**session, "versions": {name: session["versions"][name] for name in packages if name in session["versions"]}}
        for session in document["sessions"]
    ]
    rows = [{**row, "choice": None, "start": None, "trajectory": _thinned(row)} for row in document["rows"]]
    return {**document, "sessions": sessions, "rows": rows}


def _thinned(row: Row) -> list[Point]:
    points: list[Point] = row["trajectory"]
    kept = {len(points) - 1} if points else set()
    bounds = [i for i, (seconds, _, bound) in enumerate(points) if bound is not None and in_time(row, seconds)]
    if bounds:
        kept.add(max(bounds, key=lambda i: points[i][2]))
    before = None
    for i, (_, objective, _) in enumerate(points):
        if objective is not None and objective != before:
            kept.add(i)
            before = objective
    return [points[i] for i in sorted(kept)]
