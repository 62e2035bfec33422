"""Where an idle device could be added: on a host of the cluster, or on a new host in a rack."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from iegopt import library
from iegopt.errors import InputError
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.cluster import GangSpec
from iegopt.spec.device import DeviceSpec, Location, Utilization
from iegopt.spec.explain_error import nearest
from iegopt.spec.graph import GraphSpec

__all__ = ["Place", "Stock", "find_place", "listed_gangs", "named_devices"]


@dataclass(frozen=True)
class Place:
    """A host of a rack, or (``host`` absent) a new host in it; names are qualified: ``dc0/r2/h1``."""

    datacenter: str
    rack: str
    host: str | None

    def __str__(self) -> str:
        return f"a new host in {self.rack}" if self.host is None else self.host


def find_place(cluster: CompiledCluster, name: str) -> Place:
    """The place that a rack or a host stands for, by its name or its path.

    Raises
    ------
    InputError
        No rack and no host is called so, or several are.
    """
    found = {
        path: Place(device.path[3], device.path[2], host)
        for device in cluster.devices
        for path, host in ((device.path[2], None), (device.path[1], device.path[1]))
        if path == name or path.endswith(f"/{name}")
    }
    if len(found) == 1:
        return next(iter(found.values()))
    if found:
        raise InputError(f"{name}: several racks or hosts are called so: {', '.join(found)}; give the path")
    near = nearest(
        name, [part for d in cluster.devices for path in d.path[1:3] for part in (path.split("/")[-1], path)]
    )
    racks = list(dict.fromkeys(device.path[2] for device in cluster.devices))
    known = f"Racks: {', '.join(racks[:3])}{' and others' if len(racks) > 3 else ''}"
    raise InputError(f"{name}: no rack or host is called so. {f'Maybe {near}?' if near else known}")


class Stock:
    """The device entries of a cluster by model and place, for adding more of the same."""

    def __init__(self, cluster: CompiledCluster) -> None:
        self._entries: dict[tuple[str, str | None], DeviceSpec] = {}
        first = 0
        for entry in cluster.spec.devices:
            for device in cluster.devices[first : first + entry.count]:
                for place in (device.path[1], device.path[2], None):
                    self._entries.setdefault((device.kind.model, place), entry)
            first += entry.count

    def idle(self, like: str | DeviceSpec, place: Place, count: int = 1) -> list[DeviceSpec]:
        """``count`` idle devices at a place: no queue, no load.

        A model that the cluster has is copied from the nearest device of it (on the host, in the rack, anywhere), with
        what is resident there and the memory that is taken with it; where nothing is resident, its memory is free. On a
        host of its like it joins their domain, on another host it has one of its own.

        Raises
        ------
        InputError
            Neither the cluster nor the library has a device of this model.
        """
        on_host, twin = self._twin(like, place)
        slug = re.sub(
            r"[^A-Za-z0-9.]+", "-", f"{like if isinstance(like, str) else like.id}-{place.host or place.rack}"
        )
        domain = twin.location.domain if on_host else None
        if place.host is not None and not on_host and _makes_domain(twin):
            domain = f"added-{slug}"
        location = Location(
            datacenter=place.datacenter,
            rack=place.rack.removeprefix(f"{place.datacenter}/"),
            host=f"added-{slug}" if place.host is None else place.host.removeprefix(f"{place.rack}/"),
            domain=domain,
        )
        idle = {
            "utilization": Utilization(memory=twin.utilization.memory if twin.resident else 0.0),
            "queue": None, "count": 1, "spread": None, "location": location,
        }  # fmt: skip
        return [twin.model_copy(update={**idle, "id": f"added-{slug}-{i}"}) for i in range(count)]

    def _twin(self, like: str | DeviceSpec, place: Place) -> tuple[bool, DeviceSpec]:
        """Whether a device of the kind stands on the place's host, and the entry to copy."""
        if isinstance(like, DeviceSpec):
            return False, like
        card = library.find_device(like)
        model = card.name if card else like
        if place.host is not None and (model, place.host) in self._entries:
            return True, self._entries[model, place.host]
        for where in (place.rack, None):
            if (model, where) in self._entries:
                return False, self._entries[model, where]
        if card is None:
            library.device(like)  # raises, with the nearest name
        return False, DeviceSpec(id=model, model=model)


def listed_gangs(cluster: CompiledCluster, devices: Iterable[DeviceSpec]) -> list[GangSpec]:
    """The gangs that added devices form where a cluster lists its gangs: one of each size, from the first device on."""
    names = tuple(device.id for device in devices)
    if not cluster.spec.gangs:
        return []
    return [GangSpec(devices=names[:k]) for k in cluster.gang_sizes if k <= len(names)]


def named_devices(graph: GraphSpec) -> frozenset[str]:
    """The devices that a request's graph names: a stage's affinity, or the place of its KV cache."""
    names = {name for stage in graph.stages for name in (stage.affinity.device, stage.affinity.kv_cache_location)}
    return frozenset(name for name in names if name is not None)


def _makes_domain(spec: DeviceSpec) -> bool:
    """Whether its interconnect would put a device into the domain of all others of a host."""
    card = library.find_device(spec.model)
    link = spec.interconnect or (card.interconnect if card else None)
    return link is not None and link.makes_domain
