"""Which link two sites of a cluster talk over, looked up again from the cluster's own words."""

from __future__ import annotations

from collections.abc import Mapping

from iegopt import library
from iegopt.devices import Device
from iegopt.spec.cluster import LEVELS, ClusterSpec, LinkSpec

__all__ = ["Link", "link_between", "tree_link"]

Link = tuple[str, float, float, int]
"""Level, latency (s), bandwidth (byte/s), shards that move in parallel."""


def link_between(
    cluster: ClusterSpec, devices: Mapping[str, Device], a: tuple[str, ...], b: tuple[str, ...]
) -> Link | None:
    """The link between two sites, given by their device ids; ``None`` where they are one site."""
    if a == b:
        return None
    level = next(
        (i for i in range(4) if len({devices[name].path[i] for name in (*a, *b)}) == 1), 4
    )  # fmt: skip
    shards = len(a) if len(a) == len(b) else 1
    found = tree_link(cluster, devices, level, a[0])
    if len(a) == len(b) == 1:
        for pair in cluster.pairs:
            if set(pair.devices) == {a[0], b[0]}:
                latency = found.latency if pair.latency is None else pair.latency
                return LEVELS[level], latency, pair.bandwidth, 1
    return LEVELS[level], found.latency, found.bandwidth, shards


def tree_link(cluster: ClusterSpec, devices: Mapping[str, Device], level: int, member: str) -> LinkSpec:
    """The link of the group that a device belongs to at a level."""
    name = LEVELS[level]
    given = cluster.links.get(name, library.DEFAULT_LINKS[name])  # type: ignore[call-overload]
    default = library.link(given) if isinstance(given, str) else given
    if level == 4:
        return default
    group = devices[member].path[level]
    for override in cluster.link_overrides:
        if override.level == name and (override.group == group or group.endswith("/" + override.group)):
            return override
    if level > 0 or name in cluster.links:
        return default
    fabric = [
        device.interconnect.bandwidth
        for device in devices.values()
        if device.path[0] == group and device.interconnect is not None and device.interconnect.makes_domain
    ]
    return LinkSpec(latency=default.latency, bandwidth=min(fabric)) if fabric else default
