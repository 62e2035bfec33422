"""Node Spec: what one stage of the graph needs (sections 2.3 and 3.2 of the source)."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import model_validator

from iegopt.spec.base import Identifier, Name, Spec
from iegopt.spec.quantities import Bytes, Flop, PositiveFraction, PositiveInt, Seconds, SmallInt

__all__ = [
    "AT_LEAST_16_BIT",
    "ComputeDemand",
    "DeviceType",
    "IoDemand",
    "KindDefaults",
    "MemoryDemand",
    "NodeType",
    "ParallelStrategy",
    "Parallelism",
    "Precision",
    "Priority",
    "StageAffinity",
    "StageKind",
    "StageSpec",
    "TokenWork",
]  # fmt: skip


class NodeType(StrEnum):
    """The five node types of section 2.3."""

    COMPUTE = "compute"
    MEMORY = "memory"
    IO = "io"
    TOOL = "tool"
    CONTROL = "control"


class StageKind(StrEnum):
    """What a stage does; ``iegopt.spec.kinds.KINDS`` gives each its node type and defaults."""

    TOKENIZE = "tokenize"
    PREFILL = "prefill"
    DECODE = "decode"
    RE_PREFILL = "re_prefill"
    KV_STORE = "kv_store"
    KV_LOAD = "kv_load"
    KV_MIGRATE = "kv_migrate"
    EMBEDDING = "embedding"
    RERANK = "rerank"
    RETRIEVAL = "retrieval"
    TOOL = "tool"
    ROUTER = "router"
    AGENT_DECISION = "agent_decision"
    OUTPUT = "output"


_OF_TOKENS = frozenset(StageKind) - {
    StageKind.TOKENIZE, StageKind.RETRIEVAL, StageKind.TOOL, StageKind.ROUTER, StageKind.AGENT_DECISION,
    StageKind.OUTPUT,
}  # fmt: skip
"""Kinds whose work may be stated as tokens of a model."""


class DeviceType(StrEnum):
    GPU = "GPU"
    NPU = "NPU"
    CPU = "CPU"
    STORAGE = "STORAGE"
    RETRIEVAL = "RETRIEVAL"


class Priority(StrEnum):
    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class Precision(StrEnum):
    FP32 = "fp32"
    TF32 = "tf32"
    FP16 = "fp16"
    BF16 = "bf16"
    FP8 = "fp8"
    INT8 = "int8"
    FP4 = "fp4"
    INT4 = "int4"

    @property
    def bytes(self) -> float:
        """Bytes of one number."""
        return {"fp32": 4.0, "tf32": 4.0, "fp16": 2.0, "bf16": 2.0, "fp8": 1.0, "int8": 1.0}.get(self, 0.5)


SIXTEEN_BIT = frozenset({Precision.FP16, Precision.BF16})
AT_LEAST_16_BIT = SIXTEEN_BIT | {Precision.FP32, Precision.TF32}


class ParallelStrategy(StrEnum):
    NONE = "none"
    TENSOR = "tensor_parallel"
    PIPELINE = "pipeline_parallel"
    DATA = "data_parallel"


class Parallelism(Spec):
    """How a stage is spread over a gang of ``degree`` devices (see ``iegopt.cost.gang``)."""

    strategy: ParallelStrategy = ParallelStrategy.TENSOR
    degree: PositiveInt = 1
    efficiency: PositiveFraction | None = None

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.strategy is ParallelStrategy.NONE and self.degree != 1:
            raise ValueError(f"strategy none goes with degree 1, not {self.degree}")
        if self.degree > 64:
            raise ValueError(f"degree {self.degree}: expected at most 64 devices in a gang")
        return self


class ComputeDemand(Spec):
    """``flops`` is an amount of work (FLOP), ``precision`` the arithmetic it is done in."""

    flops: Flop | None = None
    precision: Precision | None = None


class MemoryDemand(Spec):
    """``vram`` and ``kv_cache_size`` are held while the stage runs, ``traffic`` is read or written."""

    vram: Bytes | None = None
    kv_cache_size: Bytes | None = None
    traffic: Bytes | None = None


class IoDemand(Spec):
    """Bytes read from or written to storage or the network."""

    bytes: Bytes


class StageAffinity(Spec):
    """``kv_cache_location`` is a data edge from that device; ``device`` binds the stage to one.

    With ``required: false`` missing the device costs ``penalty`` seconds instead.
    """

    kv_cache_location: Identifier | None = None
    device: Identifier | None = None
    required: bool = True
    penalty: Seconds = 0.0

    @model_validator(mode="after")
    def _penalty_of_a_preference(self) -> Self:
        if self.penalty and (self.required or self.device is None):
            raise ValueError("penalty is what missing a preferred device costs: expected device and required: false")
        return self


class TokenWork(Spec):
    """Tokens of an LLM stage: ``new`` are prefilled, ``output`` decoded, after ``context`` held ones."""

    context: SmallInt = 0
    new: SmallInt = 0
    output: SmallInt = 0
    batch: PositiveInt = 1


class KindDefaults(Spec):
    """What section 2.3 says of a stage kind, and its resource shape where nothing else is known."""

    node_type: NodeType
    priority: Priority
    latency_expectation: Seconds | None
    device_types: tuple[DeviceType, ...]
    flops: Flop = 0.0
    vram: Bytes = 0
    traffic: Bytes = 0
    io: Bytes = 0


class StageSpec(Spec):
    """A node of the graph. What is left out is derived: from ``model`` and ``tokens``, else the kind."""

    id: Identifier
    type: StageKind
    model: Name | None = None
    tokens: TokenWork | None = None
    compute: ComputeDemand = ComputeDemand()
    memory: MemoryDemand = MemoryDemand()
    io: IoDemand | None = None
    fixed_time: Seconds = 0.0
    latency_sla: Seconds | None = None
    parallelism: Parallelism | None = None
    affinity: StageAffinity = StageAffinity()
    device_types: tuple[DeviceType, ...] | None = None

    @model_validator(mode="after")
    def _tokens_need_a_model(self) -> Self:
        if self.tokens is not None and self.model is None:
            raise ValueError("tokens are given but no model to derive their cost from")
        if self.tokens is not None and self.type not in _OF_TOKENS:
            raise ValueError(f"tokens are given, and the cost of a {self.type} stage does not follow from any")
        return self
