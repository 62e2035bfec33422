"""The options of one stage: every compatible (site, variant) with its times, cost and memory.

Costs are worked out once per (device class, gang size, variant) and spread over the sites by
arrays; only load and price differ from site to site, and only load and free memory from plan to plan.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from iegopt.cost.model import CostModel, StageCost
from iegopt.cost.roofline import Capacity
from iegopt.cost.weights import CostWeights
from iegopt.devices import DeviceClass
from iegopt.problem.sites import SiteTable
from iegopt.problem.tiers import Preferred
from iegopt.problem.variants import Candidate
from iegopt.spec.kinds import KINDS
from iegopt.spec.stage import Parallelism, ParallelStrategy, Precision, StageSpec

__all__ = ["Block", "SiteFigures", "StageLayout", "StageOptions", "stage_layout"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SiteFigures:
    """Per site: T/T0, $/h; and for the whole problem the price that money is measured in ($/h)."""

    load: Floats
    price: Floats
    reference_price: float


@dataclass(frozen=True)
class Block:
    """What all options of one (device class, gang size, variant) share."""

    cost: StageCost
    candidate: Candidate
    precision: Precision
    load_time: float
    weight_bytes: float
    tier: int


@dataclass(frozen=True, order=True)
class Refusal:
    """Why a variant has no option on a kind of site; the highest rank is the one that came closest."""

    rank: int
    reason: str


@dataclass(frozen=True, eq=False)
class StageLayout:
    """What of a stage's options does not change with the cluster's state, in site order.

    Attributes
    ----------
    site, block (n,)
        Site, and index into ``blocks``.
    t0 (n,)
        Seconds; load time of weights included.
    memory (n,)
        Bytes over the whole site, weights and transfer buffers apart.
    refused
        Reason -> how many sites it ruled out.
    """

    site: Ints
    block: Ints
    t0: Floats
    memory: Ints
    blocks: tuple[Block, ...]
    refused: Counter[str]


@dataclass(eq=False)
class StageOptions:
    """Options of a stage in the present state; arrays (n,) in site order, as in ``StageLayout``.

    ``time`` is T in seconds, ``money`` is M in seconds at the reference price, ``memory`` includes the buffers.
    """

    site: Ints
    block: Ints
    t0: Floats
    time: Floats
    money: Floats
    memory: Ints
    blocks: tuple[Block, ...]
    refused: Counter[str]

    @classmethod
    def of(cls, layout: StageLayout, figures: SiteFigures, buffer: int) -> StageOptions:
        """``buffer`` bytes of transfers come on top of the stage's own memory."""
        site, block, t0, memory = layout.site, layout.block, layout.t0, layout.memory
        refused = layout.refused.copy()
        usable = np.isfinite(figures.load[site])
        if not usable.all():
            refused["the device is fully utilised"] += int((~usable).sum())
            site, block, t0, memory = site[usable], block[usable], t0[usable], memory[usable]
        return cls(
            site=site,
            block=block,
            t0=t0,
            time=t0 * figures.load[site],
            money=t0 * figures.price[site] / figures.reference_price,
            memory=memory + buffer,
            blocks=layout.blocks,
            refused=refused,
        )

    def cost(self, weights: CostWeights) -> Floats:
        """(n,) α·L + β·T + γ·M of every option, in seconds."""
        return weights.alpha * self.t0 + weights.beta * self.time + weights.gamma * self.money


def stage_layout(
    stage: StageSpec,
    candidates: tuple[Candidate, ...],
    table: SiteTable,
    model: CostModel,
    parallel_efficiency: tuple[float, float],
    degrees: tuple[int, ...],
    preference: Preferred | None,
) -> StageLayout:
    """All options of a stage, whatever its SLA says.

    Parameters
    ----------
    parallel_efficiency
        Of gangs within a domain, and of gangs that only share a host.
    degrees
        Gang sizes that the stage may take.
    """
    types = stage.device_types or KINDS[stage.type].device_types
    refused: Counter[str] = Counter()
    blocks: list[Block] = []
    parts: list[Ints] = []
    for (device, size, fabric), sites in zip(table.kinds, table.of_kind, strict=True):
        efficiency = parallel_efficiency[0] if fabric else parallel_efficiency[1]
        if size not in degrees:
            continue
        if device.type not in types:
            refused[f"{device.type} devices do not run {stage.type} stages"] += len(sites)
            continue
        found = [_block(stage, c, device, size, model, efficiency, preference) for c in candidates]
        usable = [block for block in found if isinstance(block, Block)]
        if not usable:
            refused[max(block for block in found if isinstance(block, Refusal)).reason] += len(sites)
        parts += [sites] * len(usable)
        blocks += usable
    return _layout(parts, blocks, refused)


def _block(
    stage: StageSpec,
    candidate: Candidate,
    device: DeviceClass,
    size: int,
    model: CostModel,
    parallel_efficiency: float,
    preference: Preferred | None,
) -> Block | Refusal:
    """The shared part of the options, or the reason why there are none."""
    precision = candidate.precision_on(device)
    if precision is None:
        return Refusal(0, f"no variant of {stage.model or stage.id} in an allowed precision runs on {device.model}")
    residency = candidate.residency(device)
    if residency is None:
        return Refusal(1, f"{stage.model} is not resident on {device.model} and loading is not allowed")
    shape, card = _parallelism(stage, size), candidate.card
    if card is not None and shape.strategy is ParallelStrategy.TENSOR and card.attention_heads % size:
        return Refusal(2, f"{size} devices do not divide the {card.attention_heads} attention heads of {card.name}")
    tier = preference.tier(device, precision) if preference else 0
    if tier is None:
        return Refusal(2, f"the fallback policy has no step that reaches {device.model} in {precision}")
    rate = device.compute.rate(precision)
    assert rate is not None
    cost = model.stage_cost(
        stage,
        candidate.card,
        precision,
        device.model,
        Capacity(rate, device.bandwidth, device.io, device.vram),
        shape,
        efficiency=device.efficiency_for(stage),
        parallel_efficiency=parallel_efficiency,
    )
    if not math.isfinite(cost.t0):
        return Refusal(3, f"{device.model} lacks a rate that the stage needs")
    if cost.weight_bytes > size * device.vram:
        room = f"{size} x {device.model} with {size * device.vram / 1e9:.4g} GB"
        return Refusal(4, f"the weights of {candidate.name}, {cost.weight_bytes / 1e9:.4g} GB, do not fit {room}")
    load_time = 0.0
    if residency.must_load and candidate.variant is not None:
        stated = candidate.variant.load_time
        load_time = stated if stated is not None else cost.weight_bytes / size / device.io
    return Block(cost, candidate, precision, load_time, cost.weight_bytes if residency.weights_count else 0.0, tier)


def _parallelism(stage: StageSpec, size: int) -> Parallelism:
    if stage.parallelism is not None:
        return stage.parallelism
    return Parallelism(strategy=ParallelStrategy.TENSOR if size > 1 else ParallelStrategy.NONE, degree=size)


def _layout(parts: list[Ints], blocks: list[Block], refused: Counter[str]) -> StageLayout:
    none = np.empty(0, dtype=np.int64)
    site = np.concatenate([none, *parts])
    block = np.repeat(np.arange(len(parts)), [len(sites) for sites in parts])
    order = np.argsort(site, kind="stable")
    block = block[order]
    t0 = np.array([b.cost.t0 + b.load_time for b in blocks])
    memory = np.array([math.ceil(b.cost.memory_bytes + b.cost.kv_bytes) for b in blocks], dtype=np.int64)
    return StageLayout(site[order], block, t0[block], memory[block], tuple(blocks), refused)
