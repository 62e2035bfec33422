"""The charts of a benchmark as PNG, by matplotlib (extra ``plots``)."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

from iegopt.errors import InputError
from iegopt.files import write_whole

if TYPE_CHECKING:
    from iegopt.bench.charts import Chart

__all__ = ["write_png"]


def write_png(drawn: Sequence[Chart], path: Path) -> None:
    """Draw all charts into one picture, two beside each other.

    Raises
    ------
    InputError
        matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise InputError("--png needs matplotlib: pip install 'iegopt[plots]'") from None
    rows = max(1, -(-len(drawn) // 2))
    figure = Figure(figsize=(13, 4 * rows), layout="constrained")
    for number, chart in enumerate(drawn, 1):
        axes = figure.add_subplot(rows, 2, number)
        for line in chart.series:
            style = f"C{line.number % 10}{('-', '--', ':')[line.number // 10 % 3]}"
            values = [max(y, chart.bottom) for y in (*line.y, line.y[-1])]
            axes.step([*line.x, chart.end], values, style, where="post", label=line.name)
        axes.set(title=chart.title, xlabel=chart.x_label, ylabel=chart.y_label, xscale="log")
        axes.set(xlim=(chart.start, chart.end), ylim=(chart.bottom, chart.top * 1.02))
        if chart.bottom > 0:
            axes.set(yscale="log", ylim=(chart.bottom * 0.9, chart.top * 1.2))
        axes.grid(visible=True, alpha=0.3)
        axes.legend(fontsize="small")
    drawing = BytesIO()
    figure.savefig(drawing, format="png", dpi=110)
    write_whole(path, drawing.getvalue())
