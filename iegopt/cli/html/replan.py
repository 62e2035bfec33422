"""The page of a plan of a queue. Everything inline, nothing fetched."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

from iegopt.cli import batch_rows as rows
from iegopt.cli.format import NONE, percent, seconds
from iegopt.cli.html import tables
from iegopt.cli.html.instances import MOST_DRAWN, colour, draw_instances
from iegopt.cli.html.svg import esc

if TYPE_CHECKING:
    from iegopt.batch_plans import BatchPlan

__all__ = ["replan_page"]

MOST_ROWS = 500
"""Rows of a table; of longer ones the first."""


def replan_page(plan: BatchPlan, cluster: str, window: float) -> str:
    """A plan as HTML; ``window`` is the policy's, in seconds."""
    style = files("iegopt.cli.html").joinpath("style.css").read_text(encoding="utf-8")
    title = f"{plan.snapshot} on {cluster}"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{esc(title)}</title><style>{style}</style>'
    )
    notes = "".join(f"<p>{esc(words)}</p>" for words in (plan.note, *plan.warnings) if words)
    top = f"<h1>{esc(title)}</h1>{_figures(plan, window)}<p>{esc(rows.counts(plan))}</p>{notes}"
    drawing = f'{_legend(plan)}<div class="scroll">{draw_instances(plan, window)}</div>'
    over = len(plan.instances) - MOST_DRAWN
    if over > 0:
        drawing += f"<p>{over:,} instances that prefill less are not drawn.</p>"
    if plan.running:
        drawing += "<p>Prefills that run already are not drawn.</p>"
    body = _section("Instances over the window", drawing)
    waiting = rows.waiting(plan)
    parts = [rows.levels(plan), rows.placed(plan)]
    parts += [rows.by_reason(plan)] if len(waiting.cells) > rows.FIRST_ROWS else []
    parts += [waiting, rows.changes(plan), rows.instances(plan), rows.tenants(plan)]
    for part in parts:
        if part.cells:
            shown = rows.cut(part, MOST_ROWS)
            body += _section(shown.title, tables.table(shown))
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{top}<main>{body}</main></body></html>\n'


def _section(name: str, inside: str) -> str:
    return f'<section class="wide"><h2>{esc(name)}</h2>{inside}</section>'


def _figures(plan: BatchPlan, window: float) -> str:
    """The numbers at the top of the page: status, and per priority what is reached of what can be."""
    cells: list[tuple[str, str, str]] = [("status", plan.status, f"window {seconds(window)}")]
    cells += [
        (
            f"P{level.priority}", f"{level.objective:.4g}",
            f"of {NONE if level.bound is None else f'{level.bound:.4g}'}, gap {percent(level.gap)}",
        )
        for level in plan.levels
    ]  # fmt: skip
    cells.append(("solver", plan.solver, seconds(plan.seconds)))
    inside = "".join(f"<div><span>{esc(a)}</span><b>{esc(b)}</b><span>{esc(c)}</span></div>" for a, b, c in cells)
    return f'<div class="figures">{inside}</div>'


def _legend(plan: BatchPlan) -> str:
    marks = [(colour(level.priority), f"prefill of P{level.priority}") for level in plan.levels]
    marks += [("memory", "decodes"), ("control", "other work"), ("L", "KV caches")]
    return f'<div class="legend">{"".join(f"""<span><i class="{c}"></i>{esc(w)}</span>""" for c, w in marks)}</div>'
