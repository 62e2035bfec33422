"""Sites of a cluster: its devices one by one, and gangs of them for parallel stages.

A gang of k is k devices of one model in one domain, else in one host: the devices of a group are
taken in file order and cut into blocks of k, as tensor-parallel engines are deployed. Gangs that
the cluster lists replace the blocks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt import library
from iegopt.devices import Device, DeviceClass
from iegopt.errors import InputError
from iegopt.problem.topology import LEVEL_NAMES, WAN, Topology
from iegopt.spec.cluster import LEVELS, ClusterSpec, LinkSpec

__all__ = ["GANG_SIZES", "MAX_PAIR_SITES", "SiteTable", "build_sites", "gang_sizes"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

GANG_SIZES = (2, 4, 8)
"""Degrees that are tried where a stage leaves its parallelism open."""

MAX_PAIR_SITES = 4096
"""Measured pairs make dense sites × sites matrices; beyond this they would take over 270 MB."""


@dataclass(frozen=True, eq=False)
class SiteTable:
    """The sites for a set of gang sizes.

    Attributes
    ----------
    topology
        Over all devices and these sites.
    kinds
        (device class, gang size, whether one domain holds the gang); a gang is of one class.
    of_kind
        The sites of every kind, ascending.
    whole (S,)
        Where the table is a part of a larger one (``focus``): the number of every site there.
    """

    topology: Topology
    kinds: tuple[tuple[DeviceClass, int, bool], ...]
    of_kind: tuple[Ints, ...]
    whole: Ints | None = None
    _spread: dict[tuple[int, ...], tuple[Ints, Ints]] = field(default_factory=dict)

    def spread(self, kinds: tuple[int, ...]) -> tuple[Ints, Ints]:
        """Site and block (n,) of every option, in site order, where block i stands on all sites of ``kinds[i]``.

        Kept: stages that run on the same kinds of sites share these arrays.
        """
        if kinds not in self._spread:
            none = np.empty(0, dtype=np.int64)
            site = np.concatenate([none, *(self.of_kind[kind] for kind in kinds)])
            order = np.argsort(site, kind="stable")
            block = np.repeat(np.arange(len(kinds)), [len(self.of_kind[kind]) for kind in kinds])
            self._spread[kinds] = site[order], block[order]
        return self._spread[kinds]


def gang_sizes(cluster: ClusterSpec, devices: tuple[Device, ...]) -> tuple[int, ...]:
    """Gang sizes that this cluster can form at all, from ``GANG_SIZES`` or its own list."""
    if cluster.gangs:
        return tuple(sorted({len(gang.devices) for gang in cluster.gangs}))
    return tuple(k for k in GANG_SIZES if any(True for _ in _blocks(devices, k)))


def build_sites(cluster: ClusterSpec, devices: tuple[Device, ...], sizes: Iterable[int]) -> SiteTable:
    """Sites and topology for single devices and gangs of ``sizes``.

    Raises
    ------
    InputError
        A gang of unknown or unlike devices, an override or a pair that names nothing.
    """
    members: list[tuple[int, ...]] = [(d,) for d in range(len(devices))]
    wanted = sorted(set(sizes) - {1})
    if cluster.gangs:
        members += [gang for gang in _listed_gangs(cluster, devices) if len(gang) in wanted]
    else:
        for k in wanted:
            members += _blocks(devices, k)
    names = tuple("+".join(devices[d].id for d in site) for site in members)
    twice = next((name for name, n in _sizes(names).items() if n > 1), None)
    if twice is not None:
        raise InputError(
            f"cluster.devices: {twice} is the name of two sites: rename the device that is called like a gang"
        )
    of_kind: dict[tuple[DeviceClass, int, bool], list[int]] = {}
    for s, site in enumerate(members):
        fabric = len({devices[d].path[0] for d in site}) == 1
        of_kind.setdefault((devices[site[0]].kind, len(site), fabric), []).append(s)
    return SiteTable(
        topology=_topology(cluster, devices, members, names),
        kinds=tuple(of_kind),
        of_kind=tuple(np.array(sites, dtype=np.int64) for sites in of_kind.values()),
    )


def _blocks(devices: tuple[Device, ...], k: int) -> list[tuple[int, ...]]:
    """Blocks of k like devices per domain; where a domain is one device, per host."""
    groups: dict[tuple[str, object], list[int]] = {}
    alone = _sizes(device.path[0] for device in devices)
    for d, device in enumerate(devices):
        place = device.path[0] if alone[device.path[0]] > 1 else device.path[1]
        groups.setdefault((place, device.kind), []).append(d)
    return [
        tuple(group[i : i + k])
        for group in groups.values()
        for i in range(0, len(group) - k + 1, k)
    ]  # fmt: skip


def _sizes(names: Iterable[str]) -> dict[str, int]:
    count: dict[str, int] = {}
    for name in names:
        count[name] = count.get(name, 0) + 1
    return count


def _listed_gangs(cluster: ClusterSpec, devices: tuple[Device, ...]) -> list[tuple[int, ...]]:
    index = {device.id: d for d, device in enumerate(devices)}
    gangs = []
    for number, gang in enumerate(cluster.gangs):
        where = f"cluster.gangs.{number}"
        unknown = [name for name in gang.devices if name not in index]
        if unknown:
            raise InputError(f"{where}: no device is called {unknown[0]}")
        members = tuple(index[name] for name in gang.devices)
        if len(set(members)) != len(members):
            raise InputError(f"{where}: a device stands twice")
        if len({devices[d].kind for d in members}) > 1:
            raise InputError(f"{where}: expected devices of one model, got {', '.join(gang.devices)}")
        gangs.append(members)
    return gangs


def _topology(
    cluster: ClusterSpec, devices: tuple[Device, ...], members: list[tuple[int, ...]], names: tuple[str, ...]
) -> Topology:
    ptr = np.zeros(len(members) + 1, dtype=np.int64)
    ptr[1:] = np.cumsum([len(site) for site in members])
    index = np.array([d for site in members for d in site], dtype=np.int64)
    group = np.empty((WAN, len(members)), dtype=np.int64)
    latency: list[Floats] = []
    rate: list[Floats] = []
    for level in range(WAN):
        ids: dict[str, int] = {}
        of_device = np.array([ids.setdefault(d.path[level], len(ids)) for d in devices], dtype=np.int64)
        low = np.minimum.reduceat(of_device[index], ptr[:-1])
        high = np.maximum.reduceat(of_device[index], ptr[:-1])
        group[level] = np.where(low == high, low, -1)
        links = _group_links(cluster, devices, level, ids)
        latency.append(np.array([link.latency for link in links]))
        rate.append(np.array([1.0 / link.bandwidth for link in links]))
    wan = _level_link(cluster, WAN)
    latency.append(np.array([wan.latency]))
    rate.append(np.array([1.0 / wan.bandwidth]))
    tree = Topology(
        sites=names,
        devices=tuple(device.id for device in devices),
        device_ptr=ptr,
        device_index=index,
        group=group,
        latency=tuple(latency),
        seconds_per_byte=tuple(rate),
        parallel_shards=True,
    )
    return _with_pairs(cluster, tree) if cluster.pairs else tree


def _level_link(cluster: ClusterSpec, level: int) -> LinkSpec:
    name = LEVELS[level]
    chosen = cluster.links.get(name, library.DEFAULT_LINKS[name])  # type: ignore[call-overload]
    return library.link(chosen) if isinstance(chosen, str) else chosen


def _group_links(cluster: ClusterSpec, devices: tuple[Device, ...], level: int, ids: dict[str, int]) -> list[LinkSpec]:
    """The link of every group of a level: override, else the level's, else (domains) the devices' own."""
    default = _level_link(cluster, level)
    links = [default] * len(ids)
    if level == 0 and "domain" not in cluster.links:
        for device in devices:
            own = device.interconnect
            if own is not None and own.makes_domain:
                at = ids[device.path[0]]
                slower = min(own.bandwidth, links[at].bandwidth) if links[at] is not default else own.bandwidth
                links[at] = LinkSpec(latency=default.latency, bandwidth=slower)
    overridden: set[str] = set()
    for number, override in enumerate(cluster.link_overrides):
        if override.level != LEVEL_NAMES[level]:
            continue
        matches = [name for name in ids if name == override.group or name.endswith("/" + override.group)]
        if len(matches) != 1:
            found = "several groups are" if matches else "no group is"
            raise InputError(
                f"cluster.link_overrides.{number}.group: {found} called {override.group} at level "
                f"{override.level}, expected one such as {next(iter(ids))}"
            )
        if matches[0] in overridden:
            raise InputError(f"cluster.link_overrides.{number}.group: {override.group} is overridden a second time")
        overridden.add(matches[0])
        links[ids[matches[0]]] = override
    return links


def _with_pairs(cluster: ClusterSpec, tree: Topology) -> Topology:
    """The tree as dense matrices, with measured pairs of single devices written over it."""
    if tree.S > MAX_PAIR_SITES:
        raise InputError(
            f"cluster.pairs: measured pairs need a dense matrix, and {tree.S} sites are more than {MAX_PAIR_SITES}"
        )
    latency = np.full((tree.S, tree.S), tree.latency[WAN][0])
    rate = np.full((tree.S, tree.S), tree.seconds_per_byte[WAN][0])
    for level in reversed(range(WAN)):
        group = tree.group[level]
        meet = (group[:, None] == group[None, :]) & (group >= 0)[:, None]
        rows = np.nonzero(meet)
        latency[rows] = tree.latency[level][group[rows[0]]]
        rate[rows] = tree.seconds_per_byte[level][group[rows[0]]]
    equal = tree.width[:, None] == tree.width[None, :]
    rate = np.where(equal, rate / tree.width[:, None], rate)
    index = {name: s for s, name in enumerate(tree.sites)}
    for number, pair in enumerate(cluster.pairs):
        for name in pair.devices:
            if name not in index:
                raise InputError(f"cluster.pairs.{number}: no device is called {name}")
        a, b = (index[name] for name in pair.devices)
        rate[a, b] = rate[b, a] = 1.0 / pair.bandwidth
        if pair.latency is not None:
            latency[a, b] = latency[b, a] = pair.latency
    np.fill_diagonal(latency, 0.0)
    np.fill_diagonal(rate, 0.0)
    return Topology(
        sites=tree.sites, devices=tree.devices, device_ptr=tree.device_ptr, device_index=tree.device_index,
        group=tree.group, latency=tree.latency, seconds_per_byte=tree.seconds_per_byte,
        pair_latency=latency, pair_seconds_per_byte=rate,
    )  # fmt: skip
