"""Workers that the cluster has and that are not up yet, or not any more: who needs them waits, and for how long."""

from __future__ import annotations

import json
from typing import Any

import pytest

from iegopt import library
from iegopt.control.controller import Controller
from iegopt.control.messages import (
    Answer,
    Configured,
    Disconnected,
    Dismiss,
    Draining,
    MakePlan,
    Planned,
    Restarted,
    Start,
)
from iegopt.control.policy import ControlPolicy
from iegopt.spec.kinds import role_of

from .hand import CHAT, DEVICES, Hand

WORKERS = {f"{device}.{role}": role for device, roles in DEVICES.items() for role in roles}
TOLD = "workers that did not come up: gpu-a.lm, gpu-b.lm"


def begun(*up: str, **policy: Any) -> Hand:
    """A controller that knows its cluster; only some workers are there, and stay heard."""
    hand = Hand(**{"heartbeat": 1000.0, "plan_patience": 10.0, "startup_grace": 60.0} | policy)
    hand.give(Configured(hand.now, hand.controller.core.policy.model_dump(mode="json"), WORKERS))
    for name in up:
        hand.register(name)
    return hand


def started(*up: str, **policy: Any) -> Hand:
    hand = begun(*up, **policy)
    hand.submit()
    return hand


def lose(hand: Hand, name: str) -> None:
    hand.give(Disconnected(hand.now, name, "1"))
    hand.tick(0.5)


def test_roles_are_called_as_the_cluster_calls_them() -> None:
    assert {role_of(stage.kind) for stage in started("host.cpu", "gpu-a.lm").run().stages.values()} == {"cpu", "lm"}


def test_a_request_waits_for_workers_that_are_still_to_come_up() -> None:
    hand = started("host.cpu")
    hand.tick(59.0)
    assert hand.of(Answer) == []
    hand.register("gpu-a.lm")
    assert [c.stage for c in hand.of(Start)] == ["tokenize"]
    assert "waits for a plan for up to 60 s, and for gpu-a.lm, gpu-b.lm" in hand.story()


def test_workers_that_do_not_come_up_are_named() -> None:
    hand = started("host.cpu")
    hand.tick(60.0)
    answer = hand.answer()
    assert (answer["status"], answer["reason"]) == ("failed", f"no plan: no worker; 60.0 s were waited for {TOLD}")


def test_only_workers_that_a_request_needs_are_waited_for() -> None:
    hand = started("gpu-a.lm", "gpu-b.lm", "host.tool", "host.retrieval")
    hand.tick(60.0)
    assert hand.answer()["reason"].endswith("did not come up: host.cpu")


@pytest.mark.parametrize(("sla", "until"), [({"e2e": "20s"}, 20.0), ({"e2e": "40s", "ttft": "15s"}, 15.0),
                                            ({"e2e": "2s"}, 10.0)])  # fmt: skip
def test_no_request_waits_for_longer_than_its_sla_or_patience(sla: dict[str, str], until: float) -> None:
    hand = begun("host.cpu")
    hand.submit(request=CHAT | {"sla": sla})
    hand.tick(until - 0.1)
    assert hand.run().answer is None
    hand.tick(0.1)
    assert hand.answer()["reason"] == f"no plan: no worker; {until:.1f} s were waited for {TOLD}"


def test_a_time_out_tells_what_was_waited_for() -> None:
    hand = begun("host.cpu")
    hand.submit(request=CHAT | {"dag_constraints": {"termination_policy": {"timeout": "30s"}}})
    hand.tick(30.0)
    answer = hand.answer()
    assert (answer["status"], answer["limit"]) == ("partial", "timeout")
    assert answer["reason"] == f"30.000 s are over, allowed 30 s; 30.0 s were waited for {TOLD}"


def test_a_worker_that_is_lost_may_come_up_again_but_is_not_waited_for_for_ever() -> None:
    hand = begun("host.cpu", "gpu-a.lm", "gpu-b.lm")
    lose(hand, "gpu-a.lm")
    lose(hand, "gpu-b.lm")  # at 1.0 s, so that it is waited for up to 61 s
    hand.submit()
    hand.tick(55.0)
    hand.submit("late")
    hand.tick(5.0)
    assert hand.answer()["reason"].startswith("no plan: no worker; 60.0 s were waited for")
    hand.tick(5.0)
    assert hand.answer("late")["reason"].startswith("no plan: no worker; 10.0 s were waited for")


def test_who_comes_while_a_plan_is_made_is_asked_about_at_once() -> None:
    hand = started("host.cpu", plans=False)
    first = hand.of(MakePlan)[0]
    for name in ("gpu-a.lm", "gpu-b.lm"):
        hand.register(name)
        assert hand.of(MakePlan) == []
    hand.plan(first)
    (asked,) = hand.of(MakePlan)
    assert (asked.generation, sorted(asked.live)) == (2, ["gpu-a", "gpu-b", "host"])
    hand.plan(asked)
    assert [c.stage for c in hand.of(Start)] == ["tokenize"]


def test_who_comes_while_a_plan_is_made_again_is_asked_about_at_once() -> None:
    hand = started("gpu-a.lm", plans=False)
    hand.plan(hand.of(MakePlan)[0])
    hand.register("gpu-b.lm")
    asked = hand.of(MakePlan)[0]
    hand.register("host.cpu")
    hand.plan(asked)
    hand.plan(hand.of(MakePlan)[0])
    assert [c.stage for c in hand.of(Start)] == ["tokenize"]


