"""The next token from logits: the likeliest, or drawn with a seed that belongs to the position.

A draw depends on (seed, position) alone, so a sequence that is preempted, moved or computed again draws the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

__all__ = ["Sampling", "choose"]

_MIX = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio; spreads positions over seeds (Steele et al. 2014, SplitMix)."""


@dataclass(frozen=True)
class Sampling:
    """``temperature`` 0 is greedy. ``top_k`` 0 and ``top_p`` 1 leave all tokens in."""

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not (0 <= self.temperature <= 100 and self.top_k >= 0 and 0 < self.top_p <= 1):
            raise ValueError(f"{self}: expected temperature from 0 to 100, top_k of at least 0, top_p above 0 up to 1")


def choose(logits: torch.Tensor, sampling: Sampling, position: int) -> int:
    """The token at ``position`` of a sequence, given its logits, shape (vocabulary,)."""
    if sampling.temperature == 0:
        return int(logits.argmax())
    scores = logits.double().cpu() / sampling.temperature
    scores, tokens = scores.sort(descending=True, stable=True)
    if sampling.top_k:
        scores, tokens = scores[: sampling.top_k], tokens[: sampling.top_k]
    mass = scores.softmax(-1).cumsum(-1)
    kept = int((mass < sampling.top_p).sum()) + 1
    mass = mass[: min(kept, len(mass))]
    generator = torch.Generator().manual_seed((sampling.seed + (position + 1) * _MIX) % 2**63)
    drawn = torch.rand((), generator=generator, dtype=torch.float64) * mass[-1]
    return int(tokens[min(int(torch.searchsorted(mass, drawn, right=True)), len(mass) - 1)])
