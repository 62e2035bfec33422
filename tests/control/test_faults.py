"""Failures and losses: what is done again, where, at which level, and what is not."""

from __future__ import annotations

from typing import Any

import pytest

from iegopt.control.documents import document
from iegopt.control.messages import (
    Accepted,
    Acknowledged,
    AttemptKey,
    Cancelled,
    Disconnected,
    Dismiss,
    Draining,
    Failed,
    Finished,
    Forget,
    Heartbeat,
    Introduce,
    MakePlan,
    Planned,
    Preempted,
    Progress,
    Release,
    Start,
    Stop,
    Stream,
    Waiting,
)  # fmt: skip
from iegopt.control.states import State

from .hand import AGENT, Hand, a_result, kv


def decoding(**policy: Any) -> Hand:
    """A chat whose decode runs on gpu-b and has streamed two tokens."""
    hand = Hand(**({"heartbeat": 100.0, "slow_floor": 1000.0} | policy))
    hand.workers()
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.give(Progress(*hand.about("decode"), 1, (30,), "x"))
    return hand


def lose(hand: Hand, *workers: str, grace: float = 0.5) -> None:
    for name in workers:
        hand.give(Disconnected(hand.now, name, "1"))
    hand.tick(grace)


def recovery(hand: Hand) -> dict[str, Any]:
    (found,) = hand.run().recoveries
    return found.document()


def test_a_stage_that_ends_every_worker_fails_at_last() -> None:
    hand = decoding(max_losses=2)
    for epoch in ("2", "3"):
        hand.register("gpu-b.lm", epoch=epoch)
        assert hand.run().ending is None
    hand.accept("decode")
    hand.register("gpu-b.lm", epoch="4")
    answer = hand.answer()
    assert answer["status"] == "failed"
    assert answer["reason"] == "stage decode: worker gpu-b.lm is lost (process), as were 2 others that had it"


def test_a_transient_error_is_tried_again_on_the_same_worker() -> None:
    hand = decoding()
    hand.fail("decode", "error")
    again = hand.start_of("decode")
    assert (again.worker, again.attempt) == ("gpu-b.lm", 2)
    assert again.work["generated"] == 2
    hand.now += 0.02
    hand.accept("decode")
    assert recovery(hand) | {"began": 0, "noticed": 0, "ended": 0} == {
        "stage": "decode", "level": "L0", "cause": "error", "began": 0, "noticed": 0, "ended": 0,
        "from": "gpu-b.lm", "to": "gpu-b.lm", "kv": "copy", "within": 0.1,
    }  # fmt: skip
    assert recovery(hand)["ended"] - recovery(hand)["began"] == pytest.approx(0.02)


def test_a_recovered_decode_streams_what_follows_and_nothing_twice() -> None:
    hand = decoding()
    old = hand.about("decode")
    hand.fail("decode", "error")
    hand.accept("decode")
    assert hand.give(Progress(*old, 2, (31,), "y")) == ()  # of the attempt before
    hand.give(Progress(*hand.about("decode"), 1, (30,), "x"))  # known
    assert hand.of(Stream) == []
    hand.give(Progress(*hand.about("decode"), 2, (31,), "y"))
    assert hand.of(Stream) == [Stream("r", "decode", 2, (31,), "y")]
    hand.give(Progress(*hand.about("decode"), 4, (33,), "!"))  # one is missing
    assert hand.of(Stream) == []
    hand.finish("decode", tokens=[9, 30, 31, 32, 33], text="ixyz!")
    assert hand.of(Stream) == [Stream("r", "decode", 3, (32, 33), "z!")]


def test_a_result_that_contradicts_what_was_streamed_is_a_failure() -> None:
    hand = decoding()
    hand.finish("decode", tokens=[9, 77])
    assert hand.stage("decode").attempt == 2
    assert "they do not begin with those that were streamed" in hand.story("decode")


