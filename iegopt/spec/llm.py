"""LLM cards: the shape of a model, from which demand vectors follow (section 2 of the model)."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator

from iegopt.spec.base import Name, Spec
from iegopt.spec.quantities import Count, PositiveInt
from iegopt.spec.stage import Precision

__all__ = ["LlmCard"]


class LlmCard(Spec):
    """A model of the library.

    ``parameters`` counts everything that is held, ``active_parameters`` what one token uses (equal for
    dense models). Attention is GQA/MHA (``kv_heads`` and ``head_dim``) or MLA (``kv_elements_per_layer``:
    numbers cached per token and layer). ``kind`` is ``decoder`` for a causal LM and ``encoder`` for an
    embedding model or a reranker, which has no KV cache.
    """

    name: Name
    aliases: tuple[Name, ...] = ()
    family: Name
    kind: Literal["decoder", "encoder"] = "decoder"
    parameters: Count = Field(gt=0)
    active_parameters: Count | None = None
    layers: PositiveInt
    hidden_size: PositiveInt
    attention_heads: PositiveInt
    kv_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    kv_elements_per_layer: PositiveInt | None = None
    kv_precision: Precision = Precision.FP16
    max_context: PositiveInt
    vocabulary: PositiveInt
    native_precision: Precision = Precision.BF16
    notes: str = ""
    sources: dict[Name, str] = Field(min_length=1)

    @model_validator(mode="after")
    def _one_attention(self) -> Self:
        mla = self.kv_elements_per_layer is not None
        gqa = self.kv_heads is not None and self.head_dim is not None
        if self.kind == "decoder" and mla == gqa:
            raise ValueError("expected kv_heads and head_dim (GQA), or kv_elements_per_layer (MLA)")
        if self.active_parameters is not None and self.active_parameters > self.parameters:
            raise ValueError("active_parameters are more than parameters")
        return self

    @property
    def active(self) -> int:
        """Parameters that one token uses."""
        return self.active_parameters if self.active_parameters is not None else self.parameters

    def kv_bytes_per_token(self, precision: Precision | None = None) -> float:
        """Bytes of KV cache per token: 2·layers·kv_heads·head_dim·dtype, or the card's MLA figure."""
        if self.kind == "encoder":
            return 0.0
        size = (precision or self.kv_precision).bytes
        if self.kv_elements_per_layer is not None:
            return self.layers * self.kv_elements_per_layer * size
        assert self.kv_heads is not None
        assert self.head_dim is not None
        return 2 * self.layers * self.kv_heads * self.head_dim * size
