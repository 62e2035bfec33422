"""A cluster: devices, links between them, and the policies that hold on it."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from iegopt.spec.base import Identifier, Name, Spec
from iegopt.spec.device import DeviceSpec
from iegopt.spec.policy import FallbackPolicy, KvTransferConfig
from iegopt.spec.quantities import DollarsPerHour, Fraction, PositiveBandwidth, Seconds
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


class ClusterSpec(Spec):
    """What Kubernetes or Ray has deployed, as the planner sees it.

    ``links`` gives a link, or the name of a link card, per level. Left out, a domain takes the
    interconnect of its devices and the other levels take the library's default.
    ``reference_price`` is $/h; left out, the mean price of the cluster's devices.
    """

    name: Name = "cluster"
    devices: tuple[DeviceSpec, ...] = Field(min_length=1)
    links: dict[Level, LinkSpec | Name] = Field(default_factory=dict)
    link_overrides: tuple[LinkOverride, ...] = ()
    pairs: tuple[PairLink, ...] = ()
    gangs: tuple[GangSpec, ...] = ()
    parallel_efficiency: Fraction = 0.9
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
