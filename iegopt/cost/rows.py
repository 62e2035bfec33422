"""Seconds of many stages on many kinds of sites in one go: stages that name no model, by arrays.

The same roofline as ``CostModel.stage_cost``, which takes some 20 µs for one stage on one kind of site: with 50 stages
on 16 kinds that is more than a deadline of a millisecond has. What a kind offers depends on precision, device types and
parallelism alone, of which a request has a few, so that its rates are rows that stages share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.cost.gang import gang_capacity
from iegopt.cost.roofline import Bottleneck, Capacity
from iegopt.devices import DeviceClass
from iegopt.spec.kinds import KINDS
from iegopt.spec.stage import DeviceType, NodeType, Parallelism, ParallelStrategy, Precision, StageSpec

__all__ = ["BOTTLENECKS", "Kind", "KindRates", "Rows"]

Floats = npt.NDArray[np.float64]

Kind = tuple[DeviceClass, int, bool]
"""Device class, gang size, whether one domain holds the gang."""
BOTTLENECKS: tuple[Bottleneck, ...] = ("compute", "bandwidth", "io", "fixed")
_WIDEST = (Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16, Precision.FP8, Precision.INT8)
_USUAL = (None, Precision.BF16, Precision.FP16, Precision.FP8)
_ALONE = Parallelism(strategy=ParallelStrategy.NONE)
_Want = tuple[object, ...]
_MOST_KEPT = 256
"""Rows of rates that are kept from one request to the next."""


@dataclass(frozen=True, eq=False)
class Rows:
    """What stages take on kinds of sites.

    Attributes
    ----------
    seconds (V, K)
        T0; infinite where a kind does not run a stage.
    terms (V, 4, K)
        Seconds by what bounds them, as in ``BOTTLENECKS``.
    held (V,)
        Bytes over the whole site: working memory and KV cache.
    """

    seconds: Floats
    terms: Floats
    held: Floats


class KindRates:
    """What kinds of sites offer stages without a model: the rates are kept, the stages are not."""

    def __init__(self, kinds: Sequence[Kind], parallel_efficiency: tuple[float, float]) -> None:
        """``parallel_efficiency`` of gangs within a domain, and of gangs that only share a host."""
        self._kinds = kinds
        self._efficiency = parallel_efficiency
        self._number: dict[_Want, int] = {}
        self._rates: list[Floats] = []
        self._stacked = np.empty((0, 3, len(kinds)))

    def prepare(self) -> None:
        """Work out what the kinds offer the usual stages, before one asks for it within a deadline."""
        sizes = sorted({size for _, size, _ in self._kinds})
        gangs = [Parallelism(strategy=ParallelStrategy.TENSOR, degree=size) for size in sizes]
        shapes = [None, _ALONE, *gangs]
        for types in {usual.device_types for usual in KINDS.values() if usual.node_type is NodeType.COMPUTE}:
            for precision in _USUAL:
                for shape in shapes:
                    key = _key(precision, types, shape)
                    if key not in self._number:
                        self._add(key, precision, types, shape or _ALONE)
        self._stacked = np.stack(self._rates)

    def rows(self, stages: Sequence[StageSpec]) -> Rows:
        """Of stages without a model (``supports``)."""
        if len(self._rates) > _MOST_KEPT:
            self._number.clear()
            self._rates.clear()
        want, known = self._want, self._number
        figures, wants = [], []
        for stage in stages:
            usual, compute, memory, io = KINDS[stage.type], stage.compute, stage.memory, stage.io
            flops, traffic, vram, shape = compute.flops, memory.traffic, memory.vram, stage.parallelism
            types = stage.device_types or usual.device_types
            key = _key(compute.precision, types, shape)
            number = known.get(key)
            wants.append(want(key, stage, types) if number is None else number)
            figures.append((
                usual.flops if flops is None else flops,
                usual.traffic if traffic is None else traffic,
                usual.io if io is None else io.bytes,
                stage.fixed_time,
                (usual.vram if vram is None else vram) + (memory.kv_cache_size or 0),
            ))  # fmt: skip
        rates = self._stacked[wants] if self._number else self._stacked
        amount = np.array(figures, dtype=np.float64).reshape(-1, 5, 1)
        terms = np.zeros((len(figures), 4, len(self._kinds)))
        with np.errstate(divide="ignore"):
            np.divide(amount[:, :3], rates, out=terms[:, :3], where=amount[:, :3] > 0.0)
        terms[:, 3] = amount[:, 3]
        seconds = terms[:, :3].max(axis=1) + amount[:, 3]
        seconds[np.isnan(rates[:, 0])] = math.inf
        return Rows(seconds, terms, np.ceil(amount[:, 4, 0]))

    @staticmethod
    def supports(stage: StageSpec) -> bool:
        """Whether a stage is one device's work, or a tensor-parallel gang's, and names no model."""
        shape = stage.parallelism
        plain = shape is None or shape.degree == 1 or shape.strategy is ParallelStrategy.TENSOR
        return stage.model is None and plain

    def _want(self, key: _Want, stage: StageSpec, types: tuple[DeviceType, ...]) -> int:
        """A new row of rates."""
        number = self._add(key, stage.compute.precision, types, stage.parallelism or _ALONE)
        self._stacked = np.stack(self._rates)
        return number

    def _add(self, key: _Want, precision: Precision | None, types: tuple[DeviceType, ...], shape: Parallelism) -> int:
        number = self._number[key] = len(self._rates)
        offers = [self._offer(kind, precision, types, shape) for kind in self._kinds]
        self._rates.append(np.array(offers).T)
        return number

    def _offer(
        self, kind: Kind, precision: Precision | None, types: tuple[DeviceType, ...], shape: Parallelism
    ) -> tuple[float, float, float]:
        """FLOP/s, byte/s of memory and byte/s of IO, the device's efficiency included; NaN where it does not run."""
        device, size, fabric = kind
        choices = _WIDEST if precision is None else (precision,)
        rate = next((r for p in choices if (r := device.compute.rate(p)) is not None), None)
        if size != shape.degree or device.type not in types or rate is None:
            return (math.nan, math.nan, math.nan)
        efficiency = 1.0 if device.efficiency is None else device.efficiency
        one = Capacity(rate, device.bandwidth, device.io, float(device.vram))
        gang = gang_capacity(one, shape, self._efficiency[0 if fabric else 1])
        return (gang.flops * efficiency, gang.bandwidth * efficiency, gang.io * efficiency)


def _key(precision: Precision | None, types: tuple[DeviceType, ...], shape: Parallelism | None) -> _Want:
    """What the rates of a stage depend on."""
    if shape is None:
        return precision, types
    return precision, types, shape.strategy, shape.degree, shape.efficiency
