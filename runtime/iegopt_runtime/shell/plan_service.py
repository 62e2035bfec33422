"""Plans for the controller: ``MakePlan`` in, ``Planned`` out, worked out in a thread beside the loop.

A planner is kept for every set of devices that are served and of variants that they hold. How much KV memory is left
comes from the workers, and so does, for devices that load variants on demand, what is resident.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from iegopt import library
from iegopt.control.messages import MakePlan, Planned
from iegopt.devices import expand
from iegopt.errors import IegoptError
from iegopt.explain.edited import edited
from iegopt.planner import Planner
from iegopt.plans import NoPlan, Plan
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.device import DeviceSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.request import RequestSpec
from iegopt.spec.variant import ExecutionPath
from iegopt_runtime.deployment import find_worker

__all__ = ["Held", "PlanService"]

_KEPT = 16
_DEADLINE_MS = 50.0
_FAR = 0.2
"""Deviation from which a cost is measured anew (section 6.6.4 of the source)."""

_SLOWEST = 100.0
"""Service times of waiting beyond which a device is no worse."""


_Times = tuple[tuple[str, float], ...]
_Loads = tuple[tuple[str, ...], _Times]
"""Variants that a device has in memory, and seconds that loading others took there."""

_Key = tuple[tuple[str, ...], tuple[tuple[str, _Loads], ...]]


_Answer = tuple[dict[str, Any] | None, str, bool]
"""A plan's document or ``None``, the reason, and whether asking again is of no use."""


@dataclass(frozen=True)
class Held:
    """What the workers of a device have: free bytes of KV memory, variants in memory (``model/precision``), bytes that
    others could have in place of those that nothing uses, seconds that loading a variant took."""

    kv_free: int
    variants: tuple[str, ...]
    weights_free: int = 0
    load_times: Mapping[str, float] = field(default_factory=dict)


