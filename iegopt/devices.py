"""A cluster's devices, expanded and complete: counts unrolled, gaps filled from the library's cards."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

from iegopt import library
from iegopt.errors import InputError
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.device import DeviceCard, DeviceCompute, DeviceSpec, Interconnect, Utilization
from iegopt.spec.explain_error import nearest
from iegopt.spec.stage import DeviceType, StageSpec
from iegopt.spec.worker import Role
from iegopt.units import shown

__all__ = ["Device", "DeviceClass", "expand"]

T = TypeVar("T")


@dataclass(frozen=True)
class DeviceClass:
    """What devices that cost the same have in common; costs are worked out once per class.

    ``vram`` in bytes, ``bandwidth`` and ``io`` in byte/s. ``efficiency`` is what the cluster states of the
    device, ``card_efficiency`` what its card says that LLM stages reach of the card's own rates. ``roles`` are those of
    its workers, ``None`` where it takes whatever its type runs.
    """

    model: str
    type: DeviceType
    vendor: str
    series: str
    compute: DeviceCompute
    vram: int
    bandwidth: float
    io: float
    efficiency: float | None
    card_efficiency: float
    resident: tuple[str, ...] | None
    loading: bool
    load_times: tuple[tuple[str, float], ...] = ()
    roles: tuple[Role, ...] | None = None

    def efficiency_for(self, stage: StageSpec) -> float:
        """What divides the roofline of a stage here.

        The card's figure was measured on work that follows from a model's card; a stage that states its own
        work, or a cluster that states the device's rates or efficiency, is taken at its word.
        """
        if self.efficiency is not None:
            return self.efficiency
        derived = stage.model is not None and stage.compute.flops is None
        return self.card_efficiency if derived else 1.0


@dataclass(frozen=True)
class Device:
    """One device of a cluster.

    ``path`` names its groups, widest last: domain, host, rack, datacenter, each qualified by those
    above it. ``price`` in $/h, ``reserve`` in bytes, ``queue`` is (depth, wait) or ``None``.
    """

    id: str
    kind: DeviceClass
    interconnect: Interconnect | None
    path: tuple[str, str, str, str]
    price: float
    reserve: int
    utilization: Utilization
    queue: tuple[int, float] | None


def expand(cluster: ClusterSpec) -> tuple[Device, ...]:
    """Every device of a cluster, in file order.

    Raises
    ------
    InputError
        Naming the device and the field that neither the cluster nor a card gives, or an id that
        two entries expand to.
    """
    devices: list[Device] = []
    seen: set[str] = set()
    prices = _prices(cluster)
    for number, spec in enumerate(cluster.devices):
        for device in _expand_one(spec, prices, f"cluster.devices.{number}"):
            if device.id in seen:
                raise InputError(f"cluster.devices.{number}: a second device is called {device.id}")
            seen.add(device.id)
            devices.append(device)
    return tuple(devices)


def _expand_one(spec: DeviceSpec, prices: dict[str, float], where: str) -> Iterator[Device]:
    card = _card(spec.model)
    kind = _class(spec, card, where)
    interconnect = spec.interconnect or (_one_direction(card.interconnect) if card else None)
    price = _price(spec, card, prices, where)
    queue = (spec.queue.depth, spec.queue.wait) if spec.queue else None
    for i in range(spec.count):
        name = spec.id if spec.count == 1 else f"{spec.id}-{i}"
        yield Device(
            id=name,
            kind=kind,
            interconnect=interconnect,
            path=_path(spec, i, name, interconnect),
            price=price,
            reserve=spec.memory.reserve,
            utilization=spec.utilization,
            queue=queue,
        )


def _one_direction(link: Interconnect | None) -> Interconnect | None:
    """A card gives the vendor's figure, both directions together; a transfer uses one of them."""
    return link and link.model_copy(update={"bandwidth": link.bandwidth / 2})


@lru_cache(maxsize=256)
def _card(model: str) -> DeviceCard | None:
    return library.find_device(model)


