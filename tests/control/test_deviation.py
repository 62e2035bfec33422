"""A stage that takes longer than planned: moved, tried again, or left alone; what has not started is planned anew."""

from __future__ import annotations

from iegopt.control.messages import Finished, Heartbeat, MakePlan, Preempted, Progress, Start, Stop
from iegopt.control.states import State

from .hand import Hand, a_result, kv


def running(stage: str, **policy: object) -> Hand:
    hand = Hand(**({"heartbeat": 100.0, "slow_factor": 3.0, "slow_floor": 0.2} | policy))
    hand.workers()
    hand.submit()
    for before in ("tokenize", "prefill", "decode"):
        if before == stage:
            break
        hand.until(before)
    hand.accept(stage)
    return hand


def test_a_slow_decode_moves_with_its_kv() -> None:
    hand = running("decode")
    hand.tick(0.29)
    assert hand.of(Stop) == []
    hand.tick(0.011)  # three times the 0.1 s planned
    assert [c.how for c in hand.of(Stop)] == ["migrate"]
    (asked,) = hand.of(MakePlan)
    assert "gpu-b" not in asked.live
    assert 3.0 < asked.slow["gpu-b"] < 3.02
    assert hand.stage("decode").state is State.RUNNING
    hand.give(Preempted(*hand.about("decode"), kv("r/decode", 6)))
    again = hand.start_of("decode")
    assert again.worker == "gpu-a.lm"
    assert again.work["kv"]["sources"][0] == {
        "id": "r/decode", "worker": "gpu-b.lm", "tier": "L0", "tokens": 6, "addresses": {"unix": "/gpu-b.lm"},
    }  # fmt: skip
    hand.accept("decode")
    (found,) = hand.run().recoveries
    assert (found.level, found.cause) == (1, "slow")


def heard(hand: Hand, *workers: str) -> None:
    for name in workers:
        hand.give(Heartbeat(hand.now, name, "1", (), 10, (), 0.0))


def test_a_slow_decode_of_a_silent_worker_is_taken_from_it_and_its_kv_left_there() -> None:
    """A process that is stopped still has its connection: it is neither waited for nor asked for KV."""
    hand = running("decode", heartbeat=0.1, lost_after=100)
    hand.tick(0.29)
    heard(hand, "gpu-a.lm", "host.cpu")
    hand.tick(0.011)
    assert [(c.worker, c.how) for c in hand.of(Stop)] == [("gpu-b.lm", "cancel")]
    again = hand.start_of("decode")
    assert again.worker == "gpu-a.lm"
    assert {source["worker"] for source in again.work["kv"]["sources"]} == {"gpu-a.lm"}
    hand.accept("decode")
    (found,) = hand.run().recoveries
    assert (found.level, found.cause, found.kv) == (1, "timeout", "kept")


def test_a_worker_that_falls_silent_is_not_waited_for_to_stop_a_decode() -> None:
    hand = running("decode", heartbeat=0.3, lost_after=100, stop_grace=5.0)
    hand.tick(0.301)
    assert [c.how for c in hand.of(Stop)] == ["migrate"]
    heard(hand, "gpu-b.lm")
    hand.tick(0.449)
    assert hand.of(Stop) == []
    hand.tick(0.002)
    assert [c.how for c in hand.of(Stop)] == ["cancel"]
    assert "gpu-b.lm is silent and does not stop it" in hand.story("decode")
    assert hand.start_of("decode").worker == "gpu-a.lm"


def test_a_worker_that_is_heard_has_its_time_to_stop_a_decode() -> None:
    hand = running("decode", heartbeat=0.3, lost_after=100, stop_grace=1.0)
    hand.tick(0.301)
    for _ in range(9):
        heard(hand, "gpu-b.lm")
        hand.tick(0.1)
        assert hand.of(Stop) == []
    hand.tick(0.101)
    assert [c.how for c in hand.of(Stop)] == ["cancel"]
    assert "did not stop within 1 s" in hand.story("decode")


def test_what_a_stopped_worker_says_when_it_wakes_changes_nothing() -> None:
    hand = running("decode", heartbeat=0.1, lost_after=100)
    late, result = hand.about("decode"), a_result(hand.stage("decode"), "r/decode")
    hand.tick(0.301)
    assert hand.start_of("decode").worker == "gpu-a.lm"
    hand.accept("decode")
    for message in (
        Progress(*late, 1, (30,), "x"), Finished(*late, result), Preempted(*late, kv("r/decode", 6)),
    ):  # fmt: skip
        assert hand.give(message) == ()
    hand.finish("decode", tokens=[9, 40], text="ix")
    hand.until("output")
    assert hand.answer()["tokens"] == [9, 40]
    assert hand.give(Finished(*late, result)) == ()


def test_a_decode_moves_only_so_often() -> None:
    hand = running("decode", max_migrations=0)
    hand.tick(0.301)
    assert hand.of(Stop) == []
    assert "is slow: 0.301 s, planned 0.100 s" in hand.story("decode")
    assert hand.of(MakePlan) != []  # the rest is planned with the pace as measured


def test_another_slow_stage_gets_another_try() -> None:
    hand = running("prefill")
    hand.tick(0.301)
    assert [(c.stage, c.attempt, c.how) for c in hand.of(Stop)] == [("prefill", 1, "cancel")]
    assert hand.start_of("prefill").worker == "gpu-b.lm"
    assert hand.stage("prefill").attempt == 2
    hand.accept("prefill")
    (found,) = hand.run().recoveries
    assert found.level == 1


def test_each_try_has_its_time() -> None:
    """A second attempt is not slow for the time that the first one took."""
    hand = running("prefill")
    hand.tick(0.301)
    hand.accept("prefill")
    hand.tick(0.2)
    assert hand.story("prefill").count("is slow") == 1
    hand.tick(0.101)
    assert hand.story("prefill").count("is slow: 0.301 s") == 2


def test_another_worker_of_the_slow_one_s_device_is_tried_first() -> None:
    hand = running("prefill")
    hand.register("gpu-a.lm.2")
    hand.tick(0.301)
    assert hand.start_of("prefill").worker == "gpu-a.lm.2"


def test_a_slow_stage_without_an_alternative_is_left_to_run() -> None:
    hand = running("tokenize")
    for _ in range(3):
        hand.tick(1.0)
        assert hand.of(Stop) == []
        assert hand.of(Start) == []
    assert hand.stage("tokenize").attempt == 1


def test_a_device_in_time_again_is_slow_no_longer() -> None:
    hand = running("tokenize")
    hand.tick(0.5)
    assert set(hand.controller.core.pool.slow) == {"host"}
    hand.finish("tokenize")
    assert set(hand.controller.core.pool.slow) == {"host"}
    hand.until("prefill", "decode", "output")
    assert hand.controller.core.pool.slow == {}
