"""Seconds of many stages on many kinds of sites in one go: stages that name no model, by arrays.

The same roofline as ``CostModel.stage_cost``, which takes some 20 µs for one stage on one kind of site: with 50 stages
on 16 kinds that is more than a deadline of a millisecond has. What a kind offers depends on precision, device types and
parallelism alone, of which a request has a few, so that its rates are rows that stages share.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock

import numpy as np
import numpy.typing as npt

from iegopt.cost.gang import gang_capacity
from iegopt.cost.roofline import Bottleneck, Capacity
from iegopt.devices import DeviceClass
from iegopt.spec.figures import AMOUNTS, PlainFigures, Shape
from iegopt.spec.kinds import KINDS, role_of
from iegopt.spec.stage import NodeType, Parallelism, ParallelStrategy, Precision

__all__ = ["BOTTLENECKS", "Kind", "KindRates", "Rows"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

Kind = tuple[DeviceClass, int, bool]
"""Device class, gang size, whether one domain holds the gang."""
BOTTLENECKS: tuple[Bottleneck, ...] = ("compute", "bandwidth", "io", "fixed")
_WIDEST = (Precision.FP32, Precision.TF32, Precision.BF16, Precision.FP16, Precision.FP8, Precision.INT8)
_USUAL = (None, Precision.BF16, Precision.FP16, Precision.FP8)
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
    """What kinds of sites offer stages without a model: the rates are kept, the stages are not.

    Threads may share one.
    """

    def __init__(self, kinds: Sequence[Kind], parallel_efficiency: tuple[float, float]) -> None:
        """``parallel_efficiency`` of gangs within a domain, and of gangs that only share a host."""
        self._kinds = kinds
        self._efficiency = parallel_efficiency
        self._number: dict[Shape, int] = {}
        self._rates: list[Floats] = []
        self._stacked = np.empty((0, 3, len(kinds)))
        self._lock = Lock()

    def prepare(self) -> None:
        """Work out what the kinds offer the usual stages, before one asks for it within a deadline."""
        sizes = sorted({size for _, size, _ in self._kinds})
        gangs = [(ParallelStrategy.NONE, 1), *((ParallelStrategy.TENSOR, size) for size in sizes)]
        with self._lock:
            computing = {kind: usual for kind, usual in KINDS.items() if usual.node_type is NodeType.COMPUTE}
            for types, role in sorted({(usual.device_types, role_of(kind)) for kind, usual in computing.items()}):
                for precision in _USUAL:
                    for strategy, degree in gangs:
                        self._add(Shape(precision, types, role, strategy, degree, None))
            self._stacked = np.stack(self._rates)

    def known(self, figures: PlainFigures) -> tuple[Ints, Floats]:
        """(V,) the row of every plain stage among (N, 3, K) rates: FLOP/s, byte/s of memory and of IO, NaN where a kind
        does not run it."""
        with self._lock:
            if len(self._rates) > _MOST_KEPT:
                self._number.clear()
                self._rates.clear()
            fresh = [shape for shape in figures.shapes if shape not in self._number]
            for shape in fresh:
                self._add(shape)
            if fresh:
                self._stacked = np.stack(self._rates)
            number, stacked = [self._number[shape] for shape in figures.shapes], self._stacked
        return np.array(number, dtype=np.int64)[figures.shape], stacked

    def rows(self, figures: PlainFigures) -> Rows:
        """Of plain stages."""
        number, stacked = self.known(figures)
        rates = stacked[number]
        amount = np.frombuffer(figures.amounts, dtype=np.float64).reshape(-1, AMOUNTS, 1)
        terms = np.zeros((len(amount), 4, len(self._kinds)))
        with np.errstate(divide="ignore"):
            np.divide(amount[:, :3], rates, out=terms[:, :3], where=amount[:, :3] > 0.0)
        terms[:, 3] = amount[:, 3]
        seconds = terms[:, :3].max(axis=1) + amount[:, 3]
        seconds[np.isnan(rates[:, 0])] = math.inf
        return Rows(seconds, terms, np.ceil(amount[:, 4, 0]))

    def _add(self, shape: Shape) -> None:
        """A row of rates, where it is not yet known."""
        if shape in self._number:
            return
        self._number[shape] = len(self._rates)
        gang = Parallelism(strategy=shape.strategy, degree=shape.degree, efficiency=shape.efficiency)
        offers = [self._offer(kind, shape, gang) for kind in self._kinds]
        self._rates.append(np.ascontiguousarray(np.array(offers).T))

    def _offer(self, kind: Kind, shape: Shape, gang: Parallelism) -> tuple[float, float, float]:
        """FLOP/s, byte/s of memory and byte/s of IO, the device's efficiency included; NaN where it does not run."""
        device, size, fabric = kind
        choices = _WIDEST if shape.precision is None else (shape.precision,)
        rate = next((r for p in choices if (r := device.compute.rate(p)) is not None), None)
        served = device.roles is None or (shape.role in device.roles and size == 1)
        if size != shape.degree or device.type not in shape.types or not served or rate is None:
            return (math.nan, math.nan, math.nan)
        efficiency = 1.0 if device.efficiency is None else device.efficiency
        one = Capacity(rate, device.bandwidth, device.io, float(device.vram))
        whole = gang_capacity(one, gang, self._efficiency[0 if fabric else 1])
        return (whole.flops * efficiency, whole.bandwidth * efficiency, whole.io * efficiency)
