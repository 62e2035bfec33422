from __future__ import annotations

import doctest

import pytest

from iegopt.graph import tokens
from iegopt.graph.tokens import estimate_tokens


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("", 1), ("a", 1), ("a" * 400, 100), ("a" * 401, 101), ("推" * 100, 150), ("推理 reasoning", 6),
        ("ж" * 100, 50), ("한국어", 5), ("カナ", 3), ("\ud800", 1),
    ],
)  # fmt: skip
def test_estimate(text: str, count: int) -> None:
    assert estimate_tokens(text) == count


def test_examples() -> None:
    assert doctest.testmod(tokens).failed == 0
