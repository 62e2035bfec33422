"""The options of one stage: every compatible (site, variant) with its times, cost and memory.

Costs are worked out once per (device class, gang size, variant) and spread over the sites by
arrays; only load and price differ from site to site, and only load and free memory from plan to plan.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from iegopt.cost.model import CostModel, StageCost
from iegopt.cost.roofline import Capacity
from iegopt.devices import DeviceClass
from iegopt.problem.sites import SiteTable
from iegopt.problem.tiers import Preferred
from iegopt.problem.variants import Candidate
from iegopt.spec.kinds import KINDS, role_of
from iegopt.spec.stage import Parallelism, ParallelStrategy, Precision, StageSpec

__all__ = ["Block", "SiteFigures", "StageBlocks", "StageLayout", "StageOptions", "stage_blocks"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SiteFigures:
    """Per site: T/T0, $/h; and for the whole problem the price that money is measured in ($/h)."""

    load: Floats
    price: Floats
    reference_price: float

    @cached_property
    def all_usable(self) -> bool:
        """Whether no device is fully utilised."""
        return bool(np.isfinite(self.load).all())


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
class StageBlocks:
    """What a stage costs on kinds of sites: for every block the kind, and for every kind without one the reason."""

    kinds: tuple[int, ...]
    blocks: tuple[Block, ...]
    refused: tuple[tuple[int, str], ...]


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

    @classmethod
    def of(cls, found: StageBlocks, table: SiteTable) -> StageLayout:
        """The blocks spread over the sites of a table."""
        site, block = table.spread(found.kinds)
        blocks = found.blocks
        t0 = np.array([b.cost.t0 + b.load_time for b in blocks])
        memory = np.array([math.ceil(b.cost.memory_bytes + b.cost.kv_bytes) for b in blocks], dtype=np.int64)
        refused: Counter[str] = Counter()
        for kind, reason in found.refused:
            refused[reason] += len(table.of_kind[kind])
        return cls(site, block, t0[block], memory[block], blocks, refused)

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Variant of every block."""
        return tuple(block.candidate.name for block in self.blocks)

    @cached_property
    def held(self) -> Ints:
        """(blocks,) bytes of weights over the whole site."""
        return np.array([math.ceil(block.weight_bytes) for block in self.blocks], dtype=np.int64)

    @cached_property
    def kv_bytes(self) -> Ints:
        """(blocks,) bytes of KV cache over the whole site."""
        return np.array([math.floor(block.cost.kv_bytes) for block in self.blocks], dtype=np.int64)

    @cached_property
    def every(self) -> Ints:
        """(n,) the numbers of all options."""
        return np.arange(len(self.site))

    @cached_property
    def nothing(self) -> Floats:
        """(n,) zeros."""
        return np.zeros(len(self.site))

    def where(self, usable: npt.NDArray[np.bool_]) -> StageLayout:
        """The options in a mask (n,)."""
        return replace(
            self, site=self.site[usable], block=self.block[usable], t0=self.t0[usable], memory=self.memory[usable]
        )


@dataclass(eq=False)
class StageOptions:
    """Options of a stage in the present state; arrays (n,) in site order, as in ``StageLayout``.

    ``buffer`` bytes of transfers come on top of the stage's own memory.
    """

    layout: StageLayout
    figures: SiteFigures
    buffer: int
    refused: Counter[str]

    @classmethod
    def of(cls, layout: StageLayout, figures: SiteFigures, buffer: int) -> StageOptions:
        """Without the sites that are fully utilised."""
        refused = layout.refused.copy()
        if not figures.all_usable:
            usable = np.isfinite(figures.load[layout.site])
            if not usable.all():
                refused["the device is fully utilised"] += int((~usable).sum())
                layout = layout.where(usable)
        return cls(layout, figures, buffer, refused)

    @property
    def site(self) -> Ints:
        return self.layout.site

    @property
    def block(self) -> Ints:
        return self.layout.block

    @property
    def t0(self) -> Floats:
        return self.layout.t0

    @property
    def blocks(self) -> tuple[Block, ...]:
        return self.layout.blocks

    @cached_property
    def time(self) -> Floats:
        """T in seconds."""
        return self.t0 * self.figures.load[self.site]

    @cached_property
    def money(self) -> Floats:
        """M in seconds at the reference price."""
        return self.t0 * self.figures.price[self.site] / self.figures.reference_price

    @cached_property
    def memory(self) -> Ints:
        """Bytes over the whole site, buffers included and weights not."""
        return self.layout.memory + self.buffer


def stage_blocks(
    stage: StageSpec,
    candidates: tuple[Candidate, ...],
    table: SiteTable,
    model: CostModel,
    parallel_efficiency: tuple[float, float],
    degrees: tuple[int, ...],
    preference: Preferred | None,
) -> StageBlocks:
    """All options of a stage, whatever its SLA says.

    Parameters
    ----------
    parallel_efficiency
        Of gangs within a domain, and of gangs that only share a host.
    degrees
        Gang sizes that the stage may take.
    """
    types = stage.device_types or KINDS[stage.type].device_types
    refused: list[tuple[int, str]] = []
    blocks: list[Block] = []
    kinds: list[int] = []
    for kind, (device, size, fabric) in enumerate(table.kinds):
        efficiency = parallel_efficiency[0] if fabric else parallel_efficiency[1]
        if size not in degrees:
            continue
        if device.type not in types:
            refused.append((kind, f"{device.type} devices do not run {stage.type} stages"))
            continue
        if device.roles is not None and (role_of(stage.type) not in device.roles or size > 1):
            gang = f" on {size} devices at once" if size > 1 else ""
            refused.append((kind, f"no worker of {device.model} runs {stage.type} stages{gang}"))
            continue
        found = [_block(stage, c, device, size, model, efficiency, preference) for c in candidates]
        usable = [block for block in found if isinstance(block, Block)]
        if not usable:
            refused.append((kind, max(block for block in found if isinstance(block, Refusal)).reason))
        kinds += [kind] * len(usable)
        blocks += usable
    return StageBlocks(tuple(kinds), tuple(blocks), tuple(refused))


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
        load_time = candidate.load_time(device, cost.weight_bytes / size)
    return Block(cost, candidate, precision, load_time, cost.weight_bytes if residency.weights_count else 0.0, tier)


def _parallelism(stage: StageSpec, size: int) -> Parallelism:
    if stage.parallelism is not None:
        return stage.parallelism
    return Parallelism(strategy=ParallelStrategy.TENSOR if size > 1 else ParallelStrategy.NONE, degree=size)
