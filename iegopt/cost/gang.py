"""Gangs: what k devices together offer one stage, per strategy.

=================  ==============================  =====================  ==========================
strategy           rates that one request sees     memory                 weights
=================  ==============================  =====================  ==========================
tensor_parallel    k · device · efficiency         k, spread evenly       once, spread evenly
pipeline_parallel  one device                      k, spread evenly       once, spread evenly
data_parallel      one device, for ⌈b/k⌉ of batch  k, spread evenly       k copies
=================  ==============================  =====================  ==========================

Tensor parallelism pays for two all-reduces a layer (Shoeybi et al., Megatron-LM, 2019, section 3), which the stated
parallel efficiency stands for. A pipeline passes a request through its stages one after the other: throughput
grows, the latency of one request does not, and the activations handed over are small. Replicas exchange nothing. So
the cluster's efficiency applies to tensor parallelism alone; one that the stage states applies to any strategy.
"""

from __future__ import annotations

from dataclasses import replace

from iegopt.cost.demand import Demand
from iegopt.cost.roofline import Capacity
from iegopt.spec.stage import Parallelism, ParallelStrategy

__all__ = ["gang_capacity", "gang_demand", "replica_demand"]


def gang_capacity(device: Capacity, parallelism: Parallelism, efficiency: float) -> Capacity:
    """What a gang of ``parallelism.degree`` such devices offers one request (a replica, for data parallelism).

    Parameters
    ----------
    efficiency
        The cluster's parallel efficiency; ``parallelism.efficiency`` wins.
    """
    k = parallelism.degree
    if k == 1:
        return device
    tensor = parallelism.strategy is ParallelStrategy.TENSOR
    own = parallelism.efficiency
    factor = (own if own is not None else efficiency if tensor else 1.0) * (k if tensor else 1)
    return Capacity(device.flops * factor, device.bandwidth * factor, device.io * factor, device.memory * k)


def replica_demand(demand: Demand, parallelism: Parallelism) -> Demand:
    """What the busiest replica of a data-parallel gang does: ⌈b/k⌉ sequences; other strategies do it all together.

    Every replica reads the weights for itself. A mixture of experts touches fewer with a smaller batch, which is left
    out: the figure errs on the slow side.
    """
    if parallelism.strategy is not ParallelStrategy.DATA or parallelism.degree == 1:
        return demand
    largest = -(-demand.batch // parallelism.degree)
    part = largest / demand.batch
    work = demand.decode
    if work is not None:
        work = replace(
            work, batch=-(-work.batch // parallelism.degree),
            flops=work.flops * part, kv_start=work.kv_start * part, kv_growth=work.kv_growth * part,
        )  # fmt: skip
    return replace(
        demand,
        flops=demand.flops * part,
        memory_bytes=demand.memory_bytes * part,
        kv_bytes=demand.kv_bytes * part,
        traffic_bytes=demand.weight_traffic + (demand.traffic_bytes - demand.weight_traffic) * part,
        io_bytes=demand.io_bytes * part,
        batch=largest,
        decode=work,
    )


def gang_demand(demand: Demand, parallelism: Parallelism) -> Demand:
    """The demand with the memory that the whole gang holds: k times a replica's, weights in every copy."""
    if parallelism.strategy is not ParallelStrategy.DATA or parallelism.degree == 1:
        return demand
    k, one = parallelism.degree, replica_demand(demand, parallelism)
    return replace(
        demand, memory_bytes=one.memory_bytes * k, kv_bytes=one.kv_bytes * k, weight_bytes=demand.weight_bytes * k
    )
