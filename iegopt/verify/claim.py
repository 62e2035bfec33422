"""Check of a printed plan against an instance document: its placement, and what it claims of itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from iegopt.verify.instance import check_placement, finite
from iegopt.verify.report import Report, Violation

__all__ = ["check_claim"]

_TICK = 1e-9
_GAP = 1e-6
"""Relative gap within which ``optimal`` is a proof."""
_STATUSES = ("optimal", "feasible", "infeasible", "unknown")


def check_claim(document: Mapping[str, Any], plan: object) -> Report:
    """``check_placement`` of a plan as ``iegopt solve --json`` prints it, and its claims about itself.

    A claimed objective or makespan may differ by 10⁻⁶ of itself and a nanosecond per stage and edge.
    """
    if not isinstance(plan, dict):
        return Report((Violation("claim", "plan", type(plan).__name__, "an object"),), None, None)
    status, placement = plan.get("status"), plan.get("placement")
    has_plan = status in ("optimal", "feasible")
    found = []
    if status not in _STATUSES:
        found.append(Violation("claim", "status", repr(status), ", ".join(_STATUSES)))
    if not has_plan and not placement:
        return Report(tuple(found), None, None)
    if not isinstance(placement, dict):
        return Report((*found, Violation("claim", "placement", repr(placement), "an object by stage")), None, None)
    if not has_plan and status in _STATUSES:
        found.append(Violation("claim", "status", f"{status} with a placement", "optimal or feasible"))
    report = check_placement(document, placement)
    if report.objective is not None and report.makespan is not None:
        slack = _TICK * (len(document["stages"]) + len(document["edges"]))
        found += _agrees(plan, "objective", report.objective, slack)
        if plan.get("makespan") is not None:
            found += _agrees(plan, "makespan", report.makespan, slack)
        found += _bound(plan, report.objective, slack)
    return Report((*report.violations, *found), report.objective, report.makespan)


def _agrees(plan: Mapping[str, Any], key: str, true: float, slack: float) -> list[Violation]:
    claimed = finite(plan.get(key))
    if claimed is not None and abs(claimed - true) <= _GAP * abs(true) + slack:
        return []
    return [Violation("claim", key, repr(plan.get(key)), true)]


def _bound(plan: Mapping[str, Any], objective: float, slack: float) -> list[Violation]:
    bound, status = plan.get("bound"), plan.get("status")
    if bound is None:
        return [Violation("claim", "bound", "none", "a bound where optimal")] if status == "optimal" else []
    value = finite(bound)
    if value is None:
        return [Violation("claim", "bound", repr(bound), "a number or null")]
    if value > objective + _GAP * abs(objective) + slack:
        return [Violation("claim", "bound", value, objective)]
    found = []
    if status == "optimal" and objective - value > _GAP * abs(objective) + slack:
        found.append(Violation("claim", "status", f"optimal at a gap of {objective - value:g} s", f"{_GAP:g} of it"))
    if plan.get("gap") is not None:
        gap, true = finite(plan["gap"]), (objective - value) / abs(objective) if objective else 0.0
        allowed = 2 * _GAP + slack / abs(objective) if objective else math.inf
        if gap is None or abs(gap - true) > allowed:
            found.append(Violation("claim", "gap", repr(plan["gap"]), true))
    return found
