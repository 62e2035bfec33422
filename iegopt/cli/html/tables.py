"""The parts of the page that are text: figures, cost bars, the cluster's tree, tables."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from iegopt.cli.cluster_tree import Branch
from iegopt.cli.format import NONE, data, dollars, percent, quantity, seconds
from iegopt.cli.html.svg import esc

if TYPE_CHECKING:
    from iegopt.plan import CostSplit, Plan

__all__ = ["alternatives", "binding", "cost_bars", "figures", "refused", "stages", "transfers", "tree"]

_TERMS = (("L", "latency"), ("T", "throughput"), ("M", "money"), ("D", "transfer"))


def figures(plan: Plan) -> str:
    """The numbers at the top of the page."""
    late = f"of {seconds(plan.deadline)} allowed" if plan.deadline is not None else "end to end"
    rows = (
        ("status", plan.status, plan.tier and f"fallback tier {plan.tier}"),
        ("objective", seconds(plan.objective), "weighted cost"),
        ("bound", seconds(plan.bound), plan.proof and f"proved by {plan.proof}"),
        ("gap", percent(plan.gap), "objective over bound"),
        ("makespan", seconds(plan.makespan), late),
        ("price", dollars(plan.cost.dollars), "this request"),
        ("solver", plan.solver, seconds(plan.seconds)),
    )
    cells = (f"<div><span>{esc(n)}</span><b>{esc(v)}</b><span>{esc(more or '')}</span></div>" for n, v, more in rows)
    return f'<div class="figures">{"".join(cells)}</div>'


def cost_bars(plan: Plan) -> str:
    """The objective by term, then every stage, all in weighted seconds; the stages share one scale."""
    w = plan.weights
    weights = dict(zip("LTMD", (w.alpha, w.beta, w.gamma, w.lambda_), strict=True))
    parts = {stage.id: _weighted(stage.cost, weights) for stage in plan.stages}
    widest = max((sum(split.values()) for split in parts.values()), default=0.0) or 1.0
    total = _weighted(plan.cost, weights)
    legend = "".join(
        f'<span><i class="{term}"></i>{term} {name} (× {weights[term]:g}): {seconds(total[term])}</span>'
        for term, name in _TERMS
    )
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


def stages(plan: Plan) -> str:
    """Every stage: where, as what, how long, what bounds it, what it costs."""
    rows = [
        (
            s.id, s.kind, s.site, s.device_model, s.variant, seconds(s.time), seconds(s.sla), s.bottleneck,
            s.time_source, data(s.memory), percent(s.capacity_ratio), *(seconds(getattr(s.cost, t)) for t in "LTMD"),
            dollars(s.cost.dollars),
        )
        for s in plan.stages
    ]  # fmt: skip
    heads = (
        "stage", "kind", "site", "device", "variant", "time|", "SLA|", "bottleneck", "time from", "memory|",
        "of site|", "L|", "T|", "M|", "D|", "$|",
    )  # fmt: skip
    return _table(heads, rows)


def transfers(plan: Plan) -> str:
    """Every edge: its path, its bytes, what of its time is not hidden."""
    rows = [
        (f"{t.source} → {t.target}", t.kind, t.path, data(t.bytes), seconds(t.raw), seconds(t.exposed), seconds(t.cost))
        for t in plan.transfers
    ]
    return _table(("edge", "kind", "path", "bytes|", "raw|", "exposed|", "cost|"), rows)


def binding(rules: Sequence[dict[str, Any]]) -> str:
    """The constraints with the least slack."""
    keys = ("used", "allowed", "slack")
    rows = [(r["rule"], r["where"], *(quantity(r[key], r.get("unit")) for key in keys)) for r in rules]
    return _table(("rule", "where", "used|", "allowed|", "slack|"), rows)


def alternatives(about: dict[str, Any]) -> str:
    """Per stage the best other option, and why it lost."""
    rows = []
    for name, entry in about.items():
        other = entry.get("alternative")
        if other is None:
            rows.append((name, NONE, NONE, NONE, "no other option is feasible"))
        else:
            rows.append(
                (name, other["site"], other["variant"], f"+{seconds(other['objective_increase'])}", other["why"])
            )
    return _table(("stage", "site", "variant", "costs|", "because"), rows)


def refused(about: dict[str, Any]) -> str:
    """Per stage the options that no plan may use, and the reason."""
    rows = [
        (name, r["reason"], r["options"], r["sentence"])
        for name, entry in about.items()
        for r in entry.get("refused", ())
    ]
    return _table(("stage", "reason", "options|", ""), rows) if rows else ""


def _weighted(cost: CostSplit, weights: dict[str, float]) -> dict[str, float]:
    return {term: weights[term] * float(getattr(cost, term)) for term, _ in _TERMS}


def _bar(name: str, split: dict[str, float], full: float) -> str:
    inside = "".join(
        f'<i class="{term}" style="width:{100 * split[term] / full:.2f}%" title="{words}: {seconds(split[term])}"></i>'
        for term, words in _TERMS
        if split[term] > 0
    )
    total = seconds(sum(split.values()))
    return f'<span>{esc(name)}</span><div class="stack">{inside}</div><span class="right">{total}</span>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table; a heading that ends in ``|`` is a column of numbers."""
    kinds = [' class="right"' if head.endswith("|") else "" for head in heads]
    top = "".join(f"<th{kind}>{esc(head.rstrip('|'))}</th>" for head, kind in zip(heads, kinds, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{esc(cell)}</td>' for cell, kind in zip(row, kinds, strict=True))}</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>'
