"""A cluster with devices taken away or added and its load set anew: a copy, in the present state of the original.

Pools that lose a device are written out one by one. Gangs, pairs and link overrides that name what is gone go with it;
where a cluster lists no gangs, or loses the last one that it lists, its blocks are cut anew, as from a file without
the device. The reference price stays that of the original, so that objectives before and after are in one
currency.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

from iegopt import library
from iegopt.devices import Device, expand
from iegopt.errors import InputError
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.names import check_names
from iegopt.problem.topology import LEVEL_NAMES
from iegopt.spec.cluster import ClusterSpec, GangSpec
from iegopt.spec.device import DeviceSpec, Location
from iegopt.spec.explain_error import nearest
from iegopt.units import shown

__all__ = ["Telemetry", "edited"]


class Telemetry(TypedDict, total=False):
    """What ``Planner.update`` takes: queue (depth, wait in service times), utilisation (0–1), used bytes."""

    queue: tuple[int, float]
    utilisation: float
    used: int


def edited(
    cluster: CompiledCluster,
    *,
    remove: str | Iterable[str] = (),
    add: Sequence[DeviceSpec] = (),
    update: Mapping[str, Telemetry] | None = None,
    gangs: Sequence[GangSpec] = (),
) -> CompiledCluster:
    """A copy of a cluster without ``remove`` and with ``add``, then with ``update`` applied.

    Parameters
    ----------
    remove
        Ids of devices, or of pools, which stand for all their devices; one may stand alone.
    add
        They come last in the order of the file.
    update
        By device id.
    gangs
        Gangs of the added devices; counted where the cluster lists its gangs.

    Raises
    ------
    InputError
        A device that does not exist, one that stands twice, or nothing left; what is no device, or no figure of one.
    """
    for device in add:
        if not isinstance(device, DeviceSpec):
            raise InputError(f"add: {shown(device)}: expected devices, as Planner.idle_devices gives them")
    telemetry = {name: _figures(name, figures) for name, figures in (update or {}).items()}
    gone = _gone(cluster, [remove] if isinstance(remove, str) else remove)
    whole = cluster.spec.model_copy(update={"devices": (*cluster.spec.devices, *add)})
    if add:
        check_names(whole)
    spec = _without(cluster.spec, gone) if gone else cluster.spec
    left = {device.model.lower() for device in (*spec.devices, *add)}
    cut = {device.model.lower() for device in whole.devices} - left
    changes = {
        "devices": (*spec.devices, *add),
        "gangs": (*spec.gangs, *gangs) if spec.gangs else (),
        "reference_price": cluster.reference_price,
        "prices": {
            model: price
            for model, price in spec.prices.items()
            if model.lower() not in cut or library.has_card("device", model)
        },
    }
    other = CompiledCluster(spec.model_copy(update=changes), names_checked=True)
    for name, d in other.state.index.items():
        was = cluster.state.index.get(name)
        if was is not None and name not in gone:
            other.state.load[d] = cluster.state.load[was]
            other.state.free[d] = cluster.state.free[was]
    for name, figures in telemetry.items():
        other.state.update(name, **figures)
    return other


def _figures(device: str, figures: Telemetry) -> Telemetry:
    """The figures of a device, where all of them are known by these words."""
    known = tuple(Telemetry.__annotations__)
    if not isinstance(figures, Mapping):
        raise InputError(f"update {device}: {shown(figures)}: expected a mapping with {', '.join(known)}")
    for word in figures:
        if word not in known:
            near = nearest(word, known)
            hint = f"Maybe {near}?" if near else f"Expected {', '.join(known)}"
            raise InputError(f"update {device}: unknown figure {shown(word)}. {hint}")
    return figures


def _gone(cluster: CompiledCluster, remove: Iterable[str]) -> frozenset[str]:
    pools = {entry.id: entry.count for entry in cluster.spec.devices if entry.count > 1}
    gone: set[str] = set()
    for name in remove:
        if name in cluster.state.index:
            gone.add(name)
        elif name in pools:
            gone.update(f"{name}-{i}" for i in range(pools[name]))
        else:
            near = nearest(name, {*cluster.state.index, *pools})
            raise InputError(
                f"remove: no device of cluster {cluster.spec.name} is called {name}"
                + (f". Maybe {near}?" if near else "")
            )
    if len(gone) == len(cluster.devices):
        raise InputError(f"remove: no device of cluster {cluster.spec.name} would be left")
    return frozenset(gone)


def _without(spec: ClusterSpec, gone: frozenset[str]) -> ClusterSpec:
    devices = expand(spec)
    entries: list[DeviceSpec] = []
    first = 0
    for entry in spec.devices:
        own = devices[first : first + entry.count]
        first += entry.count
        left = [device for device in own if device.id not in gone]
        entries += [entry] if len(left) == len(own) else [_single(entry, device) for device in left]
    named = [device for device in devices if device.id not in gone]
    return spec.model_copy(
        update={
            "devices": tuple(entries),
            "gangs": tuple(gang for gang in spec.gangs if gone.isdisjoint(gang.devices)),
            "pairs": tuple(pair for pair in spec.pairs if gone.isdisjoint(pair.devices)),
            "link_overrides": tuple(
                link for link in spec.link_overrides if _stands(named, LEVEL_NAMES.index(link.level), link.group)
            ),
        }
    )


def _single(entry: DeviceSpec, device: Device) -> DeviceSpec:
    """One device of a pool, in an entry of its own, at its place."""
    _, host, rack, datacenter = device.path
    place = Location(
        datacenter=datacenter,
        rack=rack.removeprefix(f"{datacenter}/"),
        host=host.removeprefix(f"{rack}/"),
        domain=entry.location.domain,
    )
    return entry.model_copy(update={"id": device.id, "count": 1, "spread": None, "location": place})


def _stands(devices: Iterable[Device], level: int, group: str) -> bool:
    """Whether any device stands in a group that an override names."""
    return any(device.path[level] == group or device.path[level].endswith(f"/{group}") for device in devices)
