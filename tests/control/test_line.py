"""Stages that wait: in the order of their urgency, and none is looked at where nothing has changed for it."""

from __future__ import annotations

from collections import Counter

import pytest

from iegopt.control import dispatch
from iegopt.control.core import Core
from iegopt.control.messages import Acknowledged, Cancelled, MakePlan, Planned, Start
from iegopt.control.request_run import RequestRun
from iegopt.control.stage_run import PlannedStage, StageRun

from .hand import Hand, place_of

ROUTERS = {"graph": {"name": "two", "stages": [{"id": "a", "type": "router"}, {"id": "b", "type": "router"}],
                     "edges": [{"from": "a", "to": "b"}]}}  # fmt: skip


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the place of a request's stage was looked up."""
    seen: Counter[str] = Counter()
    place = dispatch._place

    def noted(core: Core, run: RequestRun, stage: StageRun) -> PlannedStage | None:
        seen[run.id] += 1
        return place(core, run, stage)

    monkeypatch.setattr(dispatch, "_place", noted)
    return seen


def started(hand: Hand) -> list[str]:
    return [command.request_id for command in hand.of(Start)]


def test_the_most_urgent_gets_the_slot_and_the_rest_are_left_alone(looked: Counter[str]) -> None:
    hand = Hand(max_in_flight=200)
    hand.register("host.cpu", slots=1)
    hand.submit("first", ROUTERS, priority=1)
    for n in range(50):
        hand.submit(f"low{n}", ROUTERS, priority=2)
    hand.submit("high", ROUTERS, priority=0)
    looked.clear()
    hand.accept("a", "first")
    hand.finish("a", "first")
    assert started(hand) == ["high"]
    assert sum(looked.values()) <= 6
    hand.until("a", name="high")
    assert started(hand) == ["high"]  # its second stage, before the first one's, which has waited longer
    hand.until("b", name="high")
    assert started(hand) == ["first"]


def test_stages_without_a_plan_cost_the_others_nothing(looked: Counter[str]) -> None:
    hand = Hand(plans=False, max_in_flight=200)
    hand.register("host.cpu", slots=200)
    for n in range(50):
        hand.submit(f"r{n}", ROUTERS)
    asked = [command for command in hand.sent if isinstance(command, MakePlan)]
    hand.plan(asked[7])
    assert started(hand) == ["r7"]
    looked.clear()
    hand.accept("a", "r7")
    hand.finish("a", "r7")
    assert started(hand) == ["r7"]
    assert set(looked) == {"r7"}


def test_a_stage_that_is_placed_anew_leaves_the_line_of_its_old_place() -> None:
    hand = Hand(places={"router": "gpu-a"}, plans=False)
    for name in ("gpu-a.cpu", "gpu-b.cpu"):
        hand.register(name, slots=1)
    for name in ("one", "two"):
        hand.submit(name, ROUTERS)
        (asked,) = hand.of(MakePlan)
        hand.plan(asked)
    assert ("two", "a") in hand.controller.core.line.standing
    run = hand.run("two")
    run.replan = "by hand"
    hand.controller.core.unplanned["two"] = None
    hand.controller.core.settle = True
    hand.tick(0.0)
    (asked,) = hand.of(MakePlan)
    plan = place_of(asked.graph, asked.live, {"router": "gpu-b"})
    hand.give(Planned(hand.now, "two", asked.generation, plan, ""))
    assert [(c.request_id, c.worker) for c in hand.of(Start)] == [("two", "gpu-b.cpu")]
    hand.until("a", name="one")
    assert [(c.request_id, c.stage) for c in hand.of(Start)] == [("one", "b")]


def test_a_request_of_the_same_name_does_not_take_the_turn_of_a_cancelled_one() -> None:
    hand = Hand(max_in_flight=1)
    hand.register("host.cpu")
    for name in ("now", "old", "other"):
        hand.submit(name, ROUTERS)
    hand.give(Cancelled(hand.now, "old", "not wanted"))
    hand.give(Acknowledged(hand.now, "old"))
    del hand.watch.answers["old"]
    hand.submit("old", ROUTERS)
    hand.until("a", "b", name="now")
    assert started(hand) == ["other"]
    hand.until("a", "b", name="other")
    assert started(hand) == ["old"]
