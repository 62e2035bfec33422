"""Whether a plan herds, knows unlike instances, refuses under overload, and keeps its places: for ``replan.py``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks.pieces import Rows
from benchmarks.queues import Case, common_prompt, generated
from benchmarks.replan_rules import compared, placement_of
from iegopt.batch.api import replan
from iegopt.batch.rules.unchecked import send_out
from iegopt.batch.schedule import evaluate
from iegopt.batch_plans import BatchPlan

__all__ = ["CHANGES", "behaviour", "churn"]

CHURN = 0.1
"""The share of requests still waiting that may change place when a twentieth of the queue changes."""
CHANGES = ("a twentieth new", "back", "again")
CASES: dict[str, Callable[[], Case]] = {
    "no reuse": lambda: generated(200, 32, 1.0, 0, shared=0.0, fleet=("H100",)),
    "unlike instances": lambda: generated(200, 32, 1.2, 0),
    "overload": lambda: generated(400, 32, 3.0, 0),
}

Row = dict[str, Any]
Failures = list[str]


def behaviour(arguments: argparse.Namespace, rows: Rows, failures: Failures) -> Row:
    """One common prompt, no reuse, unlike instances, overload."""
    row = dict(rows.get("one common prompt", _one_prompt))
    if row["common prompt, most on one of 16"] > 8:
        failures.append(f"herds: {row['common prompt, most on one of 16']} of 64 on one of 16 instances")
    for title, make in CASES.items():
        seen = rows.get(title, _beside_rules, make)
        row[title] = seen
        if not seen["at_least_the_best"]:
            failures.append(f"{title}: {seen['ours']}, {seen['best_rule']} {seen['best']}")
    row |= rows.get("overload without admission", _unchecked)
    return row


def _one_prompt() -> Row:
    case = common_prompt(64, 16)
    model = case.model()
    ours = placement_of(model, replan(case.snapshot, case.cluster, case.policy, deadline_ms=2000))
    return {
        "common prompt, most on one of 16": int(np.bincount(ours.prefill[ours.prefill >= 0], minlength=16).max()),
        "the same by cache-aware": int(np.bincount(send_out(model, "cache-aware").prefill, minlength=16).max()),
    }


def _beside_rules(make: Callable[[], Case]) -> Row:
    seen = compared(make(), 2000)
    told = ("ours", "best_rule", "best", "at_least_the_best", "total_over_best", "gaps")
    return {**{key: seen[key] for key in told}, "least-loaded, as it is": seen["rules"]["least-loaded, as it is"]}


def _unchecked() -> Row:
    model = CASES["overload"]().model()
    placed = send_out(model, "least-loaded")
    kept = evaluate(model, placed).kept
    return {"overload, in time by least-loaded": f"{int(kept.sum())} of {int((placed.prefill >= 0).sum())} placed"}


def churn(arguments: argparse.Namespace, rows: Rows, failures: Failures) -> list[Row]:
    """Places that change between plans: nothing new; a twentieth of the queue new; load that swings to and fro."""
    found = [rows.get(f"churn, seed {seed}", _moving, seed) for seed in range(arguments.seeds)]
    for row in found:
        if row["nothing new"]:
            failures.append(f"{row['snapshot']}: {row['nothing new']:.2%} change place with nothing new")
        for when in CHANGES:
            if row[when] > CHURN:
                failures.append(f"{row['snapshot']}, {when}: {row[when]:.1%} change place")
    return found


def _moving(seed: int) -> Row:
    case = generated(400, 64, 1.2, seed)
    first = _planned(case)
    same = _planned(case, first)
    changed = _changed(case, seed)
    small = _planned(changed, first)
    back = _planned(case, small)
    again = _planned(changed, back)
    return {
        "snapshot": case.name, "nothing new": moved(first, same), "a twentieth new": moved(first, small),
        "back": moved(small, back), "again": moved(back, again),
    }  # fmt: skip


def _planned(case: Case, previous: BatchPlan | None = None) -> BatchPlan:
    return replan(case.snapshot, case.cluster, case.policy, deadline_ms=3000, previous=previous)


def _changed(case: Case, seed: int) -> Case:
    """The case with a twentieth of its queue in another's place, under new names."""
    rng = np.random.default_rng(seed)
    queue = list(case.snapshot.queue)
    for n in rng.choice(len(queue), len(queue) // 20, replace=False).tolist():
        other = queue[int(rng.integers(0, len(queue)))]
        queue[n] = other.model_copy(update={"id": f"new{n}"})
    return replace(case, snapshot=case.snapshot.model_copy(update={"queue": tuple(queue)}))


def moved(before: BatchPlan, after: BatchPlan) -> float:
    """Share of the requests that the first plan placed and that wait still which the second does not have there."""
    was = {d.id: (d.prefill, d.decode) for d in before.queue if d.prefill is not None}
    now = {d.id: (d.prefill, d.decode) for d in after.queue}
    still = [name for name in was if name in now]
    return round(sum(was[name] != now[name] for name in still) / max(1, len(still)), 4)