@pytest.mark.parametrize(
    ("result", "said"),
    [
        ({"tokens": "all"}, "tokens: all: expected a list of tokens"),
        ({"stop": "bored"}, "stop: bored: expected one of eos, stop, length, call"),
        ({"calls": [{"name": 3}]}, "calls.0.name: 3: expected text"),
        ({"kv": {"id": "a"}}, "kv.copies: missing: expected a list"),
        ({"computed": -1}, "computed: -1: expected at least 0"),
        ({"computed": True}, "computed: true: expected a whole number"),
    ],
)
def test_a_malformed_result_is_a_failure_of_its_stage_alone(result: dict[str, Any], said: str) -> None:
    hand = decoding()
    hand.finish("decode", **result)
    assert hand.stage("decode").attempt == 2
    assert said in hand.story("decode"), hand.story("decode")


def test_retries_end_and_then_so_does_the_request() -> None:
    hand = decoding(max_retries=2, retry_delay=0.1)
    hand.fail("decode", "error")
    hand.fail("decode", "oom")
    assert hand.of(Start) == []
    hand.tick(0.1)
    assert [c.attempt for c in hand.of(Start)] == [3]
    hand.fail("decode", "error", said="again")
    answer = hand.answer()
    assert (answer["status"], answer["reason"]) == ("failed", "stage decode: error: again")
    assert answer["tokens"] == [9, 30]
    assert hand.stage("decode").state is State.TERMINAL
    assert "TERMINAL (retry_count >= max_retries)" in hand.story("decode")


@pytest.mark.parametrize(("cause", "transient"), [("error", False), ("context", True)])
def test_what_would_fail_again_is_not_tried_again(cause: str, transient: bool) -> None:
    hand = decoding()
    hand.fail("decode", cause, transient=transient)
    assert hand.answer()["status"] == "failed"


def test_a_stage_refused_by_a_worker_goes_to_another_device() -> None:
    hand = decoding()
    hand.fail("decode", "refused", transient=False)
    assert hand.start_of("decode").worker == "gpu-a.lm"
    assert hand.run().avoid == {"gpu-b": "refused there"}


def test_a_stage_that_all_refuse_fails() -> None:
    hand = decoding()
    hand.fail("decode", "refused", transient=False)
    hand.fail("decode", "refused", transient=False)
    assert hand.answer()["status"] == "failed"


def test_memory_that_is_short_twice_is_looked_for_elsewhere() -> None:
    hand = decoding(retry_delay=0.0)
    hand.fail("decode", "oom")
    assert hand.start_of("decode").worker == "gpu-b.lm"
    hand.fail("decode", "oom")
    assert hand.start_of("decode").worker == "gpu-a.lm"


def test_kv_that_cannot_be_read_is_computed_again() -> None:
    hand = decoding()
    hand.fail("decode", "kv_lost")
    again = hand.start_of("decode")
    assert again.work["kv"]["sources"] == []
    assert again.work["segments"] == [["prefill", 4], ["decode", 2]]
    assert recovery(hand)["kv"] == "recomputed"


def test_a_timeout_is_tried_on_another_worker_of_the_device() -> None:
    hand = decoding()
    hand.register("gpu-b.lm.2")
    hand.fail("decode", "timeout")
    assert hand.start_of("decode").worker == "gpu-b.lm.2"
    assert recovery(hand)["level"] == "L1"


def test_a_stage_blocked_too_long_fails() -> None:
    hand = decoding(block_timeout=30.0)
    hand.give(Waiting(*hand.about("decode"), "kv"))
    hand.tick(29.0)
    assert hand.stage("decode").state is State.BLOCKED
    hand.tick(1.0)
    assert "FAILED (timeout): blocked for 30 s" in hand.story("decode")
    assert [c.how for c in hand.of(Stop)] == ["cancel"]
    assert hand.start_of("decode").worker == "gpu-a.lm"
    hand.accept("decode")
    assert recovery(hand)["level"] == "L1"


def test_a_closed_connection_is_no_loss_yet() -> None:
    hand = decoding(grace=0.5)
    hand.give(Disconnected(hand.now, "gpu-b.lm", "1"))
    hand.tick(0.4)
    hand.register("gpu-b.lm", running=[AttemptKey("r", "decode", 1)])
    hand.tick(5.0)
    assert hand.stage("decode").attempt == 1
    assert hand.run().recoveries == []


