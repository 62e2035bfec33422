"""The roofline: what a demand takes on a capacity, and which of the two decides (Williams et al., CACM 2009).

    T0 = max( C/Cap_C , B/Cap_B , IO/Cap_IO ) / efficiency + F

A decode is the sum over its steps of max(C_step/Cap_C, B_step/Cap_B), where B_step grows with the KV cache, in
closed form.
M/Cap_M is a fraction: it is reported as ``capacity_ratio`` and never compared with seconds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from iegopt.cost.demand import DecodeWork, Demand
from iegopt.spec.device import DeviceCard, DeviceSpec
from iegopt.spec.stage import Precision

__all__ = ["Bottleneck", "Capacity", "StageTime", "decode_seconds", "device_capacity", "stage_time"]

Bottleneck = Literal["compute", "bandwidth", "io", "fixed"]


@dataclass(frozen=True)
class Capacity:
    """Cap_C (FLOP/s in one precision), Cap_B and Cap_IO (byte/s), Cap_M (byte) of a device or a gang.

    A rate of 0 means that the device has none: work that needs it takes forever there.
    """

    flops: float
    bandwidth: float
    io: float
    memory: float


@dataclass(frozen=True)
class StageTime:
    """Seconds of a stage, the dimension that decides them, and every dimension's own seconds."""

    seconds: float
    bottleneck: Bottleneck
    terms: dict[Bottleneck, float]
    capacity_ratio: float


def device_capacity(device: DeviceCard | DeviceSpec, precision: Precision) -> Capacity | None:
    """The capacity of one device, ``None`` where it does not support the precision."""
    flops = device.compute.rate(precision)
    if flops is None:
        return None
    memory = device.memory
    return Capacity(flops, memory.bandwidth or 0.0, device.io.bandwidth or 0.0, float(memory.vram or 0))


def stage_time(demand: Demand, capacity: Capacity, efficiency: float = 1.0) -> StageTime:
    """T0 of a demand; ``efficiency`` divides the roofline and leaves the fixed time alone.

    Seconds are infinite where the capacity lacks a rate that the demand needs, or the efficiency is 0.
    """
    raw: dict[Bottleneck, float] = {
        "compute": _quotient(demand.flops, capacity.flops),
        "bandwidth": _quotient(demand.traffic_bytes, capacity.bandwidth),
        "io": _quotient(demand.io_bytes, capacity.io),
    }
    longest = max(raw.values())
    if demand.decode is not None:
        longest = max(longest, decode_seconds(demand.decode, capacity))
    terms: dict[Bottleneck, float] = {name: _quotient(t, efficiency) for name, t in raw.items()}
    terms["fixed"] = demand.fixed_time
    seconds = _quotient(longest, efficiency) + demand.fixed_time
    held = demand.memory_bytes + demand.kv_bytes + demand.weight_bytes
    return StageTime(seconds, max(terms, key=terms.__getitem__), terms, _quotient(held, capacity.memory))


def decode_seconds(work: DecodeWork, capacity: Capacity) -> float:
    """Σ over steps i of max( C/Cap_C , (W + K₀ + g·i)/Cap_B ), exactly.

    The second term grows with i, so compute decides up to the first step m at which bandwidth takes over:
    m·C/Cap_C + [ (n − m)·(W + K₀) + g·(n(n−1) − m(m−1))/2 ] / Cap_B.
    """
    n = work.steps
    compute = _quotient(work.flops, capacity.flops)
    first = work.weight_traffic + work.kv_start
    if n == 0:
        return 0.0
    if math.isinf(compute) or (capacity.bandwidth == 0.0 and first + work.kv_growth > 0.0):
        return math.inf
    if work.kv_growth == 0.0:
        return n * max(compute, _quotient(first, capacity.bandwidth))
    margin = compute * capacity.bandwidth - first
    m = min(n, max(0, math.ceil(margin / work.kv_growth)))
    moved = (n - m) * first + work.kv_growth * (n * (n - 1) - m * (m - 1)) / 2
    return m * compute + _quotient(moved, capacity.bandwidth)


def _quotient(amount: float, rate: float) -> float:
    if amount == 0.0:
        return 0.0
    return amount / rate if rate > 0.0 else math.inf
