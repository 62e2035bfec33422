"""From submission to answer: the everyday path, refusals, the queue, cancellation, limits."""

from __future__ import annotations

from typing import Any

import pytest

from iegopt.control.answer import USAGE
from iegopt.control.messages import (
    Acknowledged,
    Answer,
    Cancelled,
    Differs,
    Discard,
    Forget,
    MakePlan,
    Planned,
    Release,
    Reserve,
    Start,
    Stop,
    Stream,
    WakeAt,
)  # fmt: skip
from iegopt.control.states import State

from .hand import AGENT, CHAT, Hand


def test_a_chat_runs_from_prompt_to_answer() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    assert hand.start_of("tokenize").work == {"model": "Llama-2-7B", "text": "Hello there"}
    hand.until("tokenize")
    prefill = hand.start_of("prefill")
    assert prefill.worker == "gpu-a.lm"
    assert prefill.work["tokens"] == [1, 2, 3, 4]
    assert prefill.work["segments"] == [["prefill", 4]]
    assert prefill.work["push"]["worker"] == "gpu-b.lm"
    assert prefill.work["push"]["transfer"]["chunk_size"] == "256MB"
    assert prefill.work["kv"]["transfer"] == prefill.work["push"]["transfer"]
    assert hand.of(Reserve) == [Reserve("gpu-b.lm", "r", "decode", 1000)]
    hand.until("prefill")
    assert hand.of(Stream) == [Stream("r", "decode", 0, (9,), "i")]
    decode = hand.start_of("decode")
    assert decode.work["tokens"] == [1, 2, 3, 4, 9]
    assert decode.work["segments"] == [["prefill", 4], ["decode", 1]]
    assert decode.work["generated"] == 1
    assert decode.work["max_tokens"] == 8
    assert decode.work["kv"]["from"] == "r/prefill"
    assert [s["worker"] for s in decode.work["kv"]["sources"]] == ["gpu-a.lm"]
    hand.until("decode")
    assert Release("gpu-a.lm", "r/prefill") in hand.commands
    assert hand.start_of("output").work == {"model": "Llama-2-7B", "tokens": [9, 10, 11], "text": "ijk"}
    hand.until("output")
    answer = hand.answer()
    assert (answer["status"], answer["text"], answer["tokens"]) == ("complete", "ijk", [9, 10, 11])
    assert hand.streamed() == [9, 10, 11]
    assert {c.worker for c in hand.of(Forget)} == {"host.cpu", "gpu-a.lm", "gpu-b.lm"}
    hand.give(Acknowledged(hand.now, "r"))
    assert hand.controller.core.runs == {}


def test_kv_pushed_while_it_is_computed_lies_with_the_decode_s_worker() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    hand.until("tokenize")
    hand.accept("prefill")
    hand.finish("prefill", kv={"id": "r/prefill", "tokens": 4, "bytes": 9, "copies": [], "pushed": True})
    sources = hand.start_of("decode").work["kv"]["sources"]
    assert [(s["worker"], s["id"]) for s in sources] == [("gpu-b.lm", "r/prefill"), ("gpu-a.lm", "r/prefill")]


def test_tokens_handed_in_are_counted_before_the_first_plan() -> None:
    hand = Hand()
    hand.workers()
    hand.submit(tokens=[5] * 30)
    (asked,) = [c for c in hand.sent if isinstance(c, MakePlan)]
    assert next(s for s in asked.graph["stages"] if s["id"] == "prefill")["tokens"]["new"] == 30


