"""Two plans of one request side by side: on the cluster as it is, and on an edited copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from iegopt.plans import NoPlan, Plan

__all__ = ["MovedStage", "WhatIf", "moved_stages"]


@dataclass(frozen=True)
class MovedStage:
    """A stage that the two plans place differently; sites with their variants."""

    stage: str
    before: tuple[str, str]
    after: tuple[str, str]


@dataclass(frozen=True)
class WhatIf:
    """The plan before and after a change of the cluster, at one reference price."""

    before: Plan | NoPlan
    after: Plan | NoPlan

    @property
    def objective_change(self) -> float | None:
        """Seconds of weighted cost, negative where the change saves; ``None`` where either has no plan."""
        if isinstance(self.before, NoPlan) or isinstance(self.after, NoPlan):
            return None
        return self.after.objective - self.before.objective

    @property
    def dollars_change(self) -> float | None:
        """Dollars of the plan, likewise."""
        if isinstance(self.before, NoPlan) or isinstance(self.after, NoPlan):
            return None
        return self.after.cost.dollars - self.before.cost.dollars

    @property
    def moved(self) -> tuple[MovedStage, ...]:
        """The stages on another site or variant; none without two plans."""
        return moved_stages(self.before, self.after)

    @property
    def proven(self) -> bool:
        """Whether both answers are proven: optimal, or infeasible."""
        return {self.before.status, self.after.status} <= {"optimal", "infeasible"}

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        return {
            "objective_change": self.objective_change,
            "dollars_change": self.dollars_change,
            "proven": self.proven,
            "moved": [
                {"stage": stage.stage, **{when: dict(zip(("site", "variant"), place, strict=True))
                 for when, place in (("before", stage.before), ("after", stage.after))}}
                for stage in self.moved
            ],
            "before": _answer(self.before),
            "after": _answer(self.after),
        }  # fmt: skip


def moved_stages(before: Plan | NoPlan, after: Plan | NoPlan) -> tuple[MovedStage, ...]:
    """The stages that two plans of one request place differently; none where either has no plan."""
    if isinstance(before, NoPlan) or isinstance(after, NoPlan):
        return ()
    places = {stage.id: (stage.site, stage.variant) for stage in after.stages}
    return tuple(
        MovedStage(stage.id, (stage.site, stage.variant), places[stage.id])
        for stage in before.stages
        if places[stage.id] != (stage.site, stage.variant)
    )


def _answer(plan: Plan | NoPlan) -> dict[str, Any]:
    """The short form of an answer."""
    document = plan.document()
    keys = ("status", "objective", "bound", "solver", "placement", "makespan", "tier")
    return {**{key: document[key] for key in keys}, "cost": document.get("cost")}
