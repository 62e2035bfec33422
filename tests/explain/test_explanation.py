"""Quantities in the sentences of an explanation."""

from __future__ import annotations

from typing import Literal

import pytest

from iegopt.explain.alternatives import Obstacle
from iegopt.explain.explanation import _obstacle


@pytest.mark.parametrize(
    ("used", "allowed", "unit", "said"),
    [
        (104_916_307_968, 56 * 10**9, "B", "memory of g would be 104.9GB, allowed 56GB"),
        (56_000_100_000, 56 * 10**9, "B", "memory of g would be 56.0001GB, allowed 56GB"),
        (1.23456789, 0.2, "s", "memory of g would be 1235ms, allowed 200ms"),
        (0.2000000005, 0.2, "s", "memory of g would be 200.0000005ms, allowed 200ms"),
    ],
)
def test_an_obstacle_is_said_in_digits_that_show_it(
    used: float, allowed: float, unit: Literal["B", "s"], said: str
) -> None:
    assert _obstacle(Obstacle("memory", "g", used, allowed, unit)) == said