def _class(spec: DeviceSpec, card: DeviceCard | None, where: str) -> DeviceClass:
    memory, io = spec.memory, spec.io
    own_compute = {name: getattr(spec.compute, name) for name in spec.compute.model_fields_set}
    compute = (card.compute if card else DeviceCompute()).model_copy(update=own_compute)

    def need(value: T | None, fallback: T | None, field: str) -> T:
        found = value if value is not None else fallback
        if found is None:
            near = nearest(spec.model, library.names("device"))
            guess = f" Maybe the model is {near}?" if near else ""
            raise InputError(
                f"{where}.{field}: device {spec.id} does not give it, and the library has no card "
                f"named {shown(spec.model)}.{guess}"
            )
        return found

    vram = need(memory.vram, card.memory.vram if card else None, "memory.vram")
    kind = need(spec.type, card.type if card else None, "type")
    bandwidth = need(memory.bandwidth, card.memory.bandwidth if card else None, "memory.bandwidth")
    return DeviceClass(
        model=card.name if card else spec.model,
        type=kind,
        vendor=need(spec.vendor, card.vendor if card else None, "vendor"),
        series=spec.series or (card.series if card else "") or spec.model,
        compute=compute,
        vram=vram,
        bandwidth=bandwidth,
        io=need(io.bandwidth, card.io.bandwidth if card else None, "io.bandwidth"),
        efficiency=spec.efficiency,
        card_efficiency=(card.efficiency if card and not own_compute else None) or 1.0,
        resident=spec.resident,
        loading=spec.loading,
        load_times=tuple(sorted(spec.load_times.items())),
        roles=spec.worker.roles if spec.worker is not None else None,
    )


def _prices(cluster: ClusterSpec) -> dict[str, float]:
    """The cluster's $/h by device model, whatever the case or alias it is written in."""
    own = {spec.model.lower() for spec in cluster.devices}
    prices: dict[str, float] = {}
    for written, price in cluster.prices.items():
        name = _price_key(written)
        if name not in own and not library.has_card("device", written):
            guess = nearest(written, (*library.names("device"), *own))
            hint = f". Maybe {guess}?" if guess else ""
            raise InputError(f"cluster.prices: no device model is called {shown(written)}{hint}")
        if name in prices:
            raise InputError(f"cluster.prices: {shown(written)} has its price twice")
        prices[name] = price
    return prices


def _price_key(model: str) -> str:
    return (library.card_name("device", model) if library.has_card("device", model) else model).lower()


def _price(spec: DeviceSpec, card: DeviceCard | None, prices: dict[str, float], where: str) -> float:
    if spec.price is not None:
        return spec.price
    if (own := prices.get((card.name if card else spec.model).lower())) is not None:
        return own
    if card is None:
        raise InputError(f"{where}.price: device {spec.id} has no price, and there is no card named {spec.model}")
    return card.example_price


def _path(spec: DeviceSpec, i: int, name: str, interconnect: Interconnect | None) -> tuple[str, str, str, str]:
    """Group names of the i-th device of an entry; see ``Location`` and ``Spread``."""
    place = spec.location
    datacenter, rack, host = place.datacenter, place.rack, place.host
    if spec.spread is not None:
        number = i // spec.spread.per_host
        host = f"{place.host or spec.id}-h{number}"
        if spec.spread.hosts_per_rack is not None:
            number //= spec.spread.hosts_per_rack
            rack = f"{place.rack}-{number}"
            if spec.spread.racks_per_datacenter is not None:
                datacenter = f"{place.datacenter}-{number // spec.spread.racks_per_datacenter}"
    host = host or name
    if place.domain is not None:
        domain = place.domain
    else:
        domain = interconnect.type if interconnect and interconnect.makes_domain else f"@{name}"
    rack_path = f"{datacenter}/{rack}"
    return (f"{rack_path}/{host}/{domain}", f"{rack_path}/{host}", rack_path, datacenter)
