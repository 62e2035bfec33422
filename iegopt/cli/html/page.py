"""The page: everything inline, nothing fetched, light or dark as the reader's system is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib.resources import files
from typing import TYPE_CHECKING

from iegopt.cli import rows
from iegopt.cli.cluster_tree import cluster_tree
from iegopt.cli.html import tables
from iegopt.cli.html.graph import draw_graph, node_type
from iegopt.cli.html.svg import esc
from iegopt.cli.html.timeline import draw_timeline

if TYPE_CHECKING:
    from iegopt.devices import Device
    from iegopt.plans import Plan

__all__ = ["page"]

_HALF, _NARROW = 760.0, 600.0
"""A graph wider than the first has the width of the page to itself, in px; wider than the second, more than half."""


def page(plan: Plan, devices: Sequence[Device]) -> str:
    """A plan as HTML.

    Its size follows the plan: of the cluster only the groups that are used are drawn, the others counted.
    """
    style = files("iegopt.cli.html").joinpath("style.css").read_text(encoding="utf-8")
    title = f"{plan.request} on {plan.cluster}"
    head = (
        '<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><title>{esc(title)}</title><style>{style}</style>'
    )
    note = f"<p>{esc(plan.note)}</p>" if plan.note else ""
    summary = "".join(f"<li>{esc(sentence)}</li>" for sentence in plan.explanation.get("summary", ()))
    top = f"<h1>{esc(title)}</h1>{tables.figures(plan)}{note}{f'<ul>{summary}</ul>' if summary else ''}"
    drawing, width = draw_graph(plan)
    body = "".join(_section(name, inside, kind) for name, inside, kind in _sections(plan, devices, drawing, width))
    left = f' style="--left:{width + 60:.0f}px"' if _NARROW < width <= _HALF else ""
    return f'<!doctype html>\n<html lang="en"><head>{head}</head><body>{top}<main{left}>{body}</main></body></html>\n'


def _sections(plan: Plan, devices: Sequence[Device], drawing: str, width: float) -> Iterator[tuple[str, str, str]]:
    """Title, content and width of every section."""
    graph = f'{_node_types(plan)}<div class="scroll centre">{drawing}</div>'
    half = "tall" if width <= _HALF else "wide"
    yield "Execution graph", graph, half
    yield "Placement", f'<div class="tree">{tables.tree(cluster_tree(plan, devices))}</div>', ""
    yield "Cost", tables.cost_bars(plan), ""
    moving = '<div class="legend"><span><i class="moving"></i>transfer, as far as nothing hides it</span></div>'
    yield "Timeline", f'{moving}<div class="scroll">{draw_timeline(plan)}</div>', "wide"
    about = plan.explanation
    for part in (
        rows.places(plan), rows.cost(plan), rows.transfers(plan), rows.binding(about), rows.alternatives(about),
        rows.refused(about),
    ):  # fmt: skip
        if part.cells:
            yield part.title, tables.table(part), "wide"


def _section(name: str, inside: str, kind: str) -> str:
    return f'<section class="{kind}"><h2>{esc(name)}</h2>{inside}</section>'


def _node_types(plan: Plan) -> str:
    types = dict.fromkeys(node_type(stage.kind) for stage in plan.stages)
    return f'<div class="legend">{"".join(f"""<span><i class="{t}"></i>{t}</span>""" for t in types)}</div>'