def test_a_lost_device_moves_its_decode_to_another() -> None:
    hand = decoding(grace=0.5)
    lose(hand, "gpu-b.lm")
    again = hand.start_of("decode")
    assert (again.worker, again.attempt) == ("gpu-a.lm", 2)
    assert again.work["tokens"] == [1, 2, 3, 4, 9, 30]
    assert again.work["kv"]["sources"][0]["worker"] == "gpu-a.lm"  # the prefill's own
    hand.now += 0.1
    hand.accept("decode")
    found = recovery(hand)
    assert (found["level"], found["cause"], found["kv"]) == ("L2", "device", "kept")
    assert found["ended"] - found["began"] == pytest.approx(0.6)
    assert hand.run().generation == 2
    hand.finish("decode", tokens=[9, 30, 31], text="ixy")
    hand.until("output")
    assert hand.answer()["status"] == "complete"
    assert hand.answer()["stages"]["prefill"]["attempts"] == 1


def test_a_silent_worker_is_lost_after_its_heartbeats() -> None:
    hand = Hand(heartbeat=1.0, lost_after=3, slow_floor=100.0)
    hand.workers()
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    for _ in range(4):
        hand.now += 1.0
        for name in ("gpu-a.lm", "host.cpu", "host.tool", "host.retrieval"):
            hand.give(Heartbeat(hand.now, name, "1", (), 10, (), 0.0))
        hand.tick(0.0)
    assert hand.start_of("decode").worker == "gpu-a.lm"
    assert recovery(hand)["began"] == 0.0  # when it was last heard
    assert recovery(hand)["noticed"] == 3.0


def test_a_copy_on_files_outlives_its_process_and_not_its_rack() -> None:
    copy = {"tier": "L2", "addresses": {"file": "kv/r"}}
    hand = decoding(keep_copy="L2")
    hand.give(Preempted(*hand.about("decode"), kv("r/decode", 5, (copy,))))
    lose(hand, "gpu-b.lm")
    first = hand.start_of("decode").work["kv"]["sources"][0]
    assert (first["tier"], first["addresses"]) == ("L2", {"file": "kv/r"})
    hand.accept("decode")
    assert recovery(hand)["kv"] == "kept"  # of the prefill; the copy has more


def racks(hand: Hand) -> None:
    """Two data centres: d0 with racks r0 (gpu-b, gpu-c) and r1 (gpu-d), d1 with the rest."""
    for name, centre, rack in (
        ("gpu-b.lm", "d0", "r0"), ("gpu-c.lm", "d0", "r0"), ("gpu-d.lm", "d0", "r1"), ("gpu-a.lm", "d1", "r2"),
        ("host.cpu", "d1", "r2"),
    ):  # fmt: skip
        hand.register(name, centre=centre, rack=rack)


@pytest.mark.parametrize(
    ("lost", "level", "cause"),
    [
        (("gpu-b.lm",), "L2", "device"),
        (("gpu-b.lm", "gpu-c.lm"), "L3", "rack"),
        (("gpu-b.lm", "gpu-c.lm", "gpu-d.lm"), "L4", "datacenter"),
        (("gpu-b.lm", "gpu-d.lm"), "L2", "device"),
    ],
)
def test_what_went_together_tells_how_wide_the_fault_is(lost: tuple[str, ...], level: str, cause: str) -> None:
    hand = Hand(heartbeat=100.0, slow_floor=100.0)
    racks(hand)
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    lose(hand, *lost)
    hand.accept("decode")
    found = next(r.document() for r in hand.run().recoveries)
    assert (found["level"], found["cause"]) == (level, cause)
    assert hand.stage("decode").worker not in lost


def test_all_that_there_is_counts_as_the_narrowest_group_that_holds_it() -> None:
    """One rack in one data centre, lost whole: nothing tells that more than a rack has failed."""
    hand = decoding()
    lose(hand, "gpu-a.lm", "gpu-b.lm", "host.cpu", "host.tool", "host.retrieval")
    assert recovery(hand)["level"] == "L3"


