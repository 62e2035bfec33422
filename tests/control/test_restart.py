"""A controller that was killed and goes on from its journal: nothing is lost, and nothing that runs is disturbed."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from iegopt import library
from iegopt.control.controller import Controller
from iegopt.control.messages import (
    Answer,
    AttemptKey,
    Command,
    MakePlan,
    Preempted,
    Progress,
    Reserve,
    Restarted,
    Start,
    Stop,
    Stream,
    Waiting,
    WakeAt,
)  # fmt: skip
from iegopt.control.policy import ControlPolicy
from iegopt.control.states import State
from iegopt.control.timers import Timers
from iegopt.errors import InputError
from iegopt.spec.explain_error import validate

from .hand import CHAT, Hand, kv


def killed(hand: Hand, away: float) -> tuple[Command, ...]:
    """The journal in a new controller, which is in the same state and then hears how long it was away."""
    policy = validate(ControlPolicy, hand.controller.core.policy.document(), "journal")
    again = Controller(policy, library.llm)
    for event in hand.journal:
        again.handle(event)
    assert again.core == hand.controller.core
    hand.controller = again
    hand.now += away
    return hand.give(Restarted(hand.now))


def decoding(**policy: object) -> Hand:
    hand = Hand(**({"heartbeat": 1.0, "slow_floor": 2.0, "restart_grace": 5.0} | policy))
    hand.workers()
    hand.submit(request=CHAT | {"dag_constraints": {"max_compute_time": "20s"}})
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.give(Progress(*hand.about("decode"), 1, (30,), "x"))
    return hand


def come_back(hand: Hand) -> list[Command]:
    running = [AttemptKey("r", "decode", 1)]
    commands: list[Command] = []
    for name in ("gpu-a.lm", "host.cpu", "host.tool", "host.retrieval"):
        hand.register(name)
        commands += hand.commands
    hand.register("gpu-b.lm", running=running)
    return commands + list(hand.commands)


def test_a_stage_that_runs_on_is_not_disturbed_by_a_long_absence() -> None:
    hand = decoding(slow_floor=2.5)
    hand.tick(1.0)
    killed(hand, away=60.0)
    assert [c.tokens for c in hand.of(Stream)] == [(9, 30)]
    assert hand.of(WakeAt) != []
    hand.tick(1.0)
    assert not [c for c in come_back(hand) if isinstance(c, Start | Stop)]
    assert hand.stage("decode").run_time(hand.now) == 2.0  # the minute away does not count
    hand.finish("decode", tokens=[9, 30, 31], text="ixy")
    hand.until("output")
    answer = hand.answer()
    assert (answer["status"], answer["recoveries"]) == ("complete", [])
    assert answer["stages"]["decode"]["attempts"] == 1


def test_a_worker_that_does_not_come_back_is_lost_after_its_grace() -> None:
    hand = decoding()
    killed(hand, away=10.0)
    for name in ("gpu-a.lm", "host.cpu", "host.tool", "host.retrieval"):
        hand.register(name)
    for _ in range(4):
        hand.tick(1.0)
        for name in ("gpu-a.lm", "host.cpu", "host.tool", "host.retrieval"):
            hand.register(name)
    assert hand.stage("decode").attempt == 1
    hand.tick(1.0)
    assert hand.start_of("decode").worker == "gpu-a.lm"
    assert hand.start_of("decode").work["generated"] == 2


def test_a_plan_that_was_being_made_is_asked_for_again() -> None:
    hand = Hand(plans=False)
    hand.workers()
    hand.submit()
    (first,) = hand.of(MakePlan)
    killed(hand, away=1.0)
    (again,) = hand.of(MakePlan)
    assert (again.generation, again.graph, again.live) == (first.generation, first.graph, first.live)
    hand.plan(again)
    assert hand.run().planned == 1
    assert hand.of(Start) == []  # its worker has still to come back
    hand.register("host.cpu")
    assert [c.stage for c in hand.of(Start)] == ["tokenize"]


def test_an_answer_that_nobody_has_acknowledged_is_sent_again() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    hand.until("tokenize", "prefill", "decode", "output")
    (first,) = hand.of(Answer)
    killed(hand, away=1.0)
    assert hand.of(Answer) == [first]


def test_a_start_and_a_stop_are_sent_again_when_their_worker_comes_back() -> None:
    hand = decoding(heartbeat=2.0)
    hand.tick(2.0)
    assert [c.how for c in hand.of(Stop)] == ["migrate"]
    killed(hand, away=1.0)
    assert hand.of(Stop) == []
    commands = come_back(hand)
    assert [(c.stage, c.how) for c in commands if isinstance(c, Stop)] == [("decode", "migrate")]
    hand.give(Preempted(*hand.about("decode"), kv("r/decode", 5)))
    assert hand.start_of("decode").worker == "gpu-a.lm"


def reserved(commands: Sequence[Command]) -> list[tuple[str, str, int]]:
    return [(c.worker, c.stage, c.bytes) for c in commands if isinstance(c, Reserve)]


def test_memory_for_a_decode_is_reserved_again_until_it_begins() -> None:
    hand = Hand(restart_grace=5.0)
    hand.workers()
    hand.submit()
    hand.until("tokenize")
    assert reserved(hand.commands) == [("gpu-b.lm", "decode", 1000)]
    first = hand.start_of("prefill")
    assert first.work["push"]["worker"] == "gpu-b.lm"
    killed(hand, away=1.0)  # before the commands left
    hand.register("gpu-a.lm")
    assert hand.of(Start) == [first]
    assert reserved(hand.commands) == []
    hand.register("gpu-b.lm")
    assert reserved(hand.commands) == [("gpu-b.lm", "decode", 1000)]
    hand.until("prefill")
    assert hand.start_of("decode").worker == "gpu-b.lm"
    killed(hand, away=1.0)
    assert reserved(come_back(hand)) == []


def test_a_decode_that_gave_way_has_no_memory_reserved_again() -> None:
    hand = decoding()
    hand.tick(2.0)
    hand.give(Preempted(*hand.about("decode"), kv("r/decode", 5)))
    killed(hand, away=1.0)
    assert reserved(come_back(hand)) == []


def test_a_blocked_stage_has_not_waited_while_the_controller_was_away() -> None:
    hand = decoding(block_timeout=30.0)
    hand.give(Waiting(*hand.about("decode"), "kv"))
    killed(hand, away=60.0)
    come_back(hand)
    hand.tick(1.0)
    assert hand.stage("decode").state is State.BLOCKED


def test_a_request_s_own_time_out_goes_on_meanwhile() -> None:
    hand = decoding()
    killed(hand, away=200.0)
    come_back(hand)
    hand.tick(0.0)
    assert hand.run().ending is not None
    assert hand.run().ending.limit == "timeout"  # type: ignore[union-attr]
    hand.finish("decode", tokens=[9, 30, 31], text="ixy")
    assert hand.answer()["tokens"] == [9, 30, 31]


def test_time_never_runs_backwards() -> None:
    hand = decoding()
    hand.tick(1.0)
    hand.now -= 5.0
    hand.finish("decode", tokens=[9, 30, 31], text="ixy")
    assert hand.stage("decode").ran == 1.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda saved: saved.update(version=0), "a snapshot of version 0: expected 2"),
        (lambda saved: saved["runs"]["r"].pop("stages"), "a snapshot that is damaged: KeyError: 'stages'"),
        (lambda saved: saved["runs"]["r"]["stages"]["decode"].update(state="LOST"), "damaged: ValueError: 'LOST'"),
        (lambda saved: saved["runs"]["r"]["request"].update(model=7), "damaged: SpecError: snapshot: model: 7"),
    ],
)
def test_a_snapshot_that_is_not_one_is_refused(change: Callable[[dict[str, Any]], object], words: str) -> None:
    hand = decoding()
    saved = json.loads(json.dumps(hand.controller.snapshot()))
    assert Controller.restored(hand.controller.core.policy, library.llm, saved).core == hand.controller.core
    change(saved)
    with pytest.raises(InputError, match=words):
        Controller.restored(hand.controller.core.policy, library.llm, saved)


def test_a_snapshot_of_version_1_is_read() -> None:
    """It knows nothing of workers that are still to come up."""
    hand = decoding()
    saved = json.loads(json.dumps(hand.controller.snapshot()))
    saved["version"] = 1
    assert saved["pool"].pop("expected") == {}
    assert Controller.restored(hand.controller.core.policy, library.llm, saved).core == hand.controller.core


def test_timers_keep_one_time_for_each_key() -> None:
    timers = Timers()
    timers.set(("a", "1"), 5.0)
    timers.set(("b", "1"), 3.0)
    timers.set(("a", "1"), 2.0)
    timers.set(("c", "1"), 2.0)
    assert timers.next() == 2.0
    assert timers.pop(1.9) is None
    assert [timers.pop(9.0) for _ in range(4)] == [("a", "1"), ("c", "1"), ("b", "1"), None]
    timers.set(("a", "1"), 5.0)
    timers.clear(("a", "1"))
    assert timers.next() is None


def test_timers_that_are_cleared_long_before_they_are_due_leave_nothing_behind() -> None:
    timers = Timers({("kept", "1"): 7.0})
    for number in range(5000):
        timers.set(("answered", str(number)), 1e6 + number)
        timers.clear(("answered", str(number)))
    assert len(timers.heap) < 1100
    assert timers.pop(1e9) == ("kept", "1")
