"""Which device of a plan would be missed most: the request re-solved without each of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from iegopt.explain.edited import edited
from iegopt.explain.places import named_devices
from iegopt.explain.what_if import WhatIf
from iegopt.plans import NoPlan, Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.solvers.clock import Clock
from iegopt.spec.graph import GraphSpec

__all__ = ["Criticality", "criticality"]

_SHARE = 0.5
"""Share of the time left that one re-solve may take."""


@dataclass(frozen=True)
class Criticality:
    """What a device of a plan is worth to it.

    Attributes
    ----------
    stages
        What stands on the device.
    status
        Of the plan without it; ``infeasible``: there is none; ``named``: the request itself names the device, and
        cannot be asked without it. ``None`` where the time limit came first.
    cost, dollars
        Seconds of objective, and dollars, that its absence adds; ``None`` without a plan.
    proven
        Whether both answers are proven.
    """

    device: str
    stages: tuple[str, ...]
    status: str | None
    cost: float | None
    dollars: float | None
    moved: tuple[str, ...]
    proven: bool

    def document(self) -> dict[str, Any]:
        """As one JSON object."""
        return {**vars(self), "stages": list(self.stages), "moved": list(self.moved)}


def criticality(
    cluster: CompiledCluster,
    graph: GraphSpec,
    before: Plan,
    replan: Callable[[CompiledCluster, float], Plan | NoPlan],
    clock: Clock,
) -> tuple[Criticality, ...]:
    """Every device of a plan, the one whose removal costs most first; those not worked out come last."""
    standing: dict[str, list[str]] = {}
    for stage in before.stages:
        for device in stage.devices:
            standing.setdefault(device, []).append(stage.id)
    # Devices with much work first: where the time ends, they are the ones to know about.
    time = {name: sum(before.stage(stage).time for stage in stages) for name, stages in standing.items()}
    found, named = [], named_devices(graph)
    for name in sorted(standing, key=lambda name: -time[name]):
        stages = tuple(standing[name])
        if name in named:
            found.append(Criticality(name, stages, "named", None, None, (), True))
            continue
        if clock.left <= 0:
            found.append(Criticality(name, stages, None, None, None, (), False))
            continue
        if len(cluster.devices) == 1:
            found.append(Criticality(name, stages, "infeasible", None, None, (), True))
            continue
        change = WhatIf(
            before, replan(edited(cluster, remove=[name]), max(0.0, _SHARE * clock.left, min(clock.left, 0.1)))
        )
        moved = tuple(stage.stage for stage in change.moved)
        found.append(
            Criticality(
                name, stages, change.after.status, change.objective_change, change.dollars_change, moved, change.proven
            )
        )  # fmt: skip
    return tuple(sorted(found, key=_rank))


def _rank(one: Criticality) -> tuple[int, float, str]:
    """Devices without which there is no plan come first."""
    order = {"named": 0, "infeasible": 0, "optimal": 1, "feasible": 1, "unknown": 2, None: 3}
    return (order[one.status], -(one.cost or 0.0), one.device)
