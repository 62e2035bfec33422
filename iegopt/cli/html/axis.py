"""A time axis: marks at round times over the whole height of a drawing."""

from __future__ import annotations

import math

from iegopt.cli.format import seconds
from iegopt.cli.html.svg import text

__all__ = ["time_axis"]


def time_axis(end: float, scale: float, left: float, top: float, bottom: float) -> str:
    """Marks from 0 to ``end`` seconds, ``scale`` px each; time 0 is at ``left``."""
    step = _step(end)
    marks = []
    for i in range(int(end / step + 1e-9) + 1):
        x = left + i * step * scale
        marks.append(f'<path class="tick" d="M{x:.1f},{top - 6:.1f}V{bottom:.1f}"/>')
        marks.append(text(x, top - 10, seconds(i * step), "small dim", "middle"))
    return "".join(marks)


def _step(end: float) -> float:
    """A round step (1, 2, 5 times a power of ten) that gives five to twelve marks."""
    power: float = 10.0 ** math.floor(math.log10(end / 5))
    return next(power * factor for factor in (1, 2, 5, 10) if end / (power * factor) <= 10)
