"""Places for a device that are the same for a plan, so that one of them stands for all.

Two hosts are equal where some exchange of equal datacenters, racks and hosts takes one to the other: their devices are
of the same classes, state and gangs in the same order, their links are equal, and neither holds a device that the
request or a measured pair names. Groups get the number of their signature, from the leaves of the tree up.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

from iegopt.explain.places import Place, named_devices
from iegopt.problem.cluster import CompiledCluster
from iegopt.spec.graph import GraphSpec

__all__ = ["place_classes"]


def place_classes(cluster: CompiledCluster, graph: GraphSpec) -> list[list[Place]]:
    """All places, new hosts in racks first, equal ones together."""
    hosts: dict[str, list[int]] = {}
    for d, device in enumerate(cluster.devices):
        hosts.setdefault(device.path[1], []).append(d)
    rack_of = {device.path[1]: device.path[2] for device in cluster.devices}
    datacenter_of = {device.path[2]: device.path[3] for device in cluster.devices}
    signatures = _Signatures(cluster, graph, hosts)
    of_host = {host: signatures.host(host) for host in hosts}
    of_rack = signatures.group(2, of_host, rack_of)
    of_datacenter = signatures.group(3, of_rack, datacenter_of)
    classes: dict[Hashable, list[Place]] = {}
    for rack, datacenter in datacenter_of.items():
        key: Hashable = (of_datacenter[datacenter], of_rack[rack])
        classes.setdefault(key, []).append(Place(datacenter, rack, None))
    for host, rack in rack_of.items():
        datacenter = datacenter_of[rack]
        key = (of_datacenter[datacenter], of_rack[rack], of_host[host])
        classes.setdefault(key, []).append(Place(datacenter, rack, host))
    return list(classes.values())


class _Signatures:
    """Numbers of signatures: equal ones have equal numbers."""

    def __init__(self, cluster: CompiledCluster, graph: GraphSpec, hosts: dict[str, list[int]]) -> None:
        self._cluster, self._hosts = cluster, hosts
        self._numbers: dict[Hashable, int] = {}
        self._link = {
            (level, device.path[level]): d for d, device in enumerate(cluster.devices) for level in range(4)
        }  # fmt: skip
        self._kind = {id(device.kind): self._number(device.kind) for device in cluster.devices}
        self._named = {name for pair in cluster.spec.pairs for name in pair.devices} | named_devices(graph)
        self._position = {d: i for devices in hosts.values() for i, d in enumerate(devices)}
        self._gangs: dict[str, list[tuple[str, ...]]] = {}
        for gang in cluster.spec.gangs:
            for name in gang.devices:
                self._gangs.setdefault(name, []).append(gang.devices)

    def host(self, host: str) -> int:
        devices = (self._device(d, host) for d in self._hosts[host])
        return self._number((self._link_of(1, host), *devices))

    def group(self, level: int, below: dict[str, int], parent: dict[str, str]) -> dict[str, int]:
        """Numbers of the groups of a level: their link, and the multiset of what is in them."""
        inside: dict[str, list[int]] = {}
        for child, number in below.items():
            inside.setdefault(parent[child], []).append(number)
        return {
            name: self._number((level, self._link_of(level, name), *sorted(numbers)))
            for name, numbers in inside.items()
        }  # fmt: skip

    def _device(self, d: int, host: str) -> Hashable:
        """What a plan can tell of a device: class, state, price, domain, gangs; the name of one that is named."""
        device, state = self._cluster.devices[d], self._cluster.state
        domain = device.path[0].removeprefix(f"{host}/")
        gangs = tuple(tuple(map(self._member(host), gang)) for gang in self._gangs.get(device.id, ()))
        return (
            self._kind[id(device.kind)], float(state.load[d]), int(state.free[d]), device.price, device.reserve,
            "" if domain == f"@{device.id}" else domain, self._link_of(0, device.path[0]), gangs,
            device.id if device.id in self._named else "",
        )  # fmt: skip

    def _member(self, host: str) -> Callable[[str], int | str]:
        index, devices = self._cluster.state.index, self._cluster.devices
        return lambda name: self._position[index[name]] if devices[index[name]].path[1] == host else name

    def _link_of(self, level: int, group: str) -> tuple[float, float]:
        topology = self._cluster.sites(()).topology
        g = int(topology.group[level, self._link[level, group]])
        return float(topology.latency[level][g]), float(topology.seconds_per_byte[level][g])

    def _number(self, signature: Hashable) -> int:
        return self._numbers.setdefault(signature, len(self._numbers))
