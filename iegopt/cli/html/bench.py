"""The page of a benchmark: what ran where, the tables, the charts. Everything inline, nothing fetched."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from iegopt.cli.html import tables
from iegopt.cli.html.chart import draw_chart
from iegopt.cli.html.svg import esc

if TYPE_CHECKING:
    from iegopt.bench.charts import Chart
    from iegopt.cli.rows import Rows

__all__ = ["bench_page"]


def bench_page(document: dict[str, Any], parts: Sequence[Rows], drawn: Sequence[Chart], facts: Sequence[str]) -> str:
    """Results as HTML; ``facts`` are sentences for the top."""
    style = files("iegopt.cli.html").joinpath("style.css").read_text(encoding="utf-8")
    title = f"Benchmark {document['suite']['name']}"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{esc(title)}</title><style>{style}</style>'
    )
    top = f"<h1>{esc(title)}</h1><ul>{''.join(f'<li>{esc(fact)}</li>' for fact in facts)}</ul>"
    body = "".join(f"<section><h2>{esc(chart.title)}</h2>{draw_chart(chart)}</section>" for chart in drawn)
    body += "".join(f'<section class="wide"><h2>{esc(part.title)}</h2>{tables.table(part)}</section>' for part in parts)
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{top}<main>{body}</main></body></html>\n'