def test_a_fault_that_turns_out_wider_is_told_as_such() -> None:
    """The rack's second device is lost while the first one's stage is being recovered."""
    hand = Hand(heartbeat=100.0, slow_floor=100.0, fault_window=0.5)
    racks(hand)
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    lose(hand, "gpu-b.lm")
    assert recovery(hand)["level"] == "L2"
    lose(hand, "gpu-c.lm")
    assert recovery(hand)["level"] == "L3"


def test_a_rack_takes_its_files_with_it() -> None:
    copy = {"tier": "L2", "addresses": {"file": "kv/r"}}
    hand = Hand(heartbeat=100.0, slow_floor=100.0)
    racks(hand)
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.give(Preempted(*hand.about("decode"), kv("r/decode", 5, (copy,))))
    lose(hand, "gpu-b.lm", "gpu-c.lm")
    tiers = [(s["worker"], s["tier"]) for s in hand.start_of("decode").work["kv"]["sources"]]
    assert tiers == [("gpu-a.lm", "L0")]


def test_the_kv_of_a_completed_stage_that_is_lost_is_computed_again_by_who_continues_it() -> None:
    """gpu-b is lost while a tool runs: its decode has ended, and nothing but the KV cache is done again."""
    hand = Hand(heartbeat=100.0, slow_floor=100.0)
    hand.workers()
    hand.submit(request=AGENT)
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.finish("decode", calls=[{"name": "clock", "arguments": {}}], stop="call")
    hand.accept("tool-1-clock")
    lose(hand, "gpu-b.lm")
    assert hand.of(Start) == []
    assert hand.stage("tool-1-clock").attempt == 1
    hand.finish("tool-1-clock")
    again = hand.start_of("re_prefill-1").work
    assert again["kv"]["sources"] == []
    assert again["segments"] == [["prefill", 4], ["decode", 3]]
    hand.accept("re_prefill-1")
    found = recovery(hand)
    assert (found["stage"], found["level"], found["kv"]) == ("re_prefill-1", "L2", "recomputed")
    hand.finish("re_prefill-1")
    hand.until("decode-1", "agent_decision", "output")
    attempts = {name: stage["attempts"] for name, stage in hand.answer()["stages"].items()}
    assert set(attempts.values()) == {1}


def test_a_process_that_is_there_again_has_lost_everything() -> None:
    hand = decoding()
    hand.register("gpu-b.lm", epoch="2")
    again = hand.start_of("decode")
    assert (again.worker, again.attempt) == ("gpu-b.lm", 2)
    assert hand.run().generation == 1  # the device serves on: no plan is needed
    hand.accept("decode")
    assert (recovery(hand)["level"], recovery(hand)["cause"]) == ("L1", "process")


def test_a_stage_that_had_not_begun_on_a_lost_worker_stays_scheduled() -> None:
    hand = Hand(heartbeat=100.0)
    hand.workers()
    hand.submit()
    hand.until("tokenize", "prefill")
    lose(hand, "gpu-b.lm")
    stage = hand.stage("decode")
    assert (stage.state, stage.worker, stage.attempt) == (State.SCHEDULED, "gpu-a.lm", 2)
    assert "worker gpu-b.lm is lost (device) before it began" in hand.story("decode")


def test_nobody_left_is_waited_for() -> None:
    hand = decoding(plan_patience=60.0)
    lose(hand, "gpu-b.lm")
    hand.accept("decode")
    lose(hand, "gpu-a.lm")
    assert hand.of(Start) == []
    assert hand.stage("decode").state is State.READY
    hand.tick(5.0)
    hand.register("gpu-c.lm")
    again = hand.start_of("decode")
    assert (again.worker, again.work["kv"]["sources"]) == ("gpu-c.lm", [])


