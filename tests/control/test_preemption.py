"""Preemption under ``preemption_config``, and how the preempted go on."""

from __future__ import annotations

from iegopt.control.messages import Preempted, Release, ReservationRefused, Resumed, Start, Stop, Waiting
from iegopt.control.states import State

from .hand import Hand, kv


def full(count: int = 1, **policy: object) -> Hand:
    """Low-priority decodes run in all slots of gpu-b, and an urgent request waits for it."""
    hand = Hand(**policy)
    hand.workers(slots=2)
    hand.register("gpu-b.lm", slots=count)
    for i in range(count):
        hand.submit(f"low{i}", priority=2)
        hand.until("tokenize", "prefill", name=f"low{i}")
        hand.now += 0.01
        hand.accept("decode", f"low{i}")
    hand.submit("high", priority=0)
    hand.until("tokenize", "prefill", name="high")
    return hand


def stops(hand: Hand) -> list[tuple[str, str]]:
    return [(c.request_id, c.how) for c in hand.of(Stop)]


def test_a_more_urgent_request_preempts_a_decode_that_goes_on_afterwards() -> None:
    hand = full()
    assert stops(hand) == [("low0", "preempt")]
    hand.give(Preempted(*hand.about("decode", "low0"), kv("low0/decode", 5)))
    assert [(c.request_id, c.stage) for c in hand.of(Start)] == [("high", "decode")]
    assert hand.stage("decode", "low0").state is State.READY
    hand.until("decode", name="high")
    again = hand.start_of("decode")
    assert (again.request_id, again.attempt, again.worker) == ("low0", 2, "gpu-b.lm")
    assert again.work["kv"]["sources"][0]["id"] == "low0/decode"
    assert again.work["tokens"] == [1, 2, 3, 4, 9]
    story = hand.story("decode", "low0")
    assert "gives way to high, which needs a slot" in story
    assert "PREEMPTED (preemption_triggered)" in story
    assert "READY (preemption_complete_kv_saved)" in story


def test_the_reservation_of_a_decode_that_moves_is_not_given_up_with_its_kv() -> None:
    hand = Hand(slow_floor=0.1, heartbeat=100.0)
    hand.workers()
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.tick(0.4)
    hand.give(Preempted(*hand.about("decode"), kv("r/decode", 5)))
    assert hand.start_of("decode").worker == "gpu-a.lm"
    assert hand.of(Release) == []
    hand.accept("decode")
    hand.finish("decode")
    assert Release("gpu-b.lm", "r/decode") in hand.commands  # now it has been


def test_the_latest_of_the_least_urgent_gives_way() -> None:
    hand = full(count=2)
    assert stops(hand) == [("low1", "preempt")]


def test_one_decode_gives_way_to_each_that_waits() -> None:
    hand = full(count=2)
    hand.submit("high2", priority=0)
    hand.until("tokenize", "prefill", name="high2")
    assert stops(hand) == [("low0", "preempt")]
    hand.submit("high3", priority=0)
    hand.until("tokenize", "prefill", name="high3")
    assert stops(hand) == []


def test_a_decode_that_had_not_begun_gives_way_once_it_runs() -> None:
    hand = Hand()
    hand.workers(slots=2)
    hand.register("gpu-b.lm", slots=1)
    hand.submit("low", priority=2)
    hand.until("tokenize", "prefill", name="low")
    hand.submit("high", priority=0)
    hand.until("tokenize", "prefill", name="high")
    assert stops(hand) == []
    hand.accept("decode", "low")
    hand.submit("third", priority=2)
    assert stops(hand) == [("low", "preempt")]


def test_equals_do_not_preempt_each_other() -> None:
    hand = Hand()
    hand.workers()
    hand.register("gpu-b.lm", slots=1)
    hand.submit("a", priority=1)
    hand.until("tokenize", "prefill", name="a")
    hand.accept("decode", "a")
    hand.submit("b", priority=1)
    hand.until("tokenize", "prefill", name="b")
    assert stops(hand) == []
    assert ("b", "decode") in hand.controller.core.waiting


def test_a_gap_of_priorities_may_be_asked_for() -> None:
    assert stops(full(preemption={"min_priority_gap": 2})) == [("low0", "preempt")]
    assert stops(full(preemption={"min_priority_gap": 3})) == []


