"""One stage of a plan against the request and the cluster: may it stand there, what does it take and hold there."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from iegopt import library
from iegopt.cost.model import CostModel
from iegopt.cost.roofline import Capacity
from iegopt.devices import Device, DeviceClass
from iegopt.plans import Plan, StagePlan
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.kinds import KINDS, role_of
from iegopt.spec.request import RequestSpec
from iegopt.spec.stage import Parallelism, ParallelStrategy, Precision, StageSpec
from iegopt.spec.variant import Variant
from iegopt.verify.eligible import forbidden_step, is_resident, variant_named
from iegopt.verify.links import Links
from iegopt.verify.plain import WidestPrecision, plain_memory, plain_seconds

__all__ = ["RELATIVE", "ROUNDING", "Placed", "StageCheck", "State", "close"]

State = Mapping[str, tuple[float, int]]
"""Device id -> (T/T0, free bytes)."""

ROUNDING = 2e-9
"""Seconds that rounding to ticks may move one time or cost."""
RELATIVE = 1e-6


@dataclass(slots=True)
class Placed:
    """A stage as recomputed from the documents.

    ``work`` is T0 without the load time of weights (s), ``held`` bytes over the site without shared weights, ``kv`` its
    part that is KV cache, ``weights`` bytes over the site of the variant and devices in ``key``.
    """

    spec: StageSpec
    work: float
    t0: float
    time: float
    held: int
    kv: int
    weights: float
    key: tuple[str, tuple[str, ...]]


@dataclass(slots=True)
class StageCheck:
    """The documents that the stages of one plan are held against; ``bad(rule, where, used, allowed)`` is told."""

    plan: Plan
    request: RequestSpec
    cluster: ClusterSpec
    devices: Mapping[str, Device]
    state: State
    model: CostModel
    links: Links
    precisions: WidestPrecision
    bad: Callable[[str, str, float | str, float | str], None]

    def placed(self, spec: StageSpec, at: StagePlan) -> Placed | None:
        """The stage worked out again; ``None`` where its variant does not run there."""
        names = at.devices
        first = self.devices[names[0]]
        kind, k = first.kind, len(names)
        if k > 1:
            self._gang(spec, at)
        elif at.site != names[0]:
            self.bad("option", spec.id, at.site, "a gang of like devices")
        if spec.parallelism is not None and spec.parallelism.degree != k:
            self.bad("option", spec.id, f"{k} devices", f"{spec.parallelism.degree} devices")
        if kind.type not in (spec.device_types or KINDS[spec.type].device_types):
            self.bad("option", spec.id, str(kind.type), "a device type that runs the stage")
        if kind.roles is not None and (role_of(spec.type) not in kind.roles or k > 1):
            self.bad("option", spec.id, f"{k} devices with workers for {', '.join(kind.roles)}", role_of(spec.type))
        bound = spec.affinity.device
        if bound is not None and spec.affinity.required and bound not in names:
            self.bad("affinity", spec.id, at.site, bound)
        found = self._plain(spec, at, first) if spec.model is None else self._of_model(spec, at, first)
        if found is None or not found.t0 < math.inf:
            self.bad("option", spec.id, at.variant, "a variant that runs there")
            return None
        load = self.state[names[0]][0] if k == 1 else max([self.state[name][0] for name in names])
        time = found.time = found.t0 * load
        if time != at.time and not close(time, at.time, 1):
            self.bad("claim", f"time of {spec.id}", at.time, time)
        if spec.latency_sla is not None and time > spec.latency_sla + ROUNDING:
            self.bad("sla", spec.id, time, spec.latency_sla)
        return found

    def _gang(self, spec: StageSpec, at: StagePlan) -> None:
        gang = self.links.gang(at.devices)
        if at.site != "+".join(at.devices) or not gang.alike:
            self.bad("option", spec.id, at.site, "a gang of like devices")
        if not self.cluster.gangs and not gang.host:
            self.bad("option", spec.id, at.site, "a gang within one host")

    def _plain(self, spec: StageSpec, at: StagePlan, first: Device) -> Placed | None:
        """A stage without a model: from its own figures, where it is not a pipeline or copies of itself."""
        found = self.precisions.on(first.kind, spec.compute.precision)
        if found is None:
            return None
        precision, rate = found
        k, factor = len(at.devices), 1.0
        if k > 1:
            shape = spec.parallelism
            if shape is None or shape.strategy is not ParallelStrategy.TENSOR:
                return self._modelled(spec, at, first, precision, None)
            factor = k * (self._parallel_efficiency(at.devices) if shape.efficiency is None else shape.efficiency)
        t0 = plain_seconds(spec, first.kind, rate, factor)
        kv = spec.memory.kv_cache_size or 0
        return Placed(spec, t0, t0, t0, plain_memory(spec), kv, 0.0, (at.variant, at.devices))

    def _of_model(self, spec: StageSpec, at: StagePlan, first: Device) -> Placed | None:
        found = variant_named(at.variant, spec, first, self.request, self.cluster)
        if found is None:
            return None
        precision, variant = found
        step = forbidden_step(self.plan.tier, spec, first, precision, self.request, self.cluster, self.devices)
        if step is not None:
            self.bad("fallback", spec.id, f"{first.kind.model} in {precision}: {step}", f"tier {self.plan.tier}")
        return self._modelled(spec, at, first, precision, variant)

    def _modelled(
        self, spec: StageSpec, at: StagePlan, first: Device, precision: Precision, variant: Variant | None
    ) -> Placed:
        """By the cost model of one stage on one device, which is data about hardware."""
        kind, k = first.kind, len(at.devices)
        rate = kind.compute.rate(precision)
        assert rate is not None
        shape = spec.parallelism or Parallelism(
            strategy=ParallelStrategy.TENSOR if k > 1 else ParallelStrategy.NONE, degree=k
        )
        card = library.llm(spec.model) if spec.model else None
        if card is not None and shape.strategy is ParallelStrategy.TENSOR and card.attention_heads % k:
            self.bad("option", spec.id, f"{k} devices", f"a divisor of {card.attention_heads} attention heads")
        cost = self.model.stage_cost(
            spec, card, precision, kind.model, Capacity(rate, kind.bandwidth, kind.io, kind.vram), shape,
            efficiency=kind.efficiency_for(spec), parallel_efficiency=self._parallel_efficiency(at.devices),
        )  # fmt: skip
        weights, load_time = cost.weight_bytes, 0.0
        if spec.model is not None and kind.resident is not None:
            if is_resident(spec.model, at.variant, kind.resident):
                weights = 0.0
            elif not kind.loading:
                self.bad("option", spec.id, at.variant, f"a variant resident on {at.site}")
            elif variant is not None:
                load_time = self._load_time(spec.model, at.variant, kind, variant, cost.weight_bytes / k)
        t0 = cost.t0 + load_time
        held = math.ceil(cost.memory_bytes + cost.kv_bytes)
        key = (at.variant, at.devices)
        return Placed(spec, cost.t0, t0, t0, held, math.floor(cost.kv_bytes), weights, key)

    @staticmethod
    def _load_time(model: str, name: str, kind: DeviceClass, variant: Variant, weights: float) -> float:
        """What was measured on the device comes before what the registry states, and that before a share of its IO."""
        for measured, seconds in kind.load_times:
            if is_resident(model, name, (measured,)):
                return seconds
        return weights / kind.io if variant.load_time is None else variant.load_time

    def _parallel_efficiency(self, names: tuple[str, ...]) -> float:
        fabric = self.links.gang(names).domain
        return self.cluster.parallel_efficiency if fabric else self.cluster.host_parallel_efficiency


def close(a: float, b: float, terms: int) -> bool:
    """Whether two figures agree but for the rounding of so many terms."""
    return abs(a - b) <= RELATIVE * max(abs(a), abs(b)) + ROUNDING * terms