def test_a_worker_that_comes_back_hands_over_what_it_has_done() -> None:
    hand = decoding()
    done = Finished(*hand.about("decode"), a_result(hand.stage("decode"), "r/decode"))
    hand.give(Disconnected(hand.now, "gpu-b.lm", "1"))
    told = document(done)
    del told["at"]  # the time is the controller's
    hand.register("gpu-b.lm", finished=[told, {"type": "nonsense"}])
    assert hand.stage("decode").state is State.COMPLETED
    assert hand.stage("decode").attempt == 1
    hand.register("gpu-b.lm", finished=[document(done)])  # it has not heard of it
    assert hand.of(Start) == []


def test_a_worker_that_missed_the_answer_of_a_request_forgets_it_when_it_is_back() -> None:
    hand = decoding()
    done = document(Finished(*hand.about("decode"), a_result(hand.stage("decode"), "r/decode")))
    del done["at"]  # the time is the controller's
    hand.give(Disconnected(hand.now, "gpu-b.lm", "1"))
    hand.give(Cancelled(hand.now, "r", "not wanted"))
    hand.give(Acknowledged(hand.now, "r"))
    hand.register("gpu-b.lm", finished=[done])
    assert hand.of(Forget) == [Forget("gpu-b.lm", "r")]


def test_a_worker_is_told_to_forget_what_it_holds_of_requests_that_are_over() -> None:
    """KV that was pushed to it arrived after its request had been answered, or it was away then."""
    hand = decoding()
    hand.give(Heartbeat(hand.now, "gpu-a.lm", "1", (), 10, (), 0.5, holds=("gone", "r")))
    assert hand.of(Forget) == [Forget("gpu-a.lm", "gone")]
    hand.register("gpu-a.lm", holds=("r", "lost"))
    assert hand.of(Forget) == [Forget("gpu-a.lm", "lost")]


def test_a_worker_that_was_given_up_long_ago_and_lives_registers_again() -> None:
    hand = Hand()
    hand.workers()
    for _ in range(70):  # it hangs for longer than it is remembered, its connection open
        hand.tick(1.0)
    assert "gpu-b.lm" not in hand.controller.core.pool.workers
    hand.give(Heartbeat(hand.now, "gpu-b.lm", "1", (), 10, (), 0.0))
    assert hand.of(Introduce) == [Introduce("gpu-b.lm")]
    hand.register("gpu-b.lm")
    hand.give(Heartbeat(hand.now, "gpu-b.lm", "1", (), 10, (), 0.0))
    assert hand.of(Introduce) == []


def test_a_start_that_never_arrived_is_sent_again() -> None:
    hand = Hand(heartbeat=100.0)
    hand.workers()
    hand.submit()
    hand.give(Disconnected(hand.now, "host.cpu", "1"))
    hand.register("host.cpu")
    assert [(c.stage, c.attempt) for c in hand.of(Start)] == [("tokenize", 1)]


def test_attempts_that_are_not_wanted_any_more_are_stopped() -> None:
    hand = decoding()
    hand.fail("decode", "error")
    running = (AttemptKey("r", "decode", 1), AttemptKey("r", "decode", 2), AttemptKey("gone", "decode", 1))
    hand.give(Heartbeat(hand.now, "gpu-b.lm", "1", running, 10, (), 0.5))
    assert [(c.request_id, c.attempt, c.how) for c in hand.of(Stop)] == [("r", 1, "cancel"), ("gone", 1, "cancel")]
    assert hand.of(Forget) == [Forget("gpu-b.lm", "gone")]


def test_a_worker_given_up_that_lives_may_serve_again() -> None:
    hand = decoding()
    lose(hand, "gpu-b.lm")
    old = AttemptKey("r", "decode", 1)
    hand.give(Heartbeat(hand.now, "gpu-b.lm", "1", (old,), 10, (), 0.5))
    assert [(c.worker, c.attempt) for c in hand.of(Stop)] == [("gpu-b.lm", 1)]
    assert hand.controller.core.pool.workers["gpu-b.lm"].usable
    assert hand.give(Progress(hand.now, "gpu-b.lm", "r", "decode", 1, 2, (31,), "y")) == ()


