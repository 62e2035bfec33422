"""The first plan, for when there is no time for more; and what is kept back for what follows it."""

from __future__ import annotations

import numpy as np
import pytest

from iegopt.batch.api import replan
from iegopt.batch.board import Board
from iegopt.batch.construct import cost_at, even_prices
from iegopt.batch.first import FirstPlan, first_plan
from iegopt.batch.grid import deadline_grid
from iegopt.batch.levels import Search
from iegopt.batch.model import BatchModel
from iegopt.batch.outcome import worth_more
from iegopt.batch.placement import Placement
from iegopt.batch.schedule import evaluate
from iegopt.batch.scout import Scout
from iegopt.batch.tail import Tail
from iegopt.solvers.clock import Clock

from .random_snapshots import random_case
from .small import build, instance, prefill_seconds, queued


def first(model: BatchModel, seconds: float = 60.0, each: float = 0.0) -> Placement:
    scout = Scout(model)
    return first_plan(scout, cost_at(scout, even_prices(model, deadline_grid(model))), Clock(seconds), each)


def test_it_keeps_every_rule_and_places_much() -> None:
    placed = could = 0
    for seed in range(60):
        model = random_case(seed, "small").model
        plan = first(model)
        assert evaluate(model, plan).violations == (), seed
        placed += int((plan.prefill >= 0).sum())
        could += int((~model.alone.hopeless).sum())
    assert placed > 0.4 * could


def test_the_higher_priority_then_the_utility_for_the_time_decide() -> None:
    tight = {"prompt": 4000, "output": 1, "sla": {"ttft": 1.5 * prefill_seconds(4000)}}
    queue = [
        queued("low", priority=2, utility={"weight": 9.0}, **tight), queued("light", utility={"weight": 1.0}, **tight),
        queued("heavy", utility={"weight": 2.0}, **tight),
    ]  # fmt: skip
    assert first(build([instance(0)], queue)).prefill.tolist() == [-1, -1, 0]


def test_it_spreads_over_equal_instances() -> None:
    plan = first(build([instance(j) for j in range(4)], [queued(f"q{n}") for n in range(8)]))
    assert np.bincount(plan.prefill).tolist() == [2, 2, 2, 2]


def test_prefill_and_decode_part_where_roles_do() -> None:
    at = [instance(0, role="prefill"), instance(1, role="decode"), instance(2, role="decode")]
    plan = first(build(at, [queued(f"q{n}") for n in range(4)]))
    assert plan.prefill.tolist() == [0, 0, 0, 0]
    assert sorted(plan.decode.tolist()) == [1, 1, 2, 2]


def test_what_was_planned_stays() -> None:
    rows = [queued(f"q{n}", planned={"prefill": "i1", "decode": "i1"}) for n in range(3)]
    plan = first(build([instance(j) for j in range(3)], [*rows, queued("new")]))
    assert plan.prefill.tolist()[:3] == [1, 1, 1]
    assert plan.prefill[3] != 1


def test_it_keeps_back_what_every_placed_request_takes_later() -> None:
    model = build([instance(j) for j in range(4)], [queued(f"q{n}") for n in range(8)])
    board, scout = Board(model), Scout(model)
    FirstPlan(board, scout, each=1e9).fill(np.ones(model.N), Clock(60.0))
    assert (board.plan.prefill >= 0).sum() == 1


def test_the_tail_is_as_long_as_of_late() -> None:
    model, tail = build([instance(0)], [queued(f"q{n}") for n in range(100)]), Tail()
    usual = tail.seconds(model, 50)
    assert tail.seconds(model, 60) - usual == pytest.approx(10 * tail.each)
    tail.learn(model, 50, 3 * usual)
    assert tail.seconds(model, 50) > 3 * usual
    for _ in range(20):
        tail.learn(model, 50, 0.1 * usual)
    assert 0.1 * usual < tail.seconds(model, 50) < 0.13 * usual


def test_a_replan_depends_on_none_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Tail] = []

    def fresh() -> Tail:
        made.append(Tail())
        return made[-1]

    monkeypatch.setattr("iegopt.batch.api.Tail", fresh)
    case = random_case(0, "tiny")
    for _ in range(2):
        replan(case.snapshot, case.cluster, case.policy, deadline_ms=0.0)
    assert len(made) == 2
    own = Tail()
    replan(case.snapshot, case.cluster, case.policy, deadline_ms=0.0, tail=own)
    assert len(made) == 2
    assert own.each != Tail().each


def test_the_search_never_loses_its_first_plan() -> None:
    for seed in range(12):
        search = Search(random_case(seed, "small").model, Clock(60.0))
        search.begin(0.0)
        begun = search.outcome.objective
        search.run()
        assert not worth_more(begun, search.outcome.objective), seed
