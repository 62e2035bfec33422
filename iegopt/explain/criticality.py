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

_LEAST = 0.1
"""Seconds for one re-solve at least, where they are left; else all get the same share."""


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
        Seconds of objective, and dollars, that its absence adds to the present plan; ``None`` without a plan. Where
        ``status`` is ``feasible``, that is at most so much: a better plan without the device may exist.
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
    """Every device of a plan, the one whose removal costs most first; after those proven, the costs that are only at
    most so much; those not worked out come last.
    """
    standing: dict[str, list[str]] = {}
    for stage in before.stages:
        for device in stage.devices:
            standing.setdefault(device, []).append(stage.id)
    # Devices with much work first: where the time ends, they are the ones to know about.
    time = {name: sum(before.stage(stage).time for stage in stages) for name, stages in standing.items()}
    found, named = [], named_devices(graph)
    for number, name in enumerate(sorted(standing, key=lambda name: -time[name])):
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
        share = max(0.0, clock.left / (len(standing) - number), min(clock.left, _LEAST))
        change = WhatIf(before, replan(edited(cluster, remove=[name]), share))
        moved = tuple(stage.stage for stage in change.moved)
        found.append(
            Criticality(
                name, stages, change.after.status, change.objective_change, change.dollars_change, moved, change.proven
            )
        )  # fmt: skip
    return tuple(sorted(found, key=_rank))


def _rank(one: Criticality) -> tuple[int, float, str]:
    """Devices without which there is no plan come first."""
    order = {"named": 0, "infeasible": 0, "optimal": 1, "feasible": 2, "unknown": 3, None: 4}
    return (order[one.status], -(one.cost or 0.0), one.device)
