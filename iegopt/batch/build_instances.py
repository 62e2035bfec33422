"""The instances of a snapshot as arrays: kinds, free memory, aged load, links between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.batch.kinds import InstanceKind, instance_kind
from iegopt.batch.model import Instances, Kinds
from iegopt.batch.steps import step_base
from iegopt.cost.demand import activation_bytes
from iegopt.errors import InputError
from iegopt.problem.cluster import CompiledCluster
from iegopt.problem.topology import WAN, Topology
from iegopt.problem.variants import Candidate
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.explain_error import nearest
from iegopt.spec.snapshot import InstanceSpec, InstanceState, Role, SnapshotSpec
from iegopt.units import shown

__all__ = ["MOST_OTHER", "BuiltInstances", "build_instances"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_OTHER = 0.999
"""Other work takes no more than this of an instance that runs something: its stages are known to advance."""

_HOST = 1
_WHOLE_PROMPT = 10**9


@dataclass(frozen=True, eq=False)
class BuiltInstances:
    """Instances and kinds, and what building the rest needs.

    Attributes
    ----------
    specs
        Of the instances, in their order; ``index`` finds one by its id.
    lost
        Variants of those that are lost.
    disk_seconds_per_byte (J,)
        To read KV cache over the devices' IO; ∞ without any.
    """

    instances: Instances
    kinds: Kinds
    specs: tuple[InstanceSpec, ...]
    index: dict[str, int]
    lost: dict[str, Candidate]
    disk_seconds_per_byte: Floats
    warnings: list[str]


def build_instances(cluster: CompiledCluster, snapshot: SnapshotSpec, policy: BatchPolicy) -> BuiltInstances:
    """Raises ``InputError`` naming the instance: unknown device or variant, unlike devices, a variant that does not
    run there, more memory used than there is."""
    number_of = {spec.id: number for number, spec in enumerate(snapshot.instances)}
    up = tuple(spec for spec in snapshot.instances if spec.state is not InstanceState.LOST)
    lost = {
        spec.id: _variant(cluster, spec, f"snapshot.instances.{number_of[spec.id]}")
        for spec in snapshot.instances
        if spec.state is InstanceState.LOST
    }
    warnings = [f"instance {name} is lost" for name in lost]
    kinds: dict[tuple[object, ...], int] = {}
    made: list[InstanceKind] = []
    candidates: dict[str, Candidate] = {}
    devices: list[list[int]] = []
    kind = np.empty(len(up), dtype=np.int64)
    free = np.empty(len(up), dtype=np.int64)
    for j, spec in enumerate(up):
        where = f"snapshot.instances.{number_of[spec.id]}"
        members = _devices(cluster, spec, where)
        if spec.variant not in candidates:
            candidates[spec.variant] = _variant(cluster, spec, where)
        candidate, first = candidates[spec.variant], cluster.devices[members[0]]
        fabric = len({cluster.devices[d].path[0] for d in members}) == 1
        key = (first.kind, len(members), fabric, candidate.name)
        if key not in kinds:
            kinds[key] = len(made)
            made.append(_kind(cluster, candidate, members, fabric, where))
        kind[j] = kinds[key]
        free[j] = _free(cluster, spec, members, made[kinds[key]], candidate, where)
        devices.append(members)
    age = np.array([0.0 if s.observed is None else snapshot.time - s.observed for s in up])
    stale = age >= policy.lost_after
    warnings += [
        f"instance {spec.id}: figures are {old:.4g} s old, nothing new is placed there"
        for spec, old, late in zip(up, age, stale, strict=True)
        if late
    ]
    stated = np.array([spec.utilization for spec in up], dtype=float)
    level, latency, rate = _links(cluster, devices)
    families: dict[object, int] = {}
    family = np.array([families.setdefault(k.family, len(families)) for k in made], dtype=np.int64)
    compute, read = step_base(made)
    size = np.array([len(members) for members in devices], dtype=float)
    io = np.array([cluster.devices[members[0]].kind.io for members in devices], dtype=float)
    price = np.array([sum(cluster.state.price[d] for d in members) for members in devices], dtype=float)
    most = np.array([spec.max_batch for spec in up], dtype=np.int64)
    instances = Instances(
        ids=tuple(spec.id for spec in up),
        kind=kind,
        open=np.array([spec.state is InstanceState.UP for spec in up], dtype=bool) & ~stale,
        prefills=np.array([spec.role is not Role.DECODE for spec in up], dtype=bool),
        decodes=np.array([spec.role is not Role.PREFILL for spec in up], dtype=bool),
        free=free,
        free_for_more=free,
        other=stated * 0.5 ** (age / policy.half_life),
        max_batch=most,
        batch_for_more=most,
        level=level,
        latency=latency,
        seconds_per_byte=rate,
        host_seconds_per_byte=_host_rate(cluster, devices) / size,
        price=price / cluster.reference_price,
        base_pace=np.full(len(up), -1),
    )
    with np.errstate(divide="ignore"):
        disk = 1.0 / (io * size)
    return BuiltInstances(
        instances, Kinds(tuple(made), family, compute, read), up, {spec.id: j for j, spec in enumerate(up)}, lost,
        disk, warnings,
    )  # fmt: skip


def _variant(cluster: CompiledCluster, spec: InstanceSpec, where: str) -> Candidate:
    try:
        return cluster.registry.named(spec.variant)
    except InputError as error:
        raise InputError(f"{where}.variant: {error}") from None


def _devices(cluster: CompiledCluster, spec: InstanceSpec, where: str) -> list[int]:
    index = cluster.state.index
    for name in spec.devices:
        if name not in index:
            guess = nearest(name, index)
            hint = f". Maybe {guess}?" if guess else ""
            raise InputError(
                f"{where}.devices: no device of cluster {cluster.spec.name} is called {shown(name)}{hint}"
            )  # fmt: skip
    members = [index[name] for name in spec.devices]
    if len({cluster.devices[d].kind for d in members}) > 1:
        raise InputError(f"{where}.devices: expected devices of one model, got {', '.join(spec.devices)}")
    return members


def _kind(cluster: CompiledCluster, candidate: Candidate, members: list[int], fabric: bool, where: str) -> InstanceKind:
    efficiency = (cluster.spec.parallel_efficiency, cluster.spec.host_parallel_efficiency)
    device = cluster.devices[members[0]].kind
    try:
        return instance_kind(candidate, device, len(members), fabric, cluster.cost_model, efficiency)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None


def _free(
    cluster: CompiledCluster, spec: InstanceSpec, members: list[int], kind: InstanceKind, candidate: Candidate,
    where: str,
) -> int:  # fmt: skip
    """Bytes for KV caches: what is free, less a chunk's working memory where it prefills. A gang spreads evenly."""
    total = sum(cluster.devices[d].kind.vram for d in members)
    if spec.used is None:
        residency = candidate.residency(kind.device)
        counted = residency is None or residency.weights_count
        weights = int(kind.card.parameters * kind.precision.bytes) if counted else 0
        room = int(min(cluster.state.free[d] for d in members)) * len(members) - weights
    else:
        if spec.used > total:
            there = f"the {total / 1e9:.4g}GB of its devices"
            raise InputError(f"{where}.used: {spec.used / 1e9:.4g}GB is more than {there}")
        room = total - max(cluster.devices[d].reserve for d in members) * len(members) - spec.used
    if spec.role is not Role.DECODE:
        room -= int(activation_bytes(kind.card, _WHOLE_PROMPT))
    return max(0, room)


