"""Requests for runs in which processes are killed, with the tokens of an undisturbed engine."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from iegopt_runtime.chaos import Request
from tests.runtime.local import tiny_request

__all__ = ["requests_of"]

_OUTPUTS = (40, 160)


def requests_of(seed: int, count: int, undisturbed: Callable[[list[int], int], list[int]]) -> list[Request]:
    """So many requests with random prompts, drawn by seed."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        prompt = draw.choices(range(256), k=draw.randint(5, 150))
        output = draw.randint(*_OUTPUTS)
        request: dict[str, Any] = tiny_request(f"q{number}", output).document()
        expected = tuple(undisturbed(prompt, output))
        made.append(Request(f"s{seed}-q{number}", request, {"tokens": prompt}, expected))
    return made