def test_coming_and_going_does_not_prolong_patience() -> None:
    hand = Hand(plans=False, heartbeat=1000.0, plan_patience=10.0)
    hand.submit()
    for number in range(12):
        assert hand.run().answer is None
        asked = hand.of(MakePlan)[0]
        hand.register(f"gpu-{number}.lm")
        hand.tick(1.0)
        hand.plan(asked)
        if hand.of(Answer):
            break
    assert (hand.now, hand.answer()["reason"]) == (11.0, "no plan: no worker")


def without_a_better_plan(reason: str, final: bool = False) -> Hand:
    """A decode is slow, and the planner has no other place for it."""
    hand = Hand(heartbeat=1000.0, plan_patience=10.0, slow_factor=3.0, slow_floor=0.2, max_migrations=0)
    hand.workers()
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.plans = False
    hand.tick(0.31)
    hand.give(Planned(hand.now, "r", hand.of(MakePlan)[0].generation, None, reason, final))
    return hand


def test_patience_begins_anew_when_a_plan_was_not_needed_in_between() -> None:
    hand = without_a_better_plan("too slow")
    hand.finish("decode")
    hand.accept("output")  # under the plan before: nothing is left to place
    hand.tick(20.0)
    lose(hand, "host.cpu")
    hand.plan(hand.of(MakePlan)[0])
    hand.tick(9.9)
    assert hand.run().answer is None
    hand.register("host.cpu")
    hand.plan(hand.of(MakePlan)[0])
    assert [c.stage for c in hand.of(Start)] == ["output"]


def test_one_that_has_just_come_gives_patience_anew() -> None:
    hand = started("host.cpu", "gpu-b.lm", plans=False)
    for seconds, name in ((0.0, None), (30.0, "gpu-a.lm"), (10.0, None)):
        assert hand.run().answer is None
        hand.tick(seconds)
        if name is not None:
            hand.register(name)
        asked = [command for command in hand.sent if isinstance(command, MakePlan)][-1]
        hand.give(Planned(hand.now, "r", asked.generation, None, "no memory"))
    assert hand.answer()["reason"] == "no plan: no memory"


def test_a_worker_that_was_let_go_is_not_waited_for() -> None:
    hand = begun("host.cpu", "gpu-a.lm", "gpu-b.lm")
    for name in ("gpu-a.lm", "gpu-b.lm"):
        hand.give(Draining(hand.now, name))
        assert hand.of(Dismiss) == [Dismiss(name)]
    hand.submit()
    hand.tick(10.0)
    assert hand.answer()["reason"] == "no plan: no worker"


def test_the_absence_of_the_controller_counts_for_no_worker() -> None:
    hand = started("host.cpu")
    hand.tick(9.0)
    saved = json.loads(json.dumps(hand.controller.snapshot()))
    again = Controller.restored(hand.controller.core.policy, library.llm, saved)
    assert again.core == hand.controller.core
    policy = ControlPolicy(plan_patience=10.0, startup_grace=80.0, restart_grace=1000.0)
    hand.give(Configured(hand.now, policy.model_dump(mode="json"), WORKERS))
    hand.now += 500.0
    hand.give(Restarted(hand.now))
    hand.tick(0.0)
    assert hand.answer()["limit"] == "timeout"  # a request's own goes on
    hand.submit("late")
    hand.tick(70.0)  # of the 80 s from the beginning, 9 were over
    assert hand.run("late").answer is None
    hand.tick(1.0)
    assert hand.answer("late")["reason"].startswith("no plan: no worker; 71.0 s were waited for")


def test_who_waits_in_the_queue_begins_where_the_policy_of_a_restart_has_room() -> None:
    hand = begun("host.cpu", max_in_flight=1)
    for name in ("first", "second", "third"):
        hand.submit(name)
    assert list(hand.controller.core.flying) == ["first"]
    hand.give(Configured(hand.now, ControlPolicy(max_in_flight=2).model_dump(mode="json"), WORKERS))
    hand.give(Restarted(hand.now + 1.0))
    assert list(hand.controller.core.flying) == ["first", "second"]
    assert list(hand.controller.core.queued) == ["third"]
    assert [c.request_id for c in hand.of(MakePlan)] == ["second"]


@pytest.mark.parametrize("final", [False, True])
def test_no_better_plan_ends_no_request_whose_plan_holds(final: bool) -> None:
    """One that was slow failed after ``plan_patience``, or at once, where it had no other plan."""
    hand = without_a_better_plan("no memory", final)
    assert "goes on by plan 1" in hand.story()
    hand.tick(30.0)
    hand.until("decode", "output")
    assert hand.answer()["status"] == "complete"


def test_a_plan_that_lacks_a_worker_does_not_hold() -> None:
    hand = Hand(heartbeat=1000.0, plan_patience=10.0)
    hand.workers()
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.plans = False
    lose(hand, "host.cpu")
    hand.give(Planned(hand.now, "r", hand.of(MakePlan)[0].generation, None, "no worker", True))
    assert hand.run().ending is not None
