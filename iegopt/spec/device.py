"""Resource Spec: what one device can do, where it stands and how loaded it is (sections 3.3, 7.5)."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from iegopt.spec.base import Identifier, Name, Spec
from iegopt.spec.quantities import (
    Bandwidth,
    Bytes,
    DollarsPerHour,
    FlopRate,
    Fraction,
    PositiveBandwidth,
    PositiveBytes,
    PositiveFraction,
    PositiveInt,
    Seconds,
    SmallInt,
)  # fmt: skip
from iegopt.spec.stage import DeviceType, Precision
from iegopt.spec.worker import WorkerSpec

__all__ = [
    "DeviceCard", "DeviceCompute", "DeviceIo", "DeviceMemory", "DeviceSpec", "Interconnect", "Location",
    "QueueState", "Spread", "Utilization",
]  # fmt: skip


class DeviceCompute(Spec):
    """Dense peak rates per precision. A supported precision without a rate of its own runs at the
    16-bit rate (weight-only quantisation: fewer bytes, the same arithmetic)."""

    fp32_flops: FlopRate | None = None
    tf32_flops: FlopRate | None = None
    fp16_flops: FlopRate | None = None
    bf16_flops: FlopRate | None = None
    fp8_flops: FlopRate | None = None
    int8_flops: FlopRate | None = None
    fp4_flops: FlopRate | None = None
    int4_flops: FlopRate | None = None
    precision_support: tuple[Precision, ...] = ()

    def rate(self, precision: Precision) -> float | None:
        """FLOP/s in this precision, ``None`` where the device does not support it."""
        if self.precision_support and precision not in self.precision_support:
            return None
        own: float | None = getattr(self, f"{precision}_flops")
        if own is not None or not self.precision_support:
            return own
        if precision in (Precision.FP32, Precision.TF32):
            return None
        return self.fp16_flops if self.fp16_flops is not None else self.bf16_flops


class DeviceMemory(Spec):
    """``reserve`` is kept free by the planner (engine overhead, fragmentation)."""

    vram: PositiveBytes | None = None
    bandwidth: PositiveBandwidth | None = None
    reserve: Bytes = 0


class DeviceIo(Spec):
    """Storage or network bandwidth of the device, for IO-bound stages and for loading weights."""

    bandwidth: PositiveBandwidth | None = None


class Interconnect(Spec):
    """The link inside the device's domain; a switched fabric (NVLink, xGMI, HCCS) makes a host one domain.

    On a device of a cluster, ``bandwidth`` is what one transfer gets. A card gives the vendor's figure,
    both directions together, and a transfer gets half of it.
    """

    type: Name
    bandwidth: Bandwidth

    @property
    def makes_domain(self) -> bool:
        return self.type.lower() not in {"pcie", "ethernet", "none"}


class Utilization(Spec):
    """Share of compute and memory that other work already holds."""

    compute: Fraction = 0.0
    memory: Fraction = 0.0


class QueueState(Spec):
    """``wait`` is the mean wait per queued item, in units of a stage's own service time."""

    depth: SmallInt = 0
    wait: float = Field(default=1.0, ge=0, le=1000)


class Location(Spec):
    """Where a device stands; groups of a level with one name under one parent are the same group."""

    datacenter: Identifier = "dc0"
    rack: Identifier = "rack0"
    host: Identifier | None = None
    domain: Identifier | None = None


class Spread(Spec):
    """How ``count`` devices fill hosts and racks, e.g. 32 devices as 4 hosts of 8, 2 hosts a rack."""

    per_host: PositiveInt = 1
    hosts_per_rack: PositiveInt | None = None
    racks_per_datacenter: PositiveInt | None = None

    @model_validator(mode="after")
    def _racks_are_filled(self) -> Self:
        if self.racks_per_datacenter is not None and self.hosts_per_rack is None:
            raise ValueError("racks_per_datacenter is given without hosts_per_rack, so no rack would be filled")
        return self


class _Device(Spec):
    compute: DeviceCompute = DeviceCompute()
    memory: DeviceMemory = DeviceMemory()
    io: DeviceIo = DeviceIo()
    interconnect: Interconnect | None = None
    efficiency: PositiveFraction | None = None


class DeviceSpec(_Device):
    """A device of a cluster. What is left out comes from the library's card of ``model``.

    ``resident`` lists variants held in memory (``Llama-2-70B`` or ``Llama-2-70B/fp16/TensorRT``);
    their weights are part of ``utilization.memory`` and cost nothing more. Left out, every
    compatible variant is taken to be deployed, and its weights count. ``loading`` allows variants
    that are not resident, at the price of their load time: ``load_times`` of the variants that were measured here, else
    as ``Variant`` says. ``worker`` says which processes serve it when plans are
    carried out.
    """

    id: Identifier
    model: Name
    type: DeviceType | None = None
    vendor: Name | None = None
    series: Name | None = None
    utilization: Utilization = Utilization()
    queue: QueueState | None = None
    price: DollarsPerHour | None = None
    location: Location = Location()
    resident: tuple[Name, ...] | None = None
    loading: bool = False
    load_times: dict[Name, Seconds] = Field(default_factory=dict)
    count: PositiveInt = 1
    spread: Spread | None = None
    worker: WorkerSpec | None = None

    @model_validator(mode="after")
    def _spread_needs_count(self) -> Self:
        if self.spread is not None and self.count == 1:
            raise ValueError("spread is given but count is 1: expected count: n")
        if self.count > 100_000:
            raise ValueError(f"count {self.count}: expected at most 100000 devices")
        return self


class DeviceCard(_Device):
    """A device model of the library. ``sources`` names the public document of every figure."""

    name: Name
    aliases: tuple[Name, ...] = ()
    type: DeviceType
    vendor: Name
    series: Name
    example_price: DollarsPerHour
    notes: str = ""
    sources: dict[Name, str] = Field(min_length=1)

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.memory.vram is None or self.memory.bandwidth is None:
            raise ValueError("a card states memory.vram and memory.bandwidth")
        if not self.compute.precision_support:
            raise ValueError("a card states compute.precision_support")
        missing = [p for p in self.compute.precision_support if self.compute.rate(p) is None]
        if missing:
            raise ValueError(f"no rate for {', '.join(missing)}")
        return self