def test_messages_of_unknown_workers_requests_and_attempts_change_nothing() -> None:
    hand = decoding()
    for event in (
        Heartbeat(hand.now, "gpu-b.lm", "older", (), 1, (), 0.0),
        Disconnected(hand.now, "nobody", "1"),
        Disconnected(hand.now, "gpu-b.lm", "older"),
        Accepted(hand.now, "gpu-b.lm", "nothing", "decode", 1),
        Accepted(hand.now, "gpu-b.lm", "r", "nothing", 1),
        Accepted(hand.now, "gpu-a.lm", "r", "decode", 1),
        Failed(hand.now, "gpu-b.lm", "r", "decode", 7, "error", "?", True),
        Planned(hand.now, "nothing", 1, None, ""),
        Draining(hand.now, "nobody"),
    ):
        assert hand.give(event) == ()


def test_a_draining_worker_s_decode_moves_and_then_it_may_go() -> None:
    hand = decoding()
    hand.give(Draining(hand.now, "gpu-b.lm"))
    assert [c.how for c in hand.of(Stop)] == ["migrate"]
    hand.give(Preempted(*hand.about("decode"), kv("r/decode", 5)))
    again = hand.start_of("decode")
    assert again.worker == "gpu-a.lm"
    assert again.work["kv"]["sources"][0]["worker"] == "gpu-b.lm"
    assert hand.of(Dismiss) == []  # its KV cache is still to be read
    hand.accept("decode")
    hand.finish("decode")
    assert hand.of(Dismiss) == [Dismiss("gpu-b.lm")]
    assert "gpu-b.lm" not in hand.controller.core.pool.workers


def test_a_draining_worker_finishes_what_cannot_move() -> None:
    hand = Hand(heartbeat=100.0)
    hand.workers()
    hand.submit()
    hand.accept("tokenize")
    hand.give(Draining(hand.now, "host.cpu"))
    assert hand.of(Stop) == []
    hand.finish("tokenize")
    assert hand.of(Dismiss) == [Dismiss("host.cpu")]


def test_a_draining_device_gets_nothing_new() -> None:
    hand = Hand(heartbeat=100.0)
    hand.workers()
    hand.give(Draining(hand.now, "gpu-b.lm"))
    assert hand.of(Dismiss) == [Dismiss("gpu-b.lm")]
    hand.submit()
    (asked,) = hand.of(MakePlan)
    assert "gpu-b" not in asked.live


@pytest.mark.parametrize(
    ("policy", "lost", "left"),
    [
        ({"keep_copy": "L2"}, ("gpu-b.lm",), True),
        ({"keep_copy": "L1"}, ("gpu-b.lm",), False),
        ({"keep_copy": "L2"}, ("gpu-b.lm", "gpu-c.lm"), False),  # the files of a rack go with it
    ],
)
def test_what_a_decode_had_computed_may_be_had_from_files(
    policy: dict[str, Any], lost: tuple[str, ...], left: bool
) -> None:
    hand = Hand(heartbeat=100.0, slow_floor=100.0, **policy)
    racks(hand)
    hand.register("gpu-b.lm", addresses={"unix": "/gpu-b.lm", "file": "file:/kv/gpu-b"})
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.give(Progress(*hand.about("decode"), 1, (30,), "x"))
    lose(hand, *lost)
    sources = [(s["tier"], s["tokens"], s["addresses"]) for s in hand.start_of("decode").work["kv"]["sources"]]
    assert (("L2", 5, {"file": "file:/kv/gpu-b"}) in sources) is left
    hand.accept("decode")
    hand.finish("decode", tokens=[9, 30, 31], text="ixy")
    assert "L2" not in {h.tier for h in hand.run().kv.holdings.get("decode", ())}


