"""Strict priority: level by level, each keeps what the levels above it have."""

from __future__ import annotations

import numpy as np

from iegopt.batch.board import Board
from iegopt.batch.construct import fill, order_by_density
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import Outcome
from iegopt.batch.placement import Placement
from iegopt.batch.schedule import evaluate
from iegopt.batch.scout import Prices, Scout
from iegopt.solvers.clock import Clock

__all__ = ["better", "plain_prices", "plan_queue"]

EPSILON = 1e-9
"""Relative difference of two objectives that counts."""


def plan_queue(model: BatchModel, clock: Clock) -> tuple[Placement, Outcome]:
    """The best plan that is found in time; doing nothing at worst."""
    best = Placement.empty(model)
    outcome = evaluate(model, best)
    scout = Scout(model)
    scarce = plain_prices(model)
    for prices in (Prices(0.0 * scarce.time, 0.0 * scarce.memory, 1.0), scarce):
        board = Board(model)
        for level in np.unique(model.queue.priority).tolist():
            requests = np.flatnonzero((model.queue.priority == level) & ~model.alone.hopeless)
            fill(board, scout, order_by_density(scout, requests, scarce).tolist(), prices, clock)
        plan = board.plan.copy()
        found = repaired(model, plan)
        if better(found, outcome):
            best, outcome = plan, found
        if not ((best.prefill < 0) & ~model.alone.hopeless).any() or clock.left <= 0.0:
            break
    return best, outcome


def repaired(model: BatchModel, plan: Placement) -> Outcome:
    """Take off the plan what breaks a rule until nothing does; the plan is changed."""
    while True:
        outcome = evaluate(model, plan)
        if outcome.feasible:
            return outcome
        for array in (plan.prefill, plan.decode, plan.fetch):
            array[_offenders(model, plan, outcome)] = -1


def _offenders(model: BatchModel, plan: Placement, outcome: Outcome) -> list[int]:
    """Per violation the placed request that goes: of the lowest priority, the least worth, the last."""
    ids = {name: i for i, name in enumerate(model.queue.ids)}
    at = {name: j for j, name in enumerate(model.instances.ids)}
    runs = {name: r for r, name in enumerate(model.running.ids)}
    tenants = {name: t for t, name in enumerate(model.tenants)}
    placed = plan.prefill >= 0
    gone: set[int] = set()
    for violation in outcome.violations:
        where = violation.where
        if where in ids:
            gone.add(ids[where])
            continue
        if where in at:
            mine = placed & ((plan.prefill == at[where]) | (plan.decode == at[where]))
        elif where in runs:
            places = [model.running.instance[runs[where]], model.running.decode[runs[where]]]
            mine = placed & (np.isin(plan.prefill, places) | np.isin(plan.decode, places))
        else:
            mine = placed & (model.queue.tenant == tenants[where])
        rows = np.flatnonzero(mine)
        if len(rows):
            turn = np.lexsort((-rows, outcome.utility[rows], -model.queue.priority[rows]))
            gone.add(int(rows[turn[0]]))
    return sorted(gone) if gone else np.flatnonzero(placed).tolist()


def better(new: Outcome, old: Outcome) -> bool:
    """Whether a plan is worth more, level by level; among equals, whether it has less delay and less money."""
    a, b = new.objective, old.objective
    for mine, theirs in zip(a.tolist(), b.tolist(), strict=True):
        if abs(mine - theirs) > EPSILON * max(1.0, abs(theirs)):
            return bool(mine > theirs)
    return new.delay + new.money < old.delay + old.money


def plain_prices(model: BatchModel) -> Prices:
    """Every second of an instance alike, and its memory as much as its time."""
    window, free = model.policy.window, np.maximum(1.0, model.instances.free.astype(float))
    return Prices(np.full(model.J, 1.0 / window), 1.0 / free, 1e-3)