@pytest.mark.parametrize(
    ("request_", "inputs", "said"),
    [
        ({"model": "Llama-9"}, {}, "request r: expected exactly one of prompt and prompt_tokens"),
        (CHAT | {"model": "Llama-9"}, {}, "unknown model Llama-9"),
        (CHAT | {"output_tokens": "many"}, {}, "request r: output_tokens: many: expected a whole number"),
        (CHAT | {"batch": 2}, {}, "request r: batch: 2: expected 1, one sequence is run per request"),
        (CHAT, {"text": "a", "tokens": [1]}, "request r: inputs: text and tokens are given: expected one of them"),
        (CHAT, {"tokens": []}, "request r: inputs.tokens: a list: expected a list of tokens, not empty"),
        (CHAT, {"tokens": [1, "2"]}, "request r: inputs.tokens.1: 2: expected a token, 0 or more"),
        (CHAT, {"text": "a", "k": 0}, "request r: inputs.k: 0: expected a whole number of at least 1"),
        (CHAT, {"text": "a", "stop": ["x", 3]}, "request r: inputs.stop.1: 3: expected text, not empty"),
        (CHAT, {"text": "a", "sampling": {"temprature": 1}}, "inputs.sampling.temprature: unknown. Maybe temperature?"),
        (CHAT, {"text": "a", "sampling": {"temperature": -1}}, "sampling.temperature: -1: expected a number from 0 to"),
        (CHAT, {"text": "a", "sampling": {"top_p": 0.0}}, "sampling.top_p: 0.0: expected a number above 0 and up to 1"),
        (CHAT, {"text": "a", "sampling": {"top_k": True}}, "sampling.top_k: true: expected a whole number"),
        (CHAT, {"text": "a", "sampling": {"seed": 1.5}}, "inputs.sampling.seed: 1.5: expected a whole number"),
        (CHAT, {"tokens": [1] * 5000}, "stage prefill: 5000 tokens are more than the context of Llama-2-7B"),
        (CHAT, {"tokens": [1] * 40000}, "stage prefill: 40000 tokens are more than the context of Llama-2-7B"),
        ({"model": "Llama-2-7B", "prompt_tokens": 4, "output_tokens": 3}, {}, "request r: inputs: without a prompt"),
        (CHAT | {"dag_constraints": {"max_token_budget": 9}}, {}, "dag_constraints.max_token_budget: the graph needs"),
    ],
)
def test_a_request_that_cannot_be_run_is_refused_with_the_reason(
    request_: dict[str, Any], inputs: dict[str, Any], said: str
) -> None:
    hand = Hand()
    hand.workers()
    hand.submit("r", request_, **inputs)
    answer = hand.answer()
    assert answer["status"] == "refused"
    assert set(answer["usage"].values()) == {0}
    assert answer["reason"].startswith(said) or said in answer["reason"], answer["reason"]
    assert hand.controller.core.runs == {}


def test_requests_beyond_those_in_flight_wait_by_priority_and_more_are_refused() -> None:
    hand = Hand(max_in_flight=1, max_queued=2)
    hand.workers()
    hand.submit("first")
    hand.submit("second", priority=2)
    hand.submit("third", priority=0)
    hand.submit("fourth")
    assert hand.answer("fourth")["reason"] == "1 requests are in flight and 2 wait: try again later"
    assert [name for name in ("first", "second", "third") if hand.run(name).admitted] == ["first"]
    hand.give(Cancelled(hand.now, "first", "not wanted"))
    assert hand.run("third").admitted
    assert not hand.run("second").admitted
    hand.submit("fifth")
    assert not hand.run("fifth").admitted


def test_a_client_may_cancel_at_any_time() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.give(Cancelled(hand.now, "r", "the user left"))
    assert [(c.stage, c.how) for c in hand.of(Stop)] == [("decode", "cancel")]
    answer = hand.answer()
    assert (answer["status"], answer["reason"], answer["tokens"]) == ("cancelled", "the user left", [9])
    assert hand.stage("decode").state is State.TERMINAL
    assert hand.stage("output").withdrawn


def test_the_same_request_again_runs_once_and_is_answered_again() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    hand.submit()
    assert hand.commands == ()
    hand.until("tokenize", "prefill", "decode", "output")
    hand.submit()
    assert [c.answer["status"] for c in hand.of(Answer)] == ["complete"]


def test_an_answer_that_nobody_acknowledges_is_not_kept_for_ever() -> None:
    hand = Hand(answer_kept=60.0, heartbeat=1000.0, max_in_flight=1, max_queued=0)
    hand.workers()
    for name in ("a", "b"):
        hand.submit(name)
        hand.submit("refused")
        hand.until("tokenize", "prefill", "decode", "output", name=name)
    hand.give(Acknowledged(hand.now, "b"))
    hand.tick(59.0)
    assert set(hand.controller.core.runs) == {"a"}
    hand.tick(1.0)
    assert hand.controller.core.runs == {}
    assert hand.of(Discard) == [Discard("a"), Discard("refused")]
    hand.tick(1000.0)
    assert hand.of(Discard) == []


def test_an_old_plan_is_refused() -> None:
    hand = Hand(plans=False)
    hand.workers()
    hand.submit()
    (first,) = hand.of(MakePlan)
    hand.give(Planned(hand.now, "r", 1, None, "busy"))  # a plan fails, patience begins
    hand.register("gpu-c.lm")  # a worker comes: the second is asked for
    (second,) = hand.of(MakePlan)
    assert (first.generation, second.generation) == (1, 2)
    hand.plan(first)
    assert hand.of(Start) == []
    assert "plan 1 is refused: it is of an older question" in hand.story()
    hand.plan(second)
    assert [c.stage for c in hand.of(Start)] == ["tokenize"]


def test_without_a_plan_a_request_fails_when_patience_ends() -> None:
    hand = Hand(plan_patience=10.0, heartbeat=100.0)
    hand.register("host.cpu")
    hand.submit()
    assert hand.of(Answer) == []
    hand.tick(9.0)
    assert hand.of(MakePlan) == []
    hand.tick(1.0)
    answer = hand.answer()
    assert (answer["status"], answer["reason"]) == ("failed", "no plan: no worker")


