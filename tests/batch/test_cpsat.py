"""The CP-SAT model of replanning: its plans hold, none is better than the best, and most are as good."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from iegopt.batch.brute import TooLargeError, brute_force
from iegopt.batch.cpsat import CpsatJob, solve_cpsat
from iegopt.batch.model import BatchModel
from iegopt.batch.schedule import evaluate
from iegopt.errors import BackendError

from .random_snapshots import random_case
from .small import build, decodes, instance, queued

pytest.importorskip("ortools")

EPSILON = 1e-5
"""Of a level's objective: utilities are counted in millionths, each rounded down."""


def solved(model: BatchModel) -> tuple[list[Any], int]:
    """Placements that are sent, and levels proven, in this process: starting one takes seconds."""
    from iegopt.batch.cpsat_child import solve_levels

    sent: list[tuple[Any, ...]] = []
    solve_levels(CpsatJob(model, None, time.monotonic() + 60.0, 1, 0), lambda *message: sent.append(message))
    return [m[1] for m in sent if m[0] == "found"], max((m[1] for m in sent if m[0] == "proven"), default=0)


@pytest.mark.slow
def test_its_plans_hold_and_are_mostly_the_best() -> None:
    equal = compared = 0
    for seed in range(36):
        case = random_case(seed, "tiny")
        model = case.model
        if case.policy.fairness is not None or not model.N:
            continue
        placements, proven = solved(model)
        outcomes = [evaluate(model, placement) for placement in placements]
        assert [o.violations for o in outcomes if not o.feasible] == [], seed
        assert proven == len(outcomes[-1].levels)
        try:
            best = brute_force(model, 600).objective
        except TooLargeError:
            continue
        mine = outcomes[-1].objective
        different = np.flatnonzero(np.abs(mine - best) > EPSILON)
        assert not len(different) or mine[different[0]] < best[different[0]], seed
        compared += 1
        equal += not len(different)
    assert compared > 12
    assert equal >= 0.8 * compared


def test_it_runs_in_a_child_and_starts_from_a_hint() -> None:
    victim = decodes("d", priority=2, remaining=1000)
    queue = [queued("a", priority=0), queued("b", priority=1, utility={"weight": 9.0})]
    model = build([instance(0, max_batch=1)], queue, [victim], policy={"paces": [0.05]})
    answer = solve_cpsat(model, 60.0)
    assert answer.placement.prefill.tolist() == [0, -1]
    assert answer.objective[0] == 1.0
    assert (answer.proven, answer.killed) == (3, False)
    assert answer.outcome.feasible
    again = solve_cpsat(model, 60.0, hint=answer.placement)
    assert again.objective.tolist() == answer.objective.tolist()


def test_a_limit_is_kept_and_what_was_found_is_kept_too() -> None:
    model = build([instance(j) for j in range(4)], [queued(f"q{n}") for n in range(8)])
    began = time.monotonic()
    answer = solve_cpsat(model, 0.01)
    assert time.monotonic() - began < 20.0
    assert answer.killed
    assert answer.objective.tolist() == [0.0]


def test_what_is_not_modelled_is_said() -> None:
    model = build([instance(0)], [queued("a")], policy={"fairness": 0.1})
    with pytest.raises(BackendError, match="cpsat: a threshold of fairness is not modelled"):
        solve_cpsat(model, 30.0)
