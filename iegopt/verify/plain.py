"""A stage that names no model, worked out from its own figures and a device's, without the cost model.

    t0 = max( C/Cap_C , B/Cap_B , IO/Cap_IO ) / efficiency + F        M = vram + kv_cache_size

What the stage leaves out is its kind's (section 2 of the placement model). A tensor-parallel gang of k devices has k
times the rates, times its parallel efficiency, and spreads M evenly.
"""

from __future__ import annotations

import math

from iegopt.devices import DeviceClass
from iegopt.spec.kinds import KINDS
from iegopt.spec.stage import Precision, StageSpec

__all__ = ["WidestPrecision", "plain_memory", "plain_rates", "plain_seconds"]


def plain_seconds(spec: StageSpec, kind: DeviceClass, rate: float, factor: float) -> float:
    """T0 in seconds, infinite where a rate that the stage needs is missing.

    Parameters
    ----------
    rate
        FLOP/s of one device in the stage's precision.
    factor
        k times the parallel efficiency; 1 for a single device.
    """
    flops, traffic, usual = spec.compute.flops, spec.memory.traffic, KINDS[spec.type]
    moved = usual.io if spec.io is None else spec.io.bytes
    computing, moving, reading = plain_rates(kind, rate, factor)
    amount = usual.flops if flops is None else flops
    longest = amount / computing if computing > 0.0 else _over(amount, computing)
    amount = usual.traffic if traffic is None else traffic
    in_memory = amount / moving if moving > 0.0 else _over(amount, moving)
    if in_memory > longest:
        longest = in_memory
    if moved:
        longest = max(longest, _over(moved, reading))
    return longest + spec.fixed_time


def plain_rates(kind: DeviceClass, rate: float, factor: float) -> tuple[float, float, float]:
    """FLOP/s, byte/s of memory and byte/s of IO; ``rate`` and ``factor`` as in ``plain_seconds``."""
    if kind.efficiency is not None:
        factor *= kind.efficiency
    return rate * factor, kind.bandwidth * factor, kind.io * factor


def _over(amount: float, rate: float) -> float:
    if rate > 0.0:
        return amount / rate
    return math.inf if amount else 0.0


def plain_memory(spec: StageSpec) -> int:
    """M in bytes over the whole site."""
    held = spec.memory
    own = KINDS[spec.type].vram if held.vram is None else held.vram
    return math.ceil(own + (held.kv_cache_size or 0))


class WidestPrecision:
    """The precision and its FLOP/s of a stage without a model on a class of devices, kept once looked up."""

    def __init__(self) -> None:
        self._kept: dict[tuple[Precision | None, int], tuple[DeviceClass, tuple[Precision, float] | None]] = {}

    def on(self, kind: DeviceClass, wanted: Precision | None) -> tuple[Precision, float] | None:
        """``wanted``, else the widest of 8 bits or more, fp32 and bf16 first; ``None``: the device has none of them."""
        key = (wanted, id(kind))
        known = self._kept.get(key)
        if known is not None and known[0] is kind:
            return known[1]
        order = [wanted] if wanted else [p for p in Precision if p.bytes >= 1]
        order.sort(key=lambda p: (-p.bytes, p is not Precision.FP32, p is not Precision.BF16))
        rates = ((p, kind.compute.rate(p)) for p in order)
        found = next(((p, rate) for p, rate in rates if rate is not None), None)
        self._kept[key] = kind, found
        return found
