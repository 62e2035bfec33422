"""A cluster: devices, links between them, and the policies that hold on it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from iegopt.spec.base import Identifier, Name, Spec
from iegopt.spec.device import DeviceSpec
from iegopt.spec.policy import FallbackPolicy, KvTransferConfig
from iegopt.spec.quantities import DollarsPerHour, PositiveBandwidth, PositiveFraction, Seconds
from iegopt.spec.variant import ExecutionPath

__all__ = ["LEVELS", "ClusterSpec", "GangSpec", "LinkCard", "LinkOverride", "LinkSpec", "PairLink"]

LEVELS = ("domain", "host", "rack", "datacenter", "wan")
"""Levels of the topology tree, narrowest first; ``wan`` joins everything."""

Level = Literal["domain", "host", "rack", "datacenter", "wan"]


class LinkSpec(Spec):
    latency: Seconds
    bandwidth: PositiveBandwidth


class LinkCard(LinkSpec):
    """A link of the library, usable by name wherever a link is asked for."""

    name: Name
    level: Level
    notes: str = ""
    sources: dict[Name, str] = Field(min_length=1)


class LinkOverride(LinkSpec):
    """The link of one group of a level: ``group`` is its name, or its path (``dc1/r2``) where names repeat."""

    level: Literal["domain", "host", "rack", "datacenter"]
    group: Name


class PairLink(Spec):
    """A measured link between two devices, both directions; it wins over the tree."""

    devices: tuple[Identifier, Identifier]
    bandwidth: PositiveBandwidth
    latency: Seconds | None = None

    @model_validator(mode="after")
    def _two(self) -> Self:
        if self.devices[0] == self.devices[1]:
            raise ValueError(f"{self.devices[0]}: expected two different devices")
        return self


class GangSpec(Spec):
    """A deployed tensor- or pipeline-parallel group; without any, gangs are formed block by block."""

    devices: tuple[Identifier, ...] = Field(min_length=2, max_length=64)

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        if len(set(self.devices)) != len(self.devices):
            raise ValueError("a device stands twice in a gang")
        return self


class ClusterSpec(Spec):
    """What Kubernetes or Ray has deployed, as the planner sees it.

    ``links`` gives a link, or the name of a link card, per level. Left out, a domain takes the
    interconnect of its devices and the other levels take the library's default.
    ``parallel_efficiency`` is a tensor-parallel gang's within one domain, ``host_parallel_efficiency``
    where its devices only share a host's PCIe. ``reference_price`` is $/h; left out, the mean price of the
    cluster's devices.
    """

    name: Name = "cluster"
    devices: tuple[DeviceSpec, ...] = Field(min_length=1)
    links: dict[Level, LinkSpec | Name] = Field(default_factory=dict)
    link_overrides: tuple[LinkOverride, ...] = ()
    pairs: tuple[PairLink, ...] = ()
    gangs: tuple[GangSpec, ...] = ()
    parallel_efficiency: PositiveFraction = 0.9
    host_parallel_efficiency: PositiveFraction = 0.5
    prices: dict[Name, DollarsPerHour] = Field(default_factory=dict)
    reference_price: DollarsPerHour | None = None
    execution_path_registry: tuple[ExecutionPath, ...] | None = None
    kv_transfer_config: KvTransferConfig | None = None
    fallback_policy: FallbackPolicy | None = None

    @model_validator(mode="after")
    def _ids_once(self) -> Self:
        seen: set[str] = set()
        for device in self.devices:
            if device.id in seen:
                raise ValueError(f"device id {device.id} stands twice")
            seen.add(device.id)
        return self

    @model_validator(mode="after")
    def _devices_exist(self) -> Self:
        counts = {device.id: device.count for device in self.devices}
        groups: list[tuple[str, tuple[str, ...]]] = [(f"pairs.{i}", pair.devices) for i, pair in enumerate(self.pairs)]
        groups += [(f"gangs.{i}", gang.devices) for i, gang in enumerate(self.gangs)]
        taken: dict[tuple[str, frozenset[str]], str] = {}
        for where, names in groups:
            first = taken.setdefault((where.partition(".")[0], frozenset(names)), where)
            if first != where:
                raise ValueError(f"{where}: the same devices as {first}")
            for name in names:
                if not _is_device(name, counts):
                    pool = f". A pool: expected {name}-0 and so on" if name in counts else ""
                    raise ValueError(f"{where}: no device is called {name}{pool}")
        return self


def _is_device(name: str, counts: dict[str, int]) -> bool:
    """Whether a name is a device's, those of a pool of n being called ``id-0`` to ``id-(n-1)``."""
    if name in counts:
        return counts[name] == 1
    pool, _, number = name.rpartition("-")
    return counts.get(pool, 1) > 1 and number.isdecimal() and number == str(int(number)) and int(number) < counts[pool]
