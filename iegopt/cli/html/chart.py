"""Step charts as SVG: logarithmic axes, a legend, a line a series with its name as tooltip."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING

from iegopt.cli.html.svg import esc, svg, text, titled

if TYPE_CHECKING:
    from iegopt.bench.charts import Chart, Series

__all__ = ["COLOURS", "draw_chart"]

COLOURS = (
    "#2f6fd0", "#d9467a", "#2f9e5f", "#b3620f", "#8250c4", "#0f8f9d", "#e0a020", "#65707d", "#c0392b", "#6a8f00",
)  # fmt: skip
_DASHES = ("", "6 3", "2 2")
"""Lines beyond the colours take the colours again, dashed."""
_WIDTH, _HEIGHT = 580.0, 300.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 52.0, 12.0, 10.0, 40.0


def draw_chart(chart: Chart) -> str:
    """A chart with its legend as HTML."""
    legend = "".join(
        f'<span><svg width="22" height="8"><path d="M0 4H22" {_stroke(line.number)}/></svg> {esc(line.name)}</span>'
        for line in chart.series
    )
    lines = "".join(
        titled(f'<path d="{_path(chart, line)}" {_stroke(line.number)}/>', line.name) for line in chart.series
    )
    drawing = svg(_WIDTH, _HEIGHT, chart.title, _axes(chart) + lines)
    return f'<div class="legend">{legend}</div><div class="scroll">{drawing}</div>'


def _stroke(number: int) -> str:
    dash = _DASHES[number // len(COLOURS) % len(_DASHES)]
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    return f'fill="none" stroke="{COLOURS[number % len(COLOURS)]}" stroke-width="2"{dashed}'


def _x(chart: Chart, value: float) -> float:
    share = math.log(max(value, chart.start) / chart.start) / math.log(chart.end / chart.start)
    return _LEFT + min(share, 1.0) * (_WIDTH - _LEFT - _RIGHT)


def _y(chart: Chart, value: float) -> float:
    share = value / chart.top
    if chart.bottom > 0:
        share = math.log(max(value, chart.bottom) / chart.bottom) / math.log(chart.top / chart.bottom)
    return _HEIGHT - _BOTTOM - share * (_HEIGHT - _BOTTOM - _TOP)


def _marks(chart: Chart) -> list[float]:
    """Where the y axis has marks: quarters, or powers of ten."""
    if chart.bottom <= 0:
        return [chart.top * i / 4 for i in range(5)]
    first, last = math.ceil(math.log10(chart.bottom) - 1e-9), math.floor(math.log10(chart.top) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


def _path(chart: Chart, line: Series) -> str:
    """Horizontal until the next value, then vertical; the last one holds until the end."""
    steps = [f"M{_x(chart, line.x[0]):.1f} {_y(chart, line.y[0]):.1f}"]
    for (_, before), (x, y) in pairwise(zip(line.x, line.y, strict=True)):
        if y != before:
            steps.append(f"H{_x(chart, x):.1f}V{_y(chart, y):.1f}")
    return "".join([*steps, f"H{_x(chart, chart.end):.1f}"])


def _axes(chart: Chart) -> str:
    parts = []
    right, base = _WIDTH - _RIGHT, _HEIGHT - _BOTTOM
    for value in _marks(chart):
        y = _y(chart, value)
        parts.append(f'<path class="tick" d="M{_LEFT} {y:.1f}H{right}"/>')
        parts.append(text(_LEFT - 6, y + 4, f"{100 * value:.3g} %", "small dim", "end"))
    first, last = math.floor(math.log10(chart.start)), math.ceil(math.log10(chart.end))
    few = last - first > 2
    for power in range(first, last + 1):
        for digit in (1,) if few else (1, 2, 5):
            value = digit * 10.0**power
            if chart.start * 0.999 <= value <= chart.end * 1.001:
                x = _x(chart, value)
                parts.append(f'<path class="tick" d="M{x:.1f} {_TOP}V{base}"/>')
                parts.append(text(x, base + 15, f"{value:g}", "small dim", "middle"))
    parts.append(text((_LEFT + right) / 2, _HEIGHT - 6, f"{chart.x_label} (logarithmic)", "small", "middle"))
    parts.append(text(_LEFT, _HEIGHT - 6, chart.y_label, "small", "middle"))
    return "".join(parts)
