"""A plan, or the reason why there is none, as rich tables."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text
from rich.tree import Tree

from iegopt.cli import rows
from iegopt.cli.cluster_tree import Branch, cluster_tree
from iegopt.cli.format import dollars, percent, plain, seconds

if TYPE_CHECKING:
    from iegopt.devices import Device
    from iegopt.plans import NoPlan, Plan

__all__ = ["filled", "header", "headline", "render_conflicts", "render_no_plan", "render_plan", "table"]

_WIDE, _NARROW = 170, 120
"""Columns from which the stages and their cost are one table, and below which they are three."""
_STATUS = {"optimal": "bold green", "feasible": "bold yellow", "infeasible": "bold red", "unknown": "bold magenta"}


def render_plan(plan: Plan, devices: Sequence[Device], width: int, explain: bool = False) -> Iterator[RenderableType]:
    """The parts of a plan, top to bottom; ``explain`` adds the summary and the refused options."""
    yield header(plan, len(devices))
    if explain:
        yield from (Text(plain(sentence)) for sentence in plan.explanation.get("summary", ()))
    yield ""
    yield from _stages(plan, width)
    parts = [rows.transfers(plan), rows.binding(plan.explanation), rows.alternatives(plan.explanation)]
    if explain:
        parts.append(rows.refused(plan.explanation))
    yield from (filled(part) for part in parts[:1] if part.cells)
    yield _totals(plan)
    yield from (filled(part) for part in parts[1:] if part.cells)
    yield _tree(cluster_tree(plan, devices))


def header(answer: Plan | NoPlan, devices: int | None = None) -> Text:
    """The headline of a plan, or of there being none."""
    about = plain(f"on {answer.cluster}") + (f" ({devices:,} devices)" if devices else "")
    text = headline(answer.document(), answer.request, about, getattr(answer, "proof", None), answer.note)
    return text.append(f"\nfallback tier {plain(answer.tier)}", style="dim") if answer.tier else text


def headline(answer: Mapping[str, Any], name: str, about: str, proof: str | None, note: str) -> Text:
    """Status, objective, bound, gap, what proved it, solver and time; ``answer`` has the keys of the contract."""
    text = Text(plain(answer["status"]), style=_STATUS.get(answer["status"], "bold"))
    text = Text.assemble(text, f"  {plain(name)} {about}\n")
    facts = [] if answer["objective"] is None else [f"objective {seconds(answer['objective'])}"]
    if answer["bound"] is not None:
        facts.append(f"bound {seconds(answer['bound'])}")
    elif facts:
        facts.append("no bound")
    if answer["gap"] is not None:
        facts.append(f"gap {percent(answer['gap'])}")
    if proof:
        facts.append(f"proved by {plain(proof)}")
    facts.append(f"solver {plain(answer['solver'])}, {seconds(answer['seconds'])}")
    text.append(" · ".join(facts), style="dim")
    return text.append(f"\n{plain(note)}") if note else text


def render_no_plan(answer: NoPlan) -> Iterator[RenderableType]:
    """Why there is no plan: the constraints that cannot hold together, with their numbers."""
    yield header(answer)
    yield from render_conflicts(answer.conflicts)


def render_conflicts(conflicts: Sequence[Mapping[str, Any]]) -> Iterator[RenderableType]:
    """Constraints that cannot hold together, numbered; nothing where there are none."""
    if not conflicts:
        return
    one = len(conflicts) == 1
    yield Text(f"\n{'This constraint cannot' if one else 'These constraints cannot all'} be kept:")
    for number, conflict in enumerate(conflicts, 1):
        yield Text.assemble(f"  {number}. ", (plain(conflict["rule"]), "bold"), f": {plain(conflict['sentence'])}")
    if not one:
        yield Text("Lifting any one of them is enough." if all(c["minimal"] for c in conflicts) else "")


def table(title: str, *columns: tuple[str, str]) -> Table:
    """An empty table; a column is its heading and ``left`` (folds), ``right`` (never breaks)."""
    made = Table(title=title, title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for heading, side in columns:
        if side == "right":
            made.add_column(heading, justify="right", no_wrap=True)
        else:
            made.add_column(heading, overflow="fold")
    return made


def _stages(plan: Plan, width: int) -> Iterator[Table]:
    """One table, or two or three where the terminal is narrow."""
    places, cost = rows.places(plan), rows.cost(plan)
    if width >= _WIDE:
        yield filled(places.beside(cost))
        return
    where = places.heads.index("time|")
    yield from map(filled, places.split(where, "Time and memory") if width < _NARROW else [places])
    yield filled(cost)


def _totals(plan: Plan) -> Table:
    cost, weights = plan.cost, plan.weights
    made = table("Totals", ("", "left"), ("seconds", "right"), ("weight", "right"), ("weighted", "right"))
    factors = (weights.alpha, weights.beta, weights.gamma, weights.lambda_)
    for (term, name), greek, weight in zip(rows.TERMS.items(), "αβγλ", factors, strict=True):
        value = getattr(cost, term)
        money = f", {dollars(cost.dollars)}" if term == "M" else ""
        made.add_row(f"{term} {name}{money}", seconds(value), f"{greek} {weight:g}", seconds(value * weight))
    if weights.makespan:
        weighted = seconds(plan.makespan * weights.makespan)
        made.add_row("critical path", seconds(plan.makespan), f"α {weights.makespan:g}", weighted)
    if plan.penalties:
        made.add_row("penalties", "", "", seconds(plan.penalties))
    made.add_row("objective", "", "", seconds(plan.objective), style="bold")
    limit = f" (deadline {seconds(plan.deadline)})" if plan.deadline is not None else ""
    made.add_row(f"makespan{limit}", seconds(plan.makespan), "", "")
    return made


def _tree(branch: Branch) -> Tree:
    def grow(tree: Tree, children: Sequence[Branch]) -> None:
        for child in children:
            grow(tree.add(_leaf(child)), child.children)

    tree = Tree(_leaf(branch, style="bold"))
    grow(tree, branch.children)
    return tree


def _leaf(branch: Branch, style: str = "") -> Text:
    text = Text(plain(branch.label), style=style if branch.used else "dim")
    text.append(f"  {plain(branch.detail)}", style="dim")
    return text.append(f"  ← {', '.join(branch.stages)}", style="green") if branch.stages else text


def filled(part: rows.Rows) -> Table:
    """Rows as a table."""
    made = table(part.title, *((head.rstrip("|"), "right" if head.endswith("|") else "left") for head in part.heads))
    for row in part.cells:
        made.add_row(*map(plain, row))
    return made
