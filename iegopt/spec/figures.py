"""What the stages of a graph ask for, as columns: found once, when a request is read, not within its deadline."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from typing import NamedTuple

from iegopt.spec.kinds import KINDS, LLM_KINDS, role_of
from iegopt.spec.stage import DeviceType, NodeType, ParallelStrategy, Precision, StageKind, StageSpec
from iegopt.spec.worker import Role

__all__ = ["AMOUNTS", "Asks", "Figures", "PlainFigures", "Shape", "Wiring", "figures_of", "is_plain", "plain_figures"]

AMOUNTS = 5
"""Amounts of a stage: FLOP, bytes of memory traffic, bytes of IO, fixed seconds, bytes held over the whole site."""


class Shape(NamedTuple):
    """What the rates of a stage without a model depend on; its kind stands for its usual device types, and for the role
    of the workers that run it."""

    precision: Precision | None
    types: tuple[DeviceType, ...]
    role: Role
    strategy: ParallelStrategy
    degree: int
    efficiency: float | None


class PlainFigures(NamedTuple):
    """Of V stages without a model.

    Attributes
    ----------
    amounts (V · AMOUNTS,)
        Those of one stage after the other's.
    shapes, shape (V,)
        Different shapes, and the index of every stage's among them.
    """

    amounts: array[float]
    shapes: tuple[Shape, ...]
    shape: list[int]


class Asks(NamedTuple):
    """What a graph takes of the limits that ``dag_constraints`` set: tool stages, re-prefills, tokens prefilled and
    decoded over the batch, and bytes of the largest KV cache that a stage gives itself."""

    tools: int
    again: int
    tokens: int
    kv: int


class Figures(NamedTuple):
    """Of a graph's V stages.

    Attributes
    ----------
    plain
        Of all of them; ``None`` where one is not plain.
    bound
        Whether an affinity names a device.
    slas (V,)
        Most seconds of every stage, infinite without an SLA.
    computes (V,)
        1 where a stage counts for the compute budget, else 0.
    prefills
        The stages that are prefills.
    """

    plain: PlainFigures | None
    bound: bool
    slas: array[float]
    computes: array[float]
    prefills: frozenset[int]
    asks: Asks


class Wiring(NamedTuple):
    """The edges of a graph, E of them.

    Attributes
    ----------
    order (V,)
        Stages, predecessors first.
    source, target (E,), sizes (E,)
        Stages at both ends of every edge, and its bytes.
    forward
        (edge, source, target), edges from earlier stages of the order first: the start of a source is settled before an
        edge that leaves it.
    """

    order: array[int]
    source: array[int]
    target: array[int]
    sizes: array[float]
    forward: list[tuple[int, int, int]]

    @classmethod
    def of(cls, order: Sequence[int], ends: Sequence[tuple[int, int]], sizes: Sequence[float]) -> Wiring:
        """Of an order of the stages, and both ends and bytes of every edge."""
        at = {v: i for i, v in enumerate(order)}
        forward = sorted(((e, u, v) for e, (u, v) in enumerate(ends)), key=lambda edge: at[edge[1]])
        source, target = (array("q", [end[side] for end in ends]) for side in (0, 1))
        return cls(array("q", order), source, target, array("d", sizes), forward)


def is_plain(stage: StageSpec) -> bool:
    """Whether a stage is one device's work, or a tensor-parallel gang's, and names no model."""
    shape = stage.parallelism
    alone = shape is None or shape.degree == 1 or shape.strategy is ParallelStrategy.TENSOR
    return stage.model is None and alone


def figures_of(stages: Sequence[StageSpec]) -> Figures:
    """The figures of a graph's stages."""
    affinities, kinds = [stage.affinity for stage in stages], [stage.type for stage in stages]
    work = [stage.tokens for stage in stages if stage.tokens is not None and stage.type in LLM_KINDS]
    return Figures(
        plain=plain_figures(stages) if all(map(is_plain, stages)) else None,
        bound=any(each.device or each.kv_cache_location for each in affinities),
        slas=array("d", [math.inf if stage.latency_sla is None else stage.latency_sla for stage in stages]),
        computes=array("d", [KINDS[kind].node_type is NodeType.COMPUTE for kind in kinds]),
        prefills=frozenset(v for v, kind in enumerate(kinds) if kind is StageKind.PREFILL),
        asks=Asks(
            tools=kinds.count(StageKind.TOOL),
            again=kinds.count(StageKind.RE_PREFILL),
            tokens=sum((tokens.new + tokens.output) * tokens.batch for tokens in work),
            kv=max([stage.memory.kv_cache_size or 0 for stage in stages], default=0),
        ),
    )


def plain_figures(stages: Sequence[StageSpec]) -> PlainFigures:
    """The figures of stages that are plain; what a stage leaves out is its kind's."""
    amounts, known, shape = array("d"), dict[Shape, int](), []
    for stage in stages:
        usual, compute, memory, io = KINDS[stage.type], stage.compute, stage.memory, stage.io
        flops, traffic, vram = compute.flops, memory.traffic, memory.vram
        amounts.extend((
            usual.flops if flops is None else flops,
            usual.traffic if traffic is None else traffic,
            usual.io if io is None else io.bytes,
            stage.fixed_time,
            (usual.vram if vram is None else vram) + (memory.kv_cache_size or 0),
        ))  # fmt: skip
        shape.append(known.setdefault(_shape(stage, usual.device_types), len(known)))
    return PlainFigures(amounts, tuple(known), shape)


def _shape(stage: StageSpec, usual: tuple[DeviceType, ...]) -> Shape:
    precision, types = stage.compute.precision, stage.device_types or usual
    role, gang = role_of(stage.type), stage.parallelism
    if gang is None:
        return Shape(precision, types, role, ParallelStrategy.NONE, 1, None)
    return Shape(precision, types, role, gang.strategy, gang.degree, gang.efficiency)
