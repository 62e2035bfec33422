"""Lagrangian multipliers by name: what the limits of a solve were worth, to explain it and to start the next.

They name devices and stages, so that they outlive the arrays they were found in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["LimitPrice", "Multipliers"]


@dataclass(frozen=True)
class LimitPrice:
    """The price of a limit in time.

    Attributes
    ----------
    rule
        ``deadline`` or ``finish_by`` of the path that ends at ``stages[-1]``, or the compute ``budget`` of stages.
    stages, edges
        Whose times and transfers are limited; of a path, in order.
    price
        Seconds of objective per second of limit.
    """

    rule: Literal["deadline", "finish_by", "budget"]
    stages: tuple[str, ...]
    edges: tuple[tuple[str, str], ...]
    price: float


@dataclass(frozen=True)
class Multipliers:
    """Prices of the root of a search, those above 0; ``memory`` in seconds of objective per GB, by device."""

    memory: Mapping[str, float] = field(default_factory=dict)
    limits: tuple[LimitPrice, ...] = ()
