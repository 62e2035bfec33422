"""Checks of a plan in time: stages that must not overlap, and memory at every moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from iegopt.plans import Plan
from iegopt.spec.request import RequestSpec
from iegopt.verify.report import Violation

__all__ = ["Held", "check_held", "check_starts", "last_end"]

_ROUNDING = 2e-9
"""Seconds that rounding to ticks may move a time and a transfer together."""


@dataclass(frozen=True)
class Held:
    """What a stage holds: ``own`` bytes over its devices, ``kv`` of them KV cache, from ``start`` on.

    ``weights`` are the bytes of its model there, which it may share with others.

    ``consumers`` are the targets of its data edges, ``heirs`` the stages that take over its KV cache.
    """

    name: str
    devices: tuple[str, ...]
    start: float
    finish: float
    own: int
    kv: int
    weights: int
    consumers: set[str]
    heirs: set[str]


def last_end(request: RequestSpec) -> float:
    """Seconds by which the last stage has to end: the end-to-end limit, or the timeout where it comes first."""
    timeout, e2e = request.dag_constraints.termination_policy.timeout, request.sla.e2e
    return timeout if e2e is None else min(e2e, timeout)


def check_starts(plan: Plan, times: Mapping[str, float], transfers: Mapping[tuple[str, str], float]) -> list[Violation]:
    """Stages that start too early for an input, or overlap another on a device.

    Parameters
    ----------
    times
        Seconds by stage, as recomputed; stages that are no work (KV locations) have none.
    transfers
        Seconds by (source, target).
    """
    start = {stage.id: stage.start for stage in plan.stages}
    found = [Violation("start", name, at, 0.0) for name, at in start.items() if at < 0]
    for (u, v), moved in transfers.items():
        arrival = start[u] + times.get(u, 0.0) + moved
        if start[v] < arrival - _ROUNDING:
            found.append(Violation("order", f"{u} -> {v}", start[v], arrival))
    working = [stage for stage in plan.stages if times.get(stage.id, 0.0) > 0]
    for i, a in enumerate(working):
        for b in working[:i]:
            shared = min(start[a.id] + times[a.id], start[b.id] + times[b.id]) - max(start[a.id], start[b.id])
            if shared > _ROUNDING:
                common = sorted(set(a.devices) & set(b.devices))
                found += [Violation("no_overlap", f"{b.id}, {a.id} on {device}", shared, 0.0) for device in common]
    return found


def check_held(
    held: Sequence[Held], fixed: Mapping[str, float], free: Mapping[str, int], near: float
) -> list[Violation]:
    """Devices that hold more than is free at some moment, or that a stage alone does not fit, whatever time it takes.

    Parameters
    ----------
    fixed, free
        Bytes by device: weights, which stay throughout, and what there is.
    near
        Seconds below which two moments are one.
    """
    at = {stage.name: stage for stage in held}

    def in_place(stage: Held, names: set[str]) -> list[Held]:
        return [at[name] for name in sorted(names) if at[name].devices == stage.devices]

    release = {
        stage.name: max([stage.finish, *(other.finish for other in in_place(stage, stage.consumers))]) for stage in held
    }
    found = []
    for device in sorted({device for stage in held for device in stage.devices}):
        here = [stage for stage in held if device in stage.devices]
        worst = max([fixed.get(device, 0.0), *((stage.own + stage.weights) / len(stage.devices) for stage in here)])
        for moment in [stage.start + near for stage in here] + [release[stage.name] + near for stage in here]:
            now = [stage for stage in here if stage.start <= moment < release[stage.name]]
            load = fixed.get(device, 0.0) + sum(stage.own / len(stage.devices) for stage in now)
            for stage in now:
                heirs = [heir for heir in in_place(stage, stage.heirs) if heir in now]
                load -= sum(min(stage.kv, heir.kv) / len(stage.devices) for heir in heirs)
            worst = max(worst, load)
        if worst > free[device] + 1e-3:
            found.append(Violation("memory", device, worst, free[device]))
    return found
