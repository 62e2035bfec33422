"""The instances of a snapshot as a verifier reads them: what they run, hold and have free, what work takes there."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from iegopt import library
from iegopt.cost.demand import activation_bytes, demand
from iegopt.cost.gang import gang_capacity
from iegopt.cost.model import CostModel
from iegopt.cost.roofline import Capacity, stage_time
from iegopt.devices import Device
from iegopt.spec.batch_policy import BatchPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.llm import LlmCard
from iegopt.spec.snapshot import InstanceSpec, InstanceState, Role, SnapshotSpec
from iegopt.spec.stage import Parallelism, ParallelStrategy, Precision, StageKind, StageSpec, TokenWork
from iegopt.spec.variant import Variant
from iegopt.verify.eligible import is_resident
from iegopt.verify.links import Links

__all__ = ["Costs", "Engine", "engines_of", "model_of"]

DeviceState = Mapping[str, tuple[float, int]]

_CHUNKS = 10**9
"""Tokens enough for a whole chunk's working memory."""
_FULL = 0.999
"""From this share of other work on an instance takes nothing new; what runs there is never left with less."""


class Costs:
    """Seconds of work on one kind of instance, by the cost model of single stages."""

    def __init__(
        self, card: LlmCard, precision: Precision, members: list[Device], cluster: ClusterSpec, model: CostModel
    ) -> None:
        first, k = members[0].kind, len(members)
        rate = first.compute.rate(precision)
        assert rate is not None
        self.card, self.precision, self.size, self.model, self.device = card, precision, k, model, first.model
        self.capacity = Capacity(rate, first.bandwidth, first.io, first.vram)
        fabric = len({device.path[0] for device in members}) == 1
        self.parallel = cluster.parallel_efficiency if fabric else cluster.host_parallel_efficiency
        self.shape = Parallelism(strategy=ParallelStrategy.TENSOR if k > 1 else ParallelStrategy.NONE, degree=k)
        self.gang = gang_capacity(self.capacity, self.shape, self.parallel)
        self.stage = {
            kind: StageSpec(id="stage", type=kind, model=card.name, tokens=TokenWork(new=1, output=1))
            for kind in (StageKind.PREFILL, StageKind.RE_PREFILL, StageKind.DECODE)
        }
        self.efficiency = first.efficiency_for(self.stage[StageKind.DECODE])
        self._per_token = card.kv_bytes_per_token()
        self._prefills: dict[tuple[int, int, int], float] = {}
        self.measured = model.profiles.lookup(StageKind.DECODE, card.name, precision, first.model, k)

    def prefill(self, prompt: int, reused: int, sequences: int) -> float:
        """P: seconds of a prefill, ``reused`` tokens of the prompt being there."""
        key = (prompt, reused, sequences)
        if key not in self._prefills:
            kind = StageKind.RE_PREFILL if reused else StageKind.PREFILL
            tokens = TokenWork(context=reused, new=prompt - reused, batch=sequences)
            stage = self.stage[kind].model_copy(update={"tokens": tokens})
            cost = self.model.stage_cost(
                stage, self.card, self.precision, self.device, self.capacity, self.shape,
                efficiency=self.efficiency, parallel_efficiency=self.parallel,
            )  # fmt: skip
            self._prefills[key] = cost.t0
        return self._prefills[key]

    @cached_property
    def base(self) -> tuple[float, float]:
        """A₀ and B₀ of a step: what it takes whatever the batch. All weights are read."""
        weights = self.card.parameters * self.precision.bytes
        if self.measured is not None and self.measured.measurement.decode is not None:
            fit, peak = self.measured.measurement.decode, self.measured.profile.peak_bandwidth
            both = fit.fixed + fit.sync * math.log2(self.size) + fit.weights * weights / (self.size * peak)
            return both, both
        return 0.0, weights / self.gang.bandwidth * self._scale

    def step(self, sequences: int, held: int, output: int) -> tuple[float, float]:
        """a and b: what sequences that hold so many tokens each, and decode so many, add to a step on average."""
        if not output:
            return 0.0, 0.0
        # The KV cache grows by a token a step, so that the middle step stands for the mean.
        read = self._per_token * sequences * (held + (output - 1) / 2)
        if self.measured is not None and self.measured.measurement.decode is not None:
            fit, peak = self.measured.measurement.decode, self.measured.profile.peak_bandwidth
            both = fit.per_sequence * sequences + fit.kv * read / (self.size * peak)
            return both, both
        flops = 2.0 * self.card.active * sequences
        return flops / self.gang.flops * self._scale, read / self.gang.bandwidth * self._scale

    @cached_property
    def _scale(self) -> float:
        """What multiplies the roofline's rows: 1/efficiency, or a table's middle length over the roofline there."""
        if self.measured is None:
            return 1.0 / self.efficiency
        lengths = sorted({point.tokens for point in self.measured.measurement.points})
        middle = lengths[len(lengths) // 2]
        return self.measured.at(1, middle, self._roofline) / self._roofline(1, middle)

    def _roofline(self, batch: float, tokens: float) -> float:
        """A step of the middle of a table."""
        work = TokenWork(context=round(tokens), output=1, batch=round(batch))
        stage = self.stage[StageKind.DECODE].model_copy(update={"tokens": work})
        return stage_time(demand(stage, self.card, self.precision), self.gang).seconds


@dataclass(frozen=True, eq=False)
class Engine:
    """An instance that is not lost.

    Attributes
    ----------
    free, other
        Bytes for KV caches, and the share of its time that other work takes: as reported, before what runs is heard.
    open
        Whether it takes anything new.
    host, disk
        Seconds per byte from its host's memory, and over its devices' IO.
    """

    spec: InstanceSpec
    members: tuple[str, ...]
    card: LlmCard
    precision: Precision
    kind: object
    costs: Costs
    free: int
    other: float
    open: bool
    host: float
    disk: float

    @property
    def id(self) -> str:
        return self.spec.id

    @property
    def prefills(self) -> bool:
        return self.spec.role is not Role.DECODE

    @property
    def decodes(self) -> bool:
        return self.spec.role is not Role.PREFILL

    def like(self, other: Engine) -> bool:
        """Whether a KV cache may travel between the two."""
        return (self.card.name, self.precision) == (other.card.name, other.precision)


def model_of(name: str, cluster: ClusterSpec) -> tuple[LlmCard, Variant]:
    """Card and variant that an instance names (``model/precision/backend``)."""
    for cut in (i for i, letter in enumerate(name) if letter == "/"):
        if not library.has_card("llm", name[:cut]):
            continue
        card = library.llm(name[:cut])
        names = {card.name.lower(), *(alias.lower() for alias in card.aliases)}
        own = [path for path in cluster.execution_path_registry or () if path.model.lower() in names]
        path = own[-1] if own else library.path(card.name)
        for variant in path.variants if path else ():
            if variant.artifact.lower() == name[cut + 1 :].lower():
                return card, variant
    raise ValueError(f"{name}: no variant is called so")


def engines_of(
    snapshot: SnapshotSpec, policy: BatchPolicy, cluster: ClusterSpec, devices: Mapping[str, Device],
    state: DeviceState, model: CostModel,
) -> dict[str, Engine]:  # fmt: skip
    """The instances that are not lost, by id."""
    known: dict[object, Costs] = {}
    found: dict[str, Engine] = {}
    links = Links(cluster, devices)
    for spec in snapshot.instances:
        if spec.state is InstanceState.LOST:
            continue
        members = [devices[name] for name in spec.devices]
        card, variant = model_of(spec.variant, cluster)
        fabric = len({member.path[0] for member in members}) == 1
        kind = (members[0].kind, len(members), fabric, card.name, variant.artifact)
        if kind not in known:
            known[kind] = Costs(card, variant.precision, members, cluster, model)
        age = 0.0 if spec.observed is None else snapshot.time - spec.observed
        other = spec.utilization * 0.5 ** (age / policy.half_life)
        found[spec.id] = Engine(
            spec=spec,
            members=spec.devices,
            card=card,
            precision=variant.precision,
            kind=kind,
            costs=known[kind],
            free=_free(spec, members, card, variant, state),
            other=other,
            open=spec.state is InstanceState.UP and age < policy.lost_after and other < _FULL,
            host=1.0 / links.tree_link(1, members[0].path[1]).bandwidth / len(members),
            disk=1.0 / (members[0].kind.io * len(members)) if members[0].kind.io > 0 else math.inf,
        )
    return found


def _free(spec: InstanceSpec, members: list[Device], card: LlmCard, variant: Variant, state: DeviceState) -> int:
    """What is free of its devices less the weights, or as reported; a chunk's working memory where it prefills."""
    kind, k = members[0].kind, len(members)
    if spec.used is None:
        artifact = f"{card.name}/{variant.artifact}"
        there = kind.resident is not None and is_resident(card.name, artifact, kind.resident)
        weights = 0 if there else int(card.parameters * variant.precision.bytes)
        room = min(state[name][1] for name in spec.devices) * k - weights
    else:
        room = k * kind.vram - k * max(member.reserve for member in members) - spec.used
    if spec.role is not Role.DECODE:
        room -= int(activation_bytes(card, _CHUNKS))
    return max(0, room)
