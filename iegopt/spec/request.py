"""One request: a prompt for a model, with an agent's tools, or a graph given whole."""

from __future__ import annotations

from enum import StrEnum
from typing import Self

from pydantic import Field, model_validator

from iegopt.spec.base import Identifier, Name, Spec
from iegopt.spec.graph import GraphSpec
from iegopt.spec.policy import DagConstraints, FallbackPolicy, KvTransferConfig
from iegopt.spec.quantities import Bytes, Flop, PositiveInt, Seconds, SmallInt
from iegopt.spec.stage import Parallelism, Precision, StageKind

__all__ = [
    "AgentConfig", "MemoryAccounting", "Objective", "Preference", "RequestSpec", "RetrievalSpec", "SlaClass", "SlaSpec",
    "ToolSpec", "Weights",
]  # fmt: skip


class SlaClass(StrEnum):
    """Request types of section 7.4; each has preset weights (``iegopt.cost.weights``)."""

    REALTIME = "realtime"
    BATCH = "batch"
    AGENT = "agent"
    OFFLINE = "offline"


class Objective(StrEnum):
    """What time costs: that of every stage and transfer in sum, or only that until the last stage ends."""

    SUM = "sum"
    CRITICAL_PATH = "critical_path"


class MemoryAccounting(StrEnum):
    """Memory of the whole request at once, or of what is held at one moment at worst."""

    SUM = "sum"
    PEAK = "peak"


class SlaSpec(Spec):
    """Times a request must keep: first token, between tokens, end to end."""

    ttft: Seconds | None = None
    itl: Seconds | None = None
    e2e: Seconds | None = None


class Weights(Spec):
    """α, β, γ, λ of the cost function; what is given wins over the preset of the SLA class."""

    alpha: float | None = Field(default=None, ge=0, le=1e6)
    beta: float | None = Field(default=None, ge=0, le=1e6)
    gamma: float | None = Field(default=None, ge=0, le=1e6)
    lambda_: float | None = Field(default=None, alias="lambda", ge=0, le=1e6)


class ToolSpec(Spec):
    """A tool the agent may call: its own latency, work on a CPU host, and what it returns."""

    name: Identifier
    latency: Seconds = 0.0
    flops: Flop = 1e9
    memory: Bytes = 256 * 10**6
    io: Bytes = 10**6
    result_tokens: SmallInt = 256


class RetrievalSpec(Spec):
    """Retrieval after the tools of a round: an optional embedding model, bytes read, tokens returned."""

    embedding_model: Name | None = None
    rerank_model: Name | None = None
    io: Bytes = 5 * 10**7
    memory: Bytes = 10**9
    result_tokens: SmallInt = 1024


class AgentConfig(Spec):
    """``tools`` of one round run in parallel; ``lookahead`` rounds are planned ahead (at most ``max_rounds``)."""

    tools: tuple[ToolSpec, ...] = ()
    retrieval: RetrievalSpec | None = None
    max_rounds: SmallInt = 3
    lookahead: SmallInt = 1

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.lookahead > self.max_rounds:
            raise ValueError(f"lookahead {self.lookahead} is more than max_rounds {self.max_rounds}")
        if not self.tools and self.retrieval is None and self.lookahead and "lookahead" in self.model_fields_set:
            raise ValueError(f"lookahead {self.lookahead}, but a round needs tools or a retrieval: expected some, or 0")
        names = [tool.name for tool in self.tools]
        if len(set(names)) != len(names):
            raise ValueError("a tool name stands twice")
        return self


class Preference(Spec):
    """The device model that prefills and decodes should run on; a fallback policy opens others step by step."""

    device: Name


class RequestSpec(Spec):
    """What a caller hands in. Either ``model`` with a prompt, or ``graph``.

    Without a ``precision`` the model runs in its native one, never silently in a lower; encoders (embedding,
    rerank) run in any of 16 bits or more.

    ``objective: critical_path`` minimises α · (end-to-end finish) + γ · money + penalties, α counted in millionths.
    ``no_overlap`` lets stages on a common device run one after the other only. With ``memory_accounting: peak`` a stage
    holds its memory until its last consumer on the same site has ended, and KV handed on there is one copy.
    """

    id: Identifier = "request"
    model: Name | None = None
    precision: Precision | None = None
    prompt: str | None = Field(default=None, max_length=4_000_000)
    prompt_tokens: PositiveInt | None = None
    output_tokens: PositiveInt | None = None
    batch: PositiveInt = 1
    parallelism: Parallelism | None = None
    agent: AgentConfig | None = None
    graph: GraphSpec | None = None
    sla_class: SlaClass = SlaClass.REALTIME
    sla: SlaSpec = SlaSpec()
    weights: Weights = Weights()
    objective: Objective = Objective.SUM
    no_overlap: bool = False
    memory_accounting: MemoryAccounting = MemoryAccounting.SUM
    prefer: Preference | None = None
    dag_constraints: DagConstraints = DagConstraints()
    kv_transfer_config: KvTransferConfig | None = None
    fallback_policy: FallbackPolicy | None = None

    @model_validator(mode="after")
    def _weights_of_the_critical_path(self) -> Self:
        if self.objective is Objective.CRITICAL_PATH:
            if self.weights.beta is not None or self.weights.lambda_ is not None:
                raise ValueError(
                    "weights beta and lambda price a sum, and objective critical_path has none: remove them"
                )
            if self.weights.alpha is not None and self.weights.alpha < 1e-6:
                raise ValueError("objective critical_path with weights.alpha below 1e-06: time would cost nothing")
        return self

    @model_validator(mode="after")
    def _prompt_or_graph(self) -> Self:
        if self.graph is not None:
            alone = ("model", "prompt", "prompt_tokens", "output_tokens", "agent", "parallelism", "batch")
            both = [name for name in alone if name in self.model_fields_set]
            if both:
                raise ValueError(f"graph is given whole, so {', '.join(both)} would be ignored: remove one")
            if self.sla.itl is not None:
                raise ValueError("graph is given whole, so sla.itl would be ignored: give its decodes a latency_sla")
            if self.sla.ttft is not None and not any(s.type is StageKind.PREFILL for s in self.graph.stages):
                raise ValueError("the graph has no prefill, so sla.ttft would be ignored: remove it")
            self.graph.figures()
            self.graph.wiring()
            return self
        if self.model is None:
            raise ValueError("expected a model with a prompt, or a graph")
        if (self.prompt is None) == (self.prompt_tokens is None):
            raise ValueError("expected exactly one of prompt and prompt_tokens")
        if self.output_tokens is None:
            raise ValueError("expected output_tokens, the most tokens to generate")
        return self
