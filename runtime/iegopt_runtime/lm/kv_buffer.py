"""The KV of one running sequence: one buffer, which the model writes into and blocks are read from."""

from __future__ import annotations

from typing import Any

import torch
from transformers.cache_utils import Cache, CacheLayerMixin

from iegopt_runtime.kv.layout import KvLayout

__all__ = ["SequenceKv"]


class SequenceKv:
    """Room for ``capacity`` tokens, taken at once so that it cannot run out later; ``length`` are computed.

    The buffer has the layout's shape, (layers, 2, heads, capacity, head_dim). The model sees it as its ``cache``.
    """

    def __init__(self, layout: KvLayout, capacity: int, device: torch.device) -> None:
        self.layout = layout
        self.capacity = capacity
        self._buffer = torch.empty(layout.shape(capacity), dtype=getattr(torch, layout.dtype), device=device)
        self._layers = [_Layer(layer) for layer in self._buffer]
        self.cache = Cache(layers=list(self._layers))

    @property
    def length(self) -> int:
        return self._layers[-1].length

    @property
    def bytes(self) -> int:
        return self._buffer.nbytes

    def view(self, begin: int, end: int) -> torch.Tensor:
        """KV of tokens ``begin:end``, a view into the buffer of shape (layers, 2, heads, end − begin, head_dim)."""
        return self._buffer[:, :, :, begin:end]

    def advance(self, tokens: int) -> None:
        """``tokens`` more were written through ``view``."""
        for layer in self._layers:
            layer.length += tokens


class _Layer(CacheLayerMixin):  # type: ignore[misc]
    """One layer of the buffer, as transformers' attention uses it."""

    is_sliding = False

    def __init__(self, buffer: torch.Tensor) -> None:
        super().__init__()
        self.keys, self.values = buffer[0].unsqueeze(0), buffer[1].unsqueeze(0)
        self.is_initialized = True
        self.length = 0

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        end = self.length + key_states.shape[-2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        self.length = end
        return self.keys[:, :, :end], self.values[:, :, :end]

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return int(self.keys.shape[-2])

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        raise AssertionError("the buffer is there from the start")
