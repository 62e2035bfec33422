"""Which link two sites of a cluster talk over, looked up again from the cluster's own words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from iegopt import library
from iegopt.devices import Device
from iegopt.spec.cluster import LEVELS, ClusterSpec, LinkSpec

__all__ = ["Gang", "Link", "Links"]

Link = tuple[str, float, float, int]
"""Level, latency (s), bandwidth (byte/s), shards that move in parallel."""


@dataclass(frozen=True)
class Gang:
    """Of several devices: whether they are different ones of one class, and whether a domain and a host hold all."""

    alike: bool
    domain: bool
    host: bool


class Links:
    """The links of a cluster, and its gangs; what was looked up for a group of devices once is kept."""

    def __init__(self, cluster: ClusterSpec, devices: Mapping[str, Device]) -> None:
        self._cluster, self._devices = cluster, devices
        self._of_group: dict[tuple[int, str], tuple[float, float]] = {}
        self._paths: dict[tuple[str, ...], tuple[str | None, ...]] = {}
        self._gangs: dict[tuple[str, ...], Gang] = {}
        self._fabric: dict[str, list[float]] = {}
        for device in devices.values():
            if device.path[0] is not None and device.interconnect is not None and device.interconnect.makes_domain:
                self._fabric.setdefault(device.path[0], []).append(device.interconnect.bandwidth)

    def gang(self, names: tuple[str, ...]) -> Gang:
        """What these devices are to each other."""
        known = self._gangs.get(names)
        if known is None:
            members = [self._devices[name] for name in names]
            domains, hosts = ({member.path[level] for member in members} for level in (0, 1))
            alike = len({member.kind for member in members}) == 1 and len(set(names)) == len(names)
            known = self._gangs[names] = Gang(alike, len(domains) == 1, len(hosts) == 1)
        return known

    def between(self, a: tuple[str, ...], b: tuple[str, ...]) -> Link | None:
        """The link between two sites, given by their device ids; ``None`` where they are one site."""
        if a == b:
            return None
        path, other = self._path(a), self._path(b)
        level = 0
        while level < 4 and (path[level] is None or path[level] != other[level]):
            level += 1
        group = (level, path[level] or "" if level < 4 else "")
        if group not in self._of_group:
            found = self.tree_link(*group)
            self._of_group[group] = found.latency, found.bandwidth
        latency, bandwidth = self._of_group[group]
        if len(a) == len(b) == 1:
            for pair in self._cluster.pairs:
                if set(pair.devices) == {a[0], b[0]}:
                    return LEVELS[level], latency if pair.latency is None else pair.latency, pair.bandwidth, 1
        return LEVELS[level], latency, bandwidth, len(a) if len(a) == len(b) else 1

    def _path(self, site: tuple[str, ...]) -> tuple[str | None, ...]:
        """The group of every level that holds all devices of a site, ``None`` where they lie in several."""
        if len(site) == 1:
            return self._devices[site[0]].path
        if site not in self._paths:
            levels = zip(*(self._devices[name].path for name in site), strict=True)
            self._paths[site] = tuple(groups[0] if len(set(groups)) == 1 else None for groups in levels)
        return self._paths[site]

    def tree_link(self, level: int, group: str) -> LinkSpec:
        """The link of a group of a level."""
        cluster, name = self._cluster, LEVELS[level]
        given = cluster.links.get(name, library.DEFAULT_LINKS[name])  # type: ignore[call-overload]
        default = library.link(given) if isinstance(given, str) else given
        if level == 4:
            return default
        for override in cluster.link_overrides:
            if override.level == name and (override.group == group or group.endswith("/" + override.group)):
                return override
        if level > 0 or name in cluster.links:
            return default
        fabric = self._fabric.get(group)
        return LinkSpec(latency=default.latency, bandwidth=min(fabric)) if fabric else default