class PlanService:
    """Plans on the part of a cluster that has workers.

    Parameters
    ----------
    cluster
        All devices, the ones without workers too.
    deadline_ms
        Of one plan.
    """

    def __init__(self, cluster: ClusterSpec, deadline_ms: float = _DEADLINE_MS) -> None:
        self._whole = CompiledCluster(cluster)
        self._devices = {device.id: device for device in expand(cluster)}
        self._idle: Planner | None = None
        self._deadline_ms = deadline_ms
        self._planners: OrderedDict[_Key, Planner] = OrderedDict()
        self._charged: dict[tuple[str, str], float] = {}
        self._thread = ThreadPoolExecutor(1, "planner")

    def check(self, device: str, role: str) -> None:
        """Refuse a worker that the cluster does not have; raises as ``find_worker``."""
        find_worker(self._whole.spec, device, role)

    async def planned(self, command: MakePlan, held: Mapping[str, Held], at: float) -> Planned:
        """The answer to a question.

        Parameters
        ----------
        held
            By device, as its workers said last.
        at
            The event's time; the shell stamps it anew when the plan is there.
        """
        loop = asyncio.get_running_loop()
        plan, reason, final = await loop.run_in_executor(self._thread, self._plan, command, dict(held))
        return Planned(at, command.request_id, command.generation, plan, reason, final)

    def _plan(self, command: MakePlan, held: dict[str, Held]) -> _Answer:
        try:
            return self._answer(command, held)
        except Exception as error:  # noqa: BLE001 - a request without an answer would wait until its time is over
            return None, f"the planner broke down: {type(error).__name__}: {error}", False

    def _answer(self, command: MakePlan, held: dict[str, Held]) -> _Answer:
        try:
            request = validate(RequestSpec, {**command.request, "graph": command.graph}, "plan")
        except IegoptError as error:
            return None, str(error), True
        if not command.live:
            return None, "no worker is up yet, or none is left", False
        try:
            planner = self._planner(tuple(sorted(command.live)), held)
            unloads = any(held[device].weights_free for device in command.live if device in held)
            for unloading in (False, True) if unloads else (False,):
                for device in command.live:
                    slow = min(max(0.0, command.slow.get(device, 1.0) - 1.0), _SLOWEST)
                    used = self._used(device, held.get(device), unloading=unloading)
                    planner.update(device, queue=(1, slow), used=used)
                answer = planner.plan(request, deadline_ms=self._deadline_ms, explained=False)
                if isinstance(answer, Plan):
                    return _document(answer), "", False
            answer = planner.plan(
                request, deadline_ms=self._deadline_ms, explained=True
            )  # why not; or there was only no time before
            if isinstance(answer, Plan):
                return _document(answer), "", False
            why = _reason(answer)
        except IegoptError as error:
            why = str(error)
        never = self._never(request)
        return None, never or why, never is not None

    def _never(self, request: RequestSpec) -> str | None:
        """Why a request has no plan even with all workers up and idle; ``None`` where it might have one."""
        if self._idle is None:
            served = [device.id for device in self._devices.values() if device.kind.roles is not None]
            self._idle = Planner(edited(self._whole, remove=set(self._devices) - set(served)).spec)
        try:
            answer = self._idle.plan(request, deadline_ms=self._deadline_ms, explained=True)
        except IegoptError as error:
            return str(error)
        return _reason(answer) if not isinstance(answer, Plan) and answer.status == "infeasible" else None

    def _used(self, name: str, held: Held | None, *, unloading: bool) -> int | None:
        """Bytes that are taken; where the cluster does not say what is resident, the planner counts weights itself.
        With ``unloading``, devices that load variants on demand let go of those that nothing uses."""
        device = self._devices[name]
        if held is None or device.kind.resident is None:
            return None
        room = held.weights_free if unloading and device.kind.loading else 0
        return max(0, device.kind.vram - device.reserve - held.kv_free - room)

    def _planner(self, live: tuple[str, ...], held: Mapping[str, Held]) -> Planner:
        loads = {name: self._held(name, held[name]) for name in live if name in held and self._loads(name)}
        key = (live, tuple(sorted(loads.items())))
        planner = self._planners.get(key)
        if planner is None:
            gone = [device for device in self._devices if device not in live]
            spec = edited(self._whole, remove=gone).spec if gone else self._whole.spec
            planner = Planner(_with_loads(spec, loads))
            self._planners[key] = planner
            while len(self._planners) > _KEPT:
                self._planners.popitem(last=False)
        self._planners.move_to_end(key)
        return planner

    def _loads(self, name: str) -> bool:
        """Whether the device takes variants that are not resident: what it holds then changes."""
        return self._devices[name].kind.loading

    def _held(self, device: str, held: Held) -> _Loads:
        """As plans name them. A load time is charged as measured until a later one is far from that: each new figure
        compiles the cluster anew."""
        times: dict[str, float] = {}
        for name, seconds in held.load_times.items():
            charged = self._charged.get((device, name))
            if charged is None or abs(seconds - charged) > _FAR * charged:
                charged = self._charged[device, name] = seconds
            times |= dict.fromkeys(self._variants((name,)), charged)
        return self._variants(held.variants), tuple(sorted(times.items()))

    def _variants(self, held: tuple[str, ...]) -> tuple[str, ...]:
        """Variants as plans name them, of whatever backend: a worker holds weights of a precision and version."""
        found = set()
        for name in held:
            model, _, variant = name.partition("/")
            precision, _, rest = variant.partition("/")
            version = rest.partition("/")[2] or "1"
            path = self._path(model)
            same = [v for v in path.variants if (v.precision, v.version) == (precision, version)] if path else []
            found |= {f"{model}/{v.artifact}" for v in same}
        return tuple(sorted(found))

    def _path(self, model: str) -> ExecutionPath | None:
        """The cluster's own variants of a model, else the library's."""
        card = library.llm(model)
        names = {card.name.lower(), *(alias.lower() for alias in card.aliases)}
        own = (path for path in self._whole.spec.execution_path_registry or () if path.model.lower() in names)
        return next(own, None) or library.path(card.name)

    def close(self) -> None:
        self._thread.shutdown(wait=True, cancel_futures=True)


def _reason(answer: NoPlan) -> str:
    return "; ".join(str(conflict["sentence"]) for conflict in answer.conflicts) or answer.note or answer.status


def _with_loads(spec: ClusterSpec, loads: Mapping[str, _Loads]) -> ClusterSpec:
    """A cluster whose devices hold these variants, and load others in these times; pools, whose devices may differ,
    keep what their entry says."""

    def loaded(device: DeviceSpec) -> DeviceSpec:
        if device.id not in loads:
            return device
        resident, times = loads[device.id]
        return device.model_copy(update={"resident": resident, "load_times": device.load_times | dict(times)})

    return spec.model_copy(update={"devices": tuple(map(loaded, spec.devices))})


def _document(plan: Plan) -> dict[str, Any]:
    """What the controller reads of a plan (``iegopt.control.messages.Planned``)."""
    return {
        "stages": {
            stage.id: {
                "device": stage.site, "variant": stage.variant, "time": stage.time, "memory": stage.memory,
                "start": stage.start,
            }
            for stage in plan.stages
        },
        "transfers": [
            {"source": move.source, "target": move.target, "time": move.exposed, "bytes": round(move.bytes)}
            for move in plan.transfers
        ],
    }  # fmt: skip
