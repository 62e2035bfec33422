"""Which engines a cluster could have up for one model: what a trace leaves open.

Of every class of accelerators, gangs of one size (the blocks or the listed gangs of ``iegopt.problem.sites``): the
smallest that leaves room for KV caches, or the one asked for, in the first variant of the model that runs there. Where
a device says what is resident, only that is up.
"""

from __future__ import annotations

from collections.abc import Iterator

from iegopt import library
from iegopt.batch.kinds import instance_kind
from iegopt.devices import DeviceClass
from iegopt.errors import InputError
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.variants import Candidate
from iegopt.spec.snapshot import InstanceSpec
from iegopt.spec.stage import SIXTEEN_BIT, DeviceType, StageKind, StageSpec, TokenWork

__all__ = ["KV_ROOM", "deploy", "variants_of"]

KV_ROOM = 0.25
"""An engine is put where the memory left for KV caches is at least this part of its weights."""


def deploy(cluster: CompiledCluster, variants: tuple[Candidate, ...], gang: int | None = None) -> list[InstanceSpec]:
    """Instances of these variants, each on devices of its own.

    Parameters
    ----------
    variants
        In the order of preference (``variants_of``).
    gang
        Devices of every instance; the fewest that hold the weights where left out.

    Raises
    ------
    InputError
        The cluster has no devices that hold the model.
    """
    sizes = sorted({1, *cluster.gang_sizes}) if gang is None else [gang]
    found: list[InstanceSpec] = []
    for device in cluster.classes:
        if device.type in (DeviceType.GPU, DeviceType.NPU):
            made = (_instances(cluster, device, size, variant) for size in sizes for variant in variants)
            found += next(filter(None, map(list, made)), [])
    if not found:
        names = ", ".join(variant.name for variant in variants)
        size = "" if gang is None else f" in gangs of {gang}"
        raise InputError(f"no accelerators of cluster {cluster.spec.name} have room for {names}{size}")
    return found


def variants_of(cluster: CompiledCluster, name: str) -> tuple[Candidate, ...]:
    """One variant by its full name (``Llama-3.1-70B/fp8/TensorRT``), or of a model all in its native precision.

    Raises
    ------
    InputError
        No such model or variant, or an encoder.
    """
    if not library.has_card("llm", name) and "/" in name:
        return (cluster.registry.named(name),)
    card = library.llm(name)
    if card.kind != "decoder":
        raise InputError(f"{card.name} generates no tokens: expected a decoder")
    native = frozenset({card.native_precision})
    stage = StageSpec(id="decode", type=StageKind.DECODE, model=card.name, tokens=TokenWork(output=1))
    return cluster.registry.candidates(stage, SIXTEEN_BIT if native <= SIXTEEN_BIT else native)


def _instances(cluster: CompiledCluster, device: DeviceClass, size: int, variant: Candidate) -> Iterator[InstanceSpec]:
    """The gangs of a class that have room for a variant."""
    residency = variant.residency(device)
    if residency is None or residency.must_load:
        return
    table, state = cluster.sites({size}), cluster.state
    efficiency = (cluster.spec.parallel_efficiency, cluster.spec.host_parallel_efficiency)
    taken: set[int] = set()
    for (kind, members, fabric), sites in zip(table.kinds, table.of_kind, strict=True):
        if kind != device or members != size:
            continue
        try:
            made = instance_kind(variant, device, size, fabric, cluster.cost_model, efficiency)
        except InputError:
            continue
        weights = made.card.parameters * made.precision.bytes
        for site in sites.tolist():
            ptr = table.topology.device_ptr[site : site + 2]
            devices = table.topology.device_index[ptr[0] : ptr[1]].tolist()
            room = int(state.free[devices].min()) * size - (weights if residency.weights_count else 0)
            if room < KV_ROOM * weights or taken.intersection(devices):
                continue
            taken.update(devices)
            ids = tuple(cluster.devices[d].id for d in devices)
            more = f"+{size - 1}" if size > 1 else ""
            yield InstanceSpec(id=f"{ids[0]}{more}", devices=ids, variant=variant.name)
