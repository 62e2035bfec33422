"""The shape of a model's KV: what one token costs, and how a run of tokens lies in memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

__all__ = ["ITEM_BYTES", "KvLayout"]

ITEM_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True)
class KvLayout:
    """Keys and values of every layer, heads that share them counted once (grouped-query attention).

    A run of n tokens is a tensor of shape (layers, 2, heads, n, head_dim): keys first, values second.
    """

    layers: int
    heads: int
    head_dim: int
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"KV of dtype {self.dtype!r}: expected {', '.join(ITEM_BYTES)}")
        if min(self.layers, self.heads, self.head_dim) < 1:
            raise ValueError(f"{self}: expected at least one layer, head and channel")

    @property
    def bytes_per_token(self) -> int:
        """2 · layers · heads · head_dim · bytes of an item (section 6.5)."""
        return 2 * self.layers * self.heads * self.head_dim * ITEM_BYTES[self.dtype]

    def shape(self, tokens: int) -> tuple[int, int, int, int, int]:
        return (self.layers, 2, self.heads, tokens, self.head_dim)

    def document(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def read(cls, document: Mapping[str, Any]) -> KvLayout:
        return cls(
            int(document["layers"]), int(document["heads"]), int(document["head_dim"]), str(document["dtype"])
        )  # fmt: skip
