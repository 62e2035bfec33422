"""The parts of the page that are text: figures, cost bars, the cluster's tree, tables."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from iegopt.cli.cluster_tree import Branch
from iegopt.cli.format import dollars, percent, seconds
from iegopt.cli.html.svg import esc
from iegopt.cli.rows import TERMS, Rows, stage_terms

if TYPE_CHECKING:
    from iegopt.plans import Plan

__all__ = ["cost_bars", "figures", "table", "tree"]

_SHORT = 40
"""A text with spaces of at most so many letters stays on one line."""


def figures(plan: Plan) -> str:
    """The numbers at the top of the page."""
    late = f"of {seconds(plan.deadline)} allowed" if plan.deadline is not None else "end to end"
    rows = (
        ("status", plan.status, plan.tier and f"fallback tier {plan.tier}"),
        ("objective", seconds(plan.objective), "weighted cost"),
        ("bound", seconds(plan.bound), plan.proof and f"proved by {plan.proof}"),
        ("gap", percent(plan.gap), "to the bound"),
        ("makespan", seconds(plan.makespan), late),
        ("price", dollars(plan.cost.dollars), "this request"),
        ("solver", plan.solver, seconds(plan.seconds)),
    )
    cells = (f"<div><span>{esc(n)}</span><b>{esc(v)}</b><span>{esc(more or '')}</span></div>" for n, v, more in rows)
    return f'<div class="figures">{"".join(cells)}</div>'


def cost_bars(plan: Plan) -> str:
    """The objective by term, then every stage, all in weighted seconds; the stages share one scale."""
    w = plan.weights
    weights = dict(zip(TERMS, (w.alpha, w.beta, w.gamma, w.lambda_), strict=True))
    parts = {
        name: {term: weights[term] * value for term, value in terms.items()}
        for name, terms in stage_terms(plan).items()
    }
    widest = max((sum(split.values()) for split in parts.values()), default=0.0) or 1.0
    total = {term: weights[term] * float(getattr(plan.cost, term)) for term in TERMS}
    legend = "".join(
        f'<span><i class="{term}"></i>{term} {name} (× {weights[term]:g}): {seconds(total[term])}</span>'
        for term, name in TERMS.items()
    )
    if w.makespan:
        legend += f"<span>critical path (× {w.makespan:g}): {seconds(w.makespan * plan.makespan)}</span>"
    if plan.penalties:
        legend += f"<span>penalties: {seconds(plan.penalties)}</span>"
    rows = _bar("all stages", total, sum(total.values()) or 1.0)
    rows += "".join(_bar(name, split, widest) for name, split in parts.items())
    return f'<div class="legend">{legend}</div><div class="costs">{rows}</div>'


def tree(branch: Branch) -> str:
    """The cluster, nested."""
    placed = "".join(f'<span class="placed">{esc(stage)}</span>' for stage in branch.stages)
    kind = "" if branch.used else ' class="free"'
    line = f"<span{kind}>{esc(branch.label)}</span> <small>{esc(branch.detail)}</small> {placed}"
    below = f"<ul>{''.join(f'<li>{tree(child)}</li>' for child in branch.children)}</ul>" if branch.children else ""
    return line + below


def table(rows: Rows) -> str:
    """A table that scrolls sideways where it is wider than the page."""
    kinds = [' class="right"' if head.endswith("|") else "" for head in rows.heads]
    top = "".join(f"<th{kind}>{esc(head.rstrip('|'))}</th>" for head, kind in zip(rows.heads, kinds, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{_cell(cell)}</td>' for cell, kind in zip(row, kinds, strict=True))}</tr>"
        for row in rows.cells
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'


def _bar(name: str, split: dict[str, float], full: float) -> str:
    inside = "".join(
        f'<i class="{term}" style="width:{100 * split[term] / full:.2f}%" title="{words}: {seconds(split[term])}"></i>'
        for term, words in TERMS.items()
        if split[term] > 0
    )
    total = seconds(sum(split.values()))
    return f'<span>{esc(name)}</span><div class="stack">{inside}</div><span class="right">{total}</span>'


def _cell(words: str) -> str:
    """A cell: a sentence flows, a name of a gang or a variant breaks between its parts only."""
    if " " in words and len(words) > _SHORT:
        return esc(words)
    parts = re.split(r"(?<=[+/])", words)
    return "<wbr>".join(f"<span>{esc(part)}</span>" for part in parts)
