"""Cards and stages that the cost and graph tests share."""

from __future__ import annotations

from typing import Any

from iegopt.cost.roofline import Capacity
from iegopt.spec.llm import LlmCard
from iegopt.spec.stage import Precision, StageKind, StageSpec, TokenWork

A100 = Capacity(flops=312e12, bandwidth=2.039e12, io=7e9, memory=80e9)


def llm(**changes: Any) -> LlmCard:
    """Llama-2-70B with its published shape, parameters rounded to 70e9."""
    shape = {
        "name": "Llama-2-70B", "family": "Llama-2", "parameters": 70 * 10**9, "layers": 80, "hidden_size": 8192,
        "attention_heads": 64, "kv_heads": 8, "head_dim": 128, "max_context": 4096, "vocabulary": 32000,
        "native_precision": Precision.FP16, "sources": {"all": "test"},
    }  # fmt: skip
    return LlmCard.model_validate(shape | changes)


def moe() -> LlmCard:
    return llm(name="MoE", parameters=100 * 10**9, active_parameters=10 * 10**9)


def encoder() -> LlmCard:
    return llm(
        name="bge", kind="encoder", parameters=10**9, layers=24, hidden_size=1024, kv_heads=None, head_dim=None,
        max_context=512,
    )  # fmt: skip


def stage(kind: StageKind | str, model: str | None = "Llama-2-70B", **changes: Any) -> StageSpec:
    """A stage of a kind; ``context``, ``new``, ``output`` and ``batch`` make its tokens."""
    tokens = {name: changes.pop(name) for name in ("context", "new", "output", "batch") if name in changes}
    extra = {"tokens": TokenWork(**tokens)} if tokens else {}
    return StageSpec(id="v", type=StageKind(kind), model=model, **extra, **changes)
