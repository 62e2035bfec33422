"""The answers of ``iegopt explain`` as rich tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.text import Text

from iegopt.cli import rows
from iegopt.cli.format import NONE, dollars, plain, quantity, seconds, sentence_list
from iegopt.cli.render import filled, header, render_no_plan, table

if TYPE_CHECKING:
    from iegopt.explain.criticality import Criticality
    from iegopt.explain.margins import Margin
    from iegopt.explain.sensitivity import Flip, Sensitivity
    from iegopt.explain.shadow import ShadowPrices
    from iegopt.explain.suggest import Suggestion
    from iegopt.explain.what_if import WhatIf
    from iegopt.plans import NoPlan, Plan

__all__ = ["render_answers"]

_WITHOUT = {
    "named": "the request names it", "infeasible": "no plan", "unknown": "no plan in time", None: "not tried in time",
}  # fmt: skip
_KINDS = {"move": "best single move", "replan": "re-solved optimum"}


def render_answers(plan: Plan | NoPlan, answers: dict[str, Any]) -> Iterator[RenderableType]:
    """The plan's summary, then every answer there is."""
    from iegopt.plans import NoPlan

    if isinstance(plan, NoPlan):
        yield from render_no_plan(plan)
    else:
        yield header(plan)
        yield from (Text(plain(sentence)) for sentence in plan.explanation.get("summary", ()))
        for part in (rows.binding(plan.explanation), rows.alternatives(plan.explanation)):
            if part.cells:
                yield filled(part)
    for name, render in _PARTS.items():
        if answers[name] is not None:
            yield from render(answers[name])


def _flips(answer: Sensitivity) -> Iterator[RenderableType]:
    made = table(
        "Weights that would move a stage", ("stage", "left"), ("weight", "left"), ("now", "right"), ("at", "right"),
        ("moves to", "left"), ("found by", "left"),
    )  # fmt: skip
    for flip in answer.flips:
        made.add_row(
            plain(flip.stage), flip.weight, f"{flip.now:g}", _at(flip), plain(flip.site),
            _KINDS[flip.kind] + ("" if flip.proven else ", not proven"),
        )  # fmt: skip
    if answer.flips:
        yield made
    elif answer.complete:
        yield Text("No change of one weight moves a stage.")
    if answer.note:
        yield Text(plain(answer.note), style="dim")


def _at(flip: Flip) -> str:
    return f"{'>' if flip.at >= flip.now else '<'} {flip.at:.4g}"


def _prices(answer: ShadowPrices) -> Iterator[RenderableType]:
    made = table(
        "Shadow prices (finite differences)", ("rule", "left"), ("where", "left"), ("allowed", "right"),
        ("raised by", "right"), ("saves", "right"), ("price", "right"), ("$", "right"), ("at the margin", "right"),
    )  # fmt: skip
    for row in answer.prices:
        made.add_row(
            row.rule, plain(sentence_list(row.where, 2)), quantity(row.allowed, row.unit), quantity(row.step, row.unit),
            seconds(row.saving) + ("" if row.proven else " (not proven)"), f"{seconds(row.price)}/{row.per}",
            f"{_money(row.dollar_price)}/{row.per}",
            NONE if row.margin is None else f"{seconds(row.margin)}/{row.per}",
        )  # fmt: skip
    if answer.prices:
        yield made
    if answer.margins:
        yield _margins(answer.margins)
    if answer.note:
        yield Text(plain(answer.note), style="dim")


def _margins(found: tuple[Margin, ...]) -> RenderableType:
    made = table(
        "Prices at the margin (Lagrangian bound)", ("rule", "left"), ("where", "left"), ("price", "right"),
        ("$/GB·h", "right"),
    )  # fmt: skip
    for row in found:
        where = row.where[0] if row.rule == "memory" else " → ".join(row.where)
        rent = NONE if row.dollars_per_gb_hour is None else dollars(row.dollars_per_gb_hour)
        made.add_row(row.rule, plain(where), f"{seconds(row.price)}/{row.per}", rent)
    return made


def _what_if(answer: WhatIf) -> Iterator[RenderableType]:
    yield Text("What if", style="bold")
    yield header(answer.after)
    change, money = answer.objective_change, answer.dollars_change
    if change is None or money is None:
        yield Text(f"before: {answer.before.status}, after: {answer.after.status}")
        return
    proven = "" if answer.proven else " (not both proven optimal)"
    yield Text(f"objective {_signed(change)}, money {_money(money, sign=True)}{proven}")
    if answer.moved:
        made = table("Moved stages", ("stage", "left"), ("before", "left"), ("after", "left"))
        for stage in answer.moved:
            made.add_row(plain(stage.stage), *(plain(" as ".join(place)) for place in (stage.before, stage.after)))
        yield made
    else:
        yield Text("no stage moves")


def _suggestions(found: tuple[Suggestion, ...]) -> Iterator[RenderableType]:
    made = table(
        "What one more idle device would save", ("device", "left"), ("where", "left"), ("saves", "right"),
        ("$", "right"), ("stages that move", "left"),
    )  # fmt: skip
    useful = [one for one in found if one.enables or (one.saving or 0.0) > 0]
    for one in useful:
        name = one.model if one.count == 1 else f"{one.count} × {one.model}"
        where = one.places[0] + (f" (or {len(one.places) - 1} equal)" if len(one.places) > 1 else "")
        saving = "makes a plan possible" if one.enables else seconds(one.saving)
        saving += "" if one.proven else " (not proven)"
        made.add_row(plain(name), plain(where), saving, _money(one.dollars), plain(sentence_list(one.moved, 3)) or NONE)
    if useful:
        yield made
    else:
        yield Text("No device that was tried saves anything.")
    reasons: dict[str, list[Suggestion]] = {}
    for one in found:
        if one.skipped:
            reasons.setdefault(one.skipped, []).append(one)
    tried = sum(not one.skipped for one in found)
    lines = [f"{tried} solved, {tried - len(useful)} of them without a saving"]
    for reason, skipped in reasons.items():
        most = max((one.at_most for one in skipped if one.at_most is not None), default=None)
        tail = f", each saves {seconds(most)} at most" if most else ""
        lines.append(f"{len(skipped)} skipped: {reason}{tail}")
    yield Text("; ".join(lines), style="dim")


def _criticality(found: tuple[Criticality, ...]) -> Iterator[RenderableType]:
    made = table(
        "Without a device", ("device", "left"), ("costs", "right"), ("$", "right"), ("stages on it", "left"),
        ("stages that move", "left"),
    )  # fmt: skip
    for one in found:
        cost = _WITHOUT.get(one.status)
        if cost is None:
            at_most = "at most " if one.status == "feasible" else ""
            cost = at_most + _signed(one.cost or 0.0) + ("" if one.proven or at_most else " (not proven)")
        made.add_row(
            plain(one.device), cost, _money(one.dollars, sign=True), plain(sentence_list(one.stages, 3)),
            plain(sentence_list(one.moved, 3)) or NONE,
        )  # fmt: skip
    if found:
        yield made


def _signed(value: float) -> str:
    return f"{'+' if value >= 0 else '−'}{seconds(abs(value))}"


def _money(value: float | None, sign: bool = False) -> str:
    if value is None:
        return NONE
    before = "−" if value < 0 else "+" if sign else ""
    return before + dollars(abs(value))


_PARTS: dict[str, Callable[[Any], Iterator[RenderableType]]] = {
    "sensitivity": _flips,
    "shadow_prices": _prices,
    "what_if": _what_if,
    "suggestions": _suggestions,
    "criticality": _criticality,
}