def _links(cluster: CompiledCluster, devices: list[list[int]]) -> tuple[npt.NDArray[np.int8], Floats, Floats]:
    """Level, latency and seconds per byte between instances (J, J), as between the cluster's sites.

    Where two devices' pair was measured it counts for instances that are sites; others take the tree.
    """
    topology, J = _sites(cluster), len(devices)
    level = np.full((J, J), WAN, dtype=np.int8)
    latency = np.full((J, J), topology.latency[WAN][0])
    rate = np.full((J, J), topology.seconds_per_byte[WAN][0])
    for at in reversed(range(WAN)):
        group = np.array([_common(topology.group[at], members) for members in devices], dtype=np.int64)
        meet = np.nonzero((group[:, None] == group[None, :]) & (group >= 0)[:, None])
        level[meet] = at
        latency[meet] = topology.latency[at][group[meet[0]]]
        rate[meet] = topology.seconds_per_byte[at][group[meet[0]]]
    size = np.array([len(members) for members in devices])
    rate = np.where(size[:, None] == size[None, :], rate / size[:, None], rate)
    if topology.pair_latency is not None and topology.pair_seconds_per_byte is not None:
        names = {frozenset(name.split("+")): s for s, name in enumerate(topology.sites)}
        site = np.array([names.get(frozenset(topology.devices[d] for d in m), -1) for m in devices], dtype=np.int64)
        known = np.flatnonzero(site >= 0)
        latency[np.ix_(known, known)] = topology.pair_latency[np.ix_(site[known], site[known])]
        rate[np.ix_(known, known)] = topology.pair_seconds_per_byte[np.ix_(site[known], site[known])]
    diagonal = np.arange(J)
    level[diagonal, diagonal], latency[diagonal, diagonal], rate[diagonal, diagonal] = -1, 0.0, 0.0
    return level, latency, rate


def _sites(cluster: CompiledCluster) -> Topology:
    return cluster.sites(cluster.gang_sizes).topology


def _common(group: Ints, members: list[int]) -> int:
    """The group that holds all devices, −1 where there is none."""
    groups = {int(group[d]) for d in members}
    return groups.pop() if len(groups) == 1 else -1


def _host_rate(cluster: CompiledCluster, devices: list[list[int]]) -> Floats:
    """(J,) seconds per byte between a device and its host's memory."""
    topology = _sites(cluster)
    return np.array([topology.seconds_per_byte[_HOST][topology.group[_HOST, m[0]]] for m in devices], dtype=float)
