"""Results small enough to keep beside the code: what a report reads, and not more.

Plans are left out, and of every trajectory all points but these: the first plan, the first within ``NEAR`` of the
best known value, and the last in each of twenty steps a decade. Gaps at powers of ten and at the end stay what they
were, and so do the times to ``NEAR``; integrals change in their third digit.
"""

from __future__ import annotations

import math
from typing import Any

from iegopt.bench.metrics import NEAR, best_known, gap_to

__all__ = ["compact"]

Row = dict[str, Any]
Point = list[Any]
_STEPS = 20
"""Steps a decade; a power of ten ends a step."""


def compact(document: dict[str, Any], packages: tuple[str, ...]) -> dict[str, Any]:
    """The same results, smaller; of the versions of a session those of ``packages`` stay."""
    best = best_known(document["rows"])
    sessions = [
        {**session, "versions": {name: session["versions"][name] for name in packages if name in session["versions"]}}
        for session in document["sessions"]
    ]
    rows = [
        {**row, "choice": None, "start": None, "trajectory": _thinned(row["trajectory"], best.get(row["instance"]))}
        for row in document["rows"]
    ]
    return {**document, "sessions": sessions, "rows": rows}


def _thinned(points: list[Point], best: float | None) -> list[Point]:
    kept: set[int] = set()
    last: dict[int, int] = {}
    plans = [i for i, (_, objective, _) in enumerate(points) if objective is not None]
    near = [i for i in plans if (gap := gap_to(best, points[i][1])) is not None and gap <= NEAR]
    kept.update(plans[:1], near[:1])
    for i, (seconds, _, _) in enumerate(points):
        last[math.ceil(_STEPS * math.log10(max(seconds, 1e-6)) - 1e-9)] = i
    kept.update(last.values())
    return [points[i] for i in sorted(kept)]