def test_preemption_may_be_off() -> None:
    assert stops(full(preemption={"enabled": False})) == []


def test_a_decode_about_to_end_is_left_alone() -> None:
    hand = Hand(preemption={"preemption_overhead": 0.05})
    hand.workers()
    hand.register("gpu-b.lm", slots=1)
    hand.submit("low", priority=2)
    hand.until("tokenize", "prefill", name="low")
    hand.accept("decode", "low")
    hand.now += 0.06  # of 0.1 s planned
    hand.submit("high", priority=0)
    hand.until("tokenize", "prefill", name="high")
    assert stops(hand) == []


def test_a_request_is_preempted_so_often_and_no_more() -> None:
    hand = full(preemption={"max_preempt_per_request": 1})
    hand.give(Preempted(*hand.about("decode", "low0"), kv("low0/decode", 5)))
    hand.until("decode", name="high")
    hand.accept("decode", "low0")
    hand.submit("high2", priority=0)
    hand.until("tokenize", "prefill", name="high2")
    assert stops(hand) == []
    assert hand.run("low0").preemptions == 1


def resumed_first(policy: str) -> str:
    """Who starts when the urgent request is done: one preempted, or one of its priority that has waited longer."""
    hand = Hand(preemption={"resume_policy": policy})
    hand.workers(slots=4)
    hand.register("gpu-b.lm", slots=1)
    hand.submit("low", priority=2)
    hand.until("tokenize", "prefill", name="low")
    hand.accept("decode", "low")
    hand.submit("peer", priority=2)
    hand.until("tokenize", "prefill", name="peer")
    hand.now += 0.01
    hand.submit("high", priority=0)
    hand.until("tokenize", "prefill", name="high")
    hand.give(Preempted(*hand.about("decode", "low"), kv("low/decode", 5)))
    hand.accept("decode", "high")
    hand.finish("decode", "high")
    return next(c.request_id for c in hand.of(Start) if c.stage == "decode")


def test_the_preempted_resume_at_once_or_in_turn() -> None:
    assert resumed_first("immediate") == "low"
    assert resumed_first("queued") == "peer"


def test_a_decode_that_ends_before_it_stops_has_ended() -> None:
    hand = full()
    late = Preempted(*hand.about("decode", "low0"), kv("low0/decode", 5))
    hand.finish("decode", "low0")
    assert hand.stage("decode", "low0").state is State.COMPLETED
    assert hand.give(late) == ()
    assert hand.stage("decode", "low0").state is State.COMPLETED


def test_a_worker_that_does_not_stop_a_decode_loses_it() -> None:
    hand = full(stop_grace=2.0, heartbeat=100.0, slow_floor=100.0)
    hand.tick(2.0)
    assert stops(hand) == [("low0", "cancel")]
    assert "did not stop within 2 s" in hand.story("decode", "low0")
    assert (hand.start_of("decode").worker, hand.stage("decode", "low0").attempt) == ("gpu-a.lm", 2)
    assert hand.stage("decode", "high").live


def test_memory_that_is_wanting_preempts_too() -> None:
    hand = Hand()
    hand.workers()
    hand.submit("low", priority=2)
    hand.until("tokenize", "prefill", name="low")
    hand.accept("decode", "low")
    hand.submit("high", priority=0)
    hand.until("tokenize", name="high")
    hand.give(ReservationRefused(hand.now, "gpu-b.lm", "high", "decode", "5 blocks are free"))
    assert stops(hand) == [("low", "preempt")]
    assert "no memory is reserved on gpu-b.lm: 5 blocks are free" in hand.story("decode", "high")


def test_a_blocked_stage_preempts_for_memory_and_goes_on() -> None:
    hand = Hand()
    hand.workers()
    hand.submit("low", priority=2)
    hand.until("tokenize", "prefill", name="low")
    hand.accept("decode", "low")
    hand.submit("high", priority=0)
    hand.until("tokenize", "prefill", name="high")
    hand.accept("decode", "high")
    hand.give(Waiting(*hand.about("decode", "high"), "memory"))
    assert hand.stage("decode", "high").state is State.BLOCKED
    assert stops(hand) == [("low", "preempt")]
    hand.give(Resumed(*hand.about("decode", "high")))
    assert hand.stage("decode", "high").state is State.RUNNING
