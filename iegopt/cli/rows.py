"""The tables of a plan as words, the same on a terminal and on a page.

A heading that ends in ``|`` is a column of numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from iegopt.cli.format import NONE, data, dollars, percent, quantity, seconds, sentence_list

if TYPE_CHECKING:
    from iegopt.plans import Plan

__all__ = ["TERMS", "Rows", "alternatives", "binding", "cost", "places", "refused", "stage_terms", "transfers"]

TERMS = {"L": "latency", "T": "throughput", "M": "money", "D": "transfer"}
"""The terms of the objective."""


@dataclass(frozen=True)
class Rows:
    title: str
    heads: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]

    def split(self, at: int, title: str) -> tuple[Rows, Rows]:
        """The columns before and from ``at``, the first one in both; ``title`` is the second's."""
        left = Rows(self.title, self.heads[:at], tuple(row[:at] for row in self.cells))
        return left, Rows(title, self.heads[:1] + self.heads[at:], tuple(row[:1] + row[at:] for row in self.cells))

    def beside(self, other: Rows) -> Rows:
        """Both in one table; the first column of ``other``, which is the same, is left out."""
        cells = tuple(a + b[1:] for a, b in zip(self.cells, other.cells, strict=True))
        return Rows(self.title, self.heads + other.heads[1:], cells)


def places(plan: Plan) -> Rows:
    """Every stage: where, as what, how long, what bounds it; the SLAs where any stage has one."""
    with_sla = any(stage.sla is not None for stage in plan.stages)
    cells = [
        (
            s.id, s.kind, s.site, s.device_model, s.variant, seconds(s.time), *([seconds(s.sla)] if with_sla else []),
            s.bottleneck, data(s.memory), percent(s.capacity_ratio),
        )
        for s in plan.stages
    ]  # fmt: skip
    sla = ("SLA|",) if with_sla else ()
    heads = ("stage", "kind", "site", "device", "variant", "time|", *sla, "bottleneck", "memory|", "of site|")
    return Rows("Stages", heads, tuple(cells))


def stage_terms(plan: Plan) -> dict[str, dict[str, float]]:
    """Per stage the unweighted seconds of every term; a transfer counts with the stage that waits for it."""
    terms = {stage.id: {"L": stage.cost.L, "T": stage.cost.T, "M": stage.cost.M, "D": 0.0} for stage in plan.stages}
    for transfer in plan.transfers:
        if transfer.target in terms:
            terms[transfer.target]["D"] += transfer.exposed
    return terms


def cost(plan: Plan) -> Rows:
    """Every stage: the terms of its cost, unweighted, and dollars."""
    terms = stage_terms(plan)
    cells = [(s.id, *(seconds(terms[s.id][term]) for term in TERMS), dollars(s.cost.dollars)) for s in plan.stages]
    return Rows("Cost by term", ("stage", *(f"{term}|" for term in TERMS), "$|"), tuple(cells))


def transfers(plan: Plan) -> Rows:
    """Every edge: its path, its bytes, what of its time nothing hides."""
    cells = [
        (f"{t.source} → {t.target}", t.kind, t.path, data(t.bytes), seconds(t.raw), seconds(t.exposed), seconds(t.cost))
        for t in plan.transfers
    ]
    return Rows("Transfers", ("edge", "kind", "path", "bytes|", "raw|", "exposed|", "cost|"), tuple(cells))


def binding(explanation: dict[str, Any]) -> Rows:
    """The constraints with the least slack; equal ones, as on the devices of a gang, in one row."""
    places_of: dict[tuple[str, ...], list[str]] = {}
    for rule in explanation.get("binding", ()):
        numbers = (quantity(rule[key], rule["unit"]) for key in ("used", "allowed", "slack"))
        forbids = "a cheaper plan" if rule.get("binds") else ""
        places_of.setdefault((str(rule["rule"]), *numbers, forbids), []).append(str(rule["where"]))
    cells = [(rule, sentence_list(where, 2), *numbers) for (rule, *numbers), where in places_of.items()]
    return Rows("Tightest constraints", ("rule", "where", "used|", "allowed|", "slack|", "forbids"), tuple(cells))


def alternatives(explanation: dict[str, Any]) -> Rows:
    """Per stage the best other option and why it lost; where a constraint forbids a cheaper one, that too."""
    cells = []
    for name, about in explanation.get("stages", {}).items():
        others = [other for other in (about["alternative"], about.get("forbidden")) if other is not None]
        for other in others:
            more = other["objective_increase"]
            change = f"{'+' if more >= 0 else '−'}{seconds(abs(more))}"
            cells.append((name, str(other["site"]), str(other["variant"]), change, str(other["why"])))
        if not others:
            cells.append((name, NONE, NONE, NONE, "there is no other option"))
    heads = ("stage", "site", "variant", "costs|", "because")
    return Rows("Best alternative of each stage", heads, tuple(cells))


def refused(explanation: dict[str, Any]) -> Rows:
    """Per stage the sites that cannot run it, by reason."""
    cells = [
        (name, f"{refusal['options']:,}", str(refusal["reason"]))
        for name, about in explanation.get("stages", {}).items()
        for refusal in about["refused"]
    ]
    return Rows("Sites that cannot run a stage", ("stage", "sites|", "because"), tuple(cells))