def test_a_worker_that_was_away_lets_go_of_kv_that_is_not_wanted_any_more() -> None:
    """The order to release it was given while it was away, and lost."""
    hand = Hand(heartbeat=100.0)
    hand.workers()
    hand.submit()
    hand.until("tokenize")
    hand.accept("prefill")
    hand.register("gpu-b.lm", kv=("r/decode", "r/prefill"))  # memory is kept for one, the other is on its way there
    assert hand.of(Release) == []
    hand.finish("prefill")
    hand.register("gpu-a.lm", kv=("r/prefill", "r/prefill#1", "gone/prefill"), holds=("gone",))
    assert hand.of(Release) == []
    hand.accept("decode")
    hand.give(Disconnected(hand.now, "gpu-a.lm", "1"))
    hand.finish("decode")
    hand.register("gpu-a.lm", kv=("r/prefill", "r/decode", "r/never"))
    assert hand.of(Release) == [Release("gpu-a.lm", "r/prefill"), Release("gpu-a.lm", "r/decode")]
    hand.register("gpu-b.lm", kv=("r/decode",))
    assert hand.of(Release) == []


def test_kv_of_what_has_just_ended_is_kept() -> None:
    hand = Hand(heartbeat=100.0)
    hand.workers()
    hand.submit()
    hand.until("tokenize")
    ended = {"type": "Finished", "worker": "gpu-a.lm", "request_id": "r", "stage": "prefill", "attempt": 1,
             "result": a_result(hand.stage("prefill"), "r/prefill")}  # fmt: skip
    hand.give(Disconnected(hand.now, "gpu-a.lm", "1"))
    hand.register("gpu-a.lm", finished=(ended,), kv=("r/prefill",))
    assert hand.stage("prefill").state == "COMPLETED"
    assert hand.of(Release) == []
    assert hand.run().kv.holders("prefill") == ["gpu-a.lm"]


def test_a_worker_that_was_given_up_and_wakes_lets_go_of_the_kv_that_was_given_up_with_it() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    hand.until("tokenize", "prefill")
    for _ in range(10):  # everybody else gives signs of life
        hand.tick(1.0)
        for name in ("gpu-b.lm", "host.cpu", "host.tool", "host.retrieval"):
            hand.give(Heartbeat(hand.now, name, "1", (), 10, (), 0.0))
    assert hand.run().kv.holders("prefill") == []
    hand.give(Heartbeat(hand.now, "gpu-a.lm", "1", (), 10, (), 0.0))
    assert hand.of(Introduce) == [Introduce("gpu-a.lm")]
    hand.register("gpu-a.lm", kv=("r/prefill",))
    assert hand.of(Release) == [Release("gpu-a.lm", "r/prefill")]


def test_kv_that_was_put_aside_in_memory_goes_with_its_process_and_is_had_from_files() -> None:
    work = {"model": "Llama-2-7B"}
    stages = [
        {"id": "prefill", "type": "prefill", **work, "tokens": {"new": 4}},
        {"id": "keep", "type": "kv_store", **work, "tokens": {"context": 4}, "affinity": {"device": "gpu-a"}},
        {"id": "nap", "type": "tool"},
        {"id": "load", "type": "kv_load", **work, "tokens": {"context": 4}, "affinity": {"device": "gpu-b"}},
        {"id": "decode", "type": "decode", **work, "tokens": {"context": 4, "output": 4}},
    ]  # fmt: skip
    kvs = [("prefill", "keep"), ("keep", "load"), ("load", "decode")]
    edges = [*({"from": a, "to": b, "kv": True} for a, b in kvs), {"from": "nap", "to": "load"}]
    hand = Hand(keep_copy="L2")
    hand.workers()
    hand.submit(request={"graph": {"name": "kept", "stages": stages, "edges": edges}}, tokens=[1, 2, 3, 4])
    hand.until("prefill")
    hand.accept("keep")
    assert (hand.start_of("keep").work["tier"], hand.start_of("keep").work["keep_copy"]) == ("L1", "L2")
    copy = {"tier": "L2", "addresses": {"file": "file:/kv/gpu-a"}}
    hand.give(Finished(*hand.about("keep"), {"kv": kv("r/keep", 4, (copy,))}))
    lose(hand, "gpu-a.lm")
    hand.until("nap")
    assert [(s["tier"], s["addresses"]) for s in hand.start_of("load").work["kv"]["sources"]] == [
        ("L2", {"file": "file:/kv/gpu-a"})
    ]