def test_a_worker_that_comes_within_patience_is_used() -> None:
    hand = Hand()
    hand.register("host.cpu")
    hand.submit()
    hand.register("gpu-a.lm")
    assert [c.stage for c in hand.of(Start)] == ["tokenize"]


def test_a_plan_that_can_never_be_is_not_asked_for_again() -> None:
    hand = Hand(plans=False)
    hand.submit()
    hand.give(Planned(hand.now, "r", 1, None, "the request is wrong", final=True))
    assert hand.answer()["reason"] == "no plan: the request is wrong"


def test_a_malformed_plan_is_none() -> None:
    hand = Hand(plans=False)
    hand.submit()
    hand.give(Planned(hand.now, "r", 1, {"stages": {"prefill": {"device": "gpu-a"}}}, ""))
    assert "plan.stages.prefill: a mapping: expected device, variant, time, memory and start" in hand.story()


def test_the_shell_is_woken_for_the_earliest_timer() -> None:
    hand = Hand()
    hand.submit(request=CHAT | {"dag_constraints": {"termination_policy": {"timeout": "7s"}}})
    assert [c.at for c in hand.of(WakeAt)] == [7.0]
    hand.register("host.cpu")
    assert [c.at for c in hand.of(WakeAt)] == [3.0]  # its heartbeats


@pytest.mark.parametrize("graceful", [True, False])
def test_a_time_out_finishes_what_runs_and_cancels_what_waits(graceful: bool) -> None:
    policy = {"timeout": "7s", "graceful_stop": graceful}
    hand = Hand(heartbeat=100.0, slow_floor=100.0)
    hand.workers()
    hand.submit(request=CHAT | {"dag_constraints": {"termination_policy": policy}})
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.tick(7.0)
    assert hand.stage("output").withdrawn
    if graceful:
        assert hand.of(Answer) == []
        hand.finish("decode")
    else:
        assert [c.how for c in hand.of(Stop)] == ["cancel"]
    answer = hand.answer()
    assert (answer["status"], answer["limit"]) == ("partial", "timeout")
    assert answer["reason"] == "7.000 s are over, allowed 7 s"
    assert answer["tokens"] == ([9, 10, 11] if graceful else [9])


def test_what_does_not_finish_within_its_grace_is_stopped() -> None:
    hand = Hand(heartbeat=100.0, slow_floor=100.0, stop_grace=5.0)
    hand.workers()
    hand.submit(request=CHAT | {"dag_constraints": {"termination_policy": {"timeout": "7s"}}})
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    hand.tick(7.0)
    hand.tick(5.0)
    assert [c.how for c in hand.of(Stop)] == ["cancel"]
    assert hand.answer()["tokens"] == [9]


def test_compute_time_is_measured_and_limited() -> None:
    hand = Hand(heartbeat=100.0, slow_floor=100.0)
    hand.workers()
    hand.submit(request=CHAT | {"dag_constraints": {"max_compute_time": "3s"}})
    hand.tick(2.0)  # waiting costs nothing
    hand.accept("tokenize")
    hand.tick(1.0)
    hand.finish("tokenize")
    hand.accept("prefill")
    hand.tick(1.9)
    assert hand.run().ending is None
    hand.tick(0.1)
    hand.finish("prefill")
    answer = hand.answer()
    assert (answer["status"], answer["limit"]) == ("partial", "max_compute_time")
    assert answer["reason"] == "stages ran for 3.000 s, allowed 3 s"
    assert answer["usage"]["compute_time"] == pytest.approx(3.0)


def test_a_decode_gets_no_more_tokens_than_the_budget_has() -> None:
    """The estimate let the request in; its prompt turned out to be longer."""
    hand = Hand()
    hand.workers()
    hand.submit(request=CHAT | {"dag_constraints": {"max_token_budget": 14}})
    hand.accept("tokenize")
    hand.finish("tokenize", tokens=[1] * 9)
    answer = hand.answer()
    assert (answer["status"], answer["limit"]) == ("partial", "max_token_budget")
    assert answer["reason"].startswith("dag_constraints.max_token_budget: the graph needs 17 tokens, allowed 14")


def test_a_prompt_longer_than_the_context_is_told_when_it_is_counted() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    hand.accept("tokenize")
    hand.finish("tokenize", tokens=[1] * 5000)
    answer = hand.answer()
    assert answer["status"] == "failed"
    assert "5000 tokens are more than the context of Llama-2-7B" in answer["reason"]


def test_output_that_fills_the_context_is_a_partial_answer_that_says_so() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    hand.until("tokenize")
    hand.until("prefill")
    hand.accept("decode")
    hand.finish("decode", tokens=[9, 10], text="ij", stop="context")
    answer = hand.answer()
    assert (answer["status"], answer["limit"], answer["tokens"]) == ("partial", None, [9, 10])
    assert answer["reason"] == "stage decode: the context of Llama-2-7B ends after 6 tokens"


def test_the_answer_holds_the_plan_against_what_happened() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    hand.tick(1.0)
    hand.accept("tokenize")
    hand.tick(0.5)
    hand.finish("tokenize")
    hand.until("prefill", "decode", "output")
    stage = hand.answer()["stages"]["tokenize"]
    assert (stage["began"], stage["ended"], stage["ran"], stage["planned"]) == (1.0, 1.5, 0.5, 0.1)
    assert (stage["attempts"], stage["device"], stage["state"]) == (1, "host", "COMPLETED")
    assert hand.answer()["usage"]["tokens"] == 4 + 3
    assert tuple(hand.answer()["usage"]) == USAGE


def test_a_story_tells_what_befell() -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    hand.tick(0.25)
    hand.until("tokenize")
    assert hand.controller.story("r", "tokenize") == [
        "0.000 s: tokenize: READY (all_predecessors_completed)",
        "0.000 s: tokenize: SCHEDULED (scheduler_assigned_device): on host.cpu, device host",
        "0.250 s: tokenize: RUNNING (device_ready_to_execute)",
        "0.250 s: tokenize: COMPLETED (execution_finished_success)",
    ]
    assert "plan 1 is in force" in hand.story()
    with pytest.raises(KeyError):
        hand.controller.story("r", "nothing")


def test_an_agent_s_first_plan_has_places_for_a_round_ahead() -> None:
    hand = Hand()
    hand.workers()
    hand.submit(request=AGENT)
    assert {"tool-1-search", "tool-1-clock", "re_prefill-1", "decode-1"} <= set(hand.run().plan)
    assert "decode-1" not in hand.run().stages


def test_compute_time_of_stages_side_by_side_adds_up() -> None:
    """The timer set for two running tools is early when one of them ends: the limit is reached later."""
    hand = Hand(heartbeat=100.0, slow_floor=100.0)
    hand.workers()
    hand.submit(request=AGENT | {"dag_constraints": {"max_compute_time": "3s"}})
    hand.until("tokenize", "prefill")
    hand.accept("decode")
    calls = [{"name": name, "arguments": {}} for name in ("search", "clock")]
    hand.finish("decode", calls=calls, stop="call")
    hand.accept("tool-1-search")
    hand.accept("tool-1-clock")
    hand.tick(0.5)
    hand.finish("tool-1-search")
    hand.tick(1.0)
    assert hand.run().ending is None
    hand.tick(0.9)
    assert hand.run().ending is None
    hand.tick(0.1)
    hand.finish("tool-1-clock")
    assert hand.answer()["limit"] == "max_compute_time"


def test_a_plan_on_a_device_without_such_workers_is_refused_and_not_asked_for_for_ever() -> None:
    hand = Hand(plans=False, plan_patience=10.0, heartbeat=100.0)
    hand.workers()
    hand.submit()
    (asked,) = hand.of(MakePlan)
    stages = {spec["id"]: {"device": "host", "variant": "v", "time": 0.1, "memory": 1, "start": 0.0}
              for spec in asked.graph["stages"]}  # fmt: skip
    hand.give(Planned(hand.now, "r", 1, {"stages": stages, "transfers": []}, ""))
    assert hand.of(MakePlan) == []
    assert "plan 1 is refused: device host of stage prefill has no worker for it" in hand.story()
    hand.tick(10.0)
    (again,) = hand.of(MakePlan)
    hand.give(Planned(hand.now, "r", again.generation, {"stages": stages, "transfers": []}, ""))
    assert hand.answer()["reason"] == "no plan: device host of stage prefill has no worker for it"


@pytest.mark.parametrize("answered", [False, True])
@pytest.mark.parametrize(
    ("other", "part"),
    [
        ({"request": CHAT | {"output_tokens": 9}}, "with other request"),
        ({"text": "else"}, "with other inputs"),
        ({"priority": 2}, "with other priority"),
        ({"request": CHAT | {"output_tokens": "many"}}, "this one is wrong"),
    ],
)
def test_another_request_under_a_known_id_is_not_taken(answered: bool, other: dict[str, Any], part: str) -> None:
    hand = Hand()
    hand.workers()
    hand.submit()
    if answered:
        hand.until("tokenize", "prefill", "decode", "output")
    before = hand.controller.snapshot()
    hand.submit(**other)
    (said,) = hand.of(Differs)
    assert part in said.reason
    assert not hand.of(Answer)
    assert hand.controller.snapshot() == before
    hand.submit(request={name: CHAT[name] for name in reversed(CHAT)})
    assert not hand.of(Differs)
    assert len(hand.of(Answer)) == answered
