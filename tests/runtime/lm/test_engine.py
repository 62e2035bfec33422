"""What an engine does with jobs: reuse, preemption, limits, refusals, several at once."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM

from iegopt_runtime.errors import RuntimeFault
from iegopt_runtime.kv.history import length
from iegopt_runtime.kv.tiers import Tier
from iegopt_runtime.lm.jobs import Embed, Failed, Generate, Preempted, Rerank, Started, Stop, Streamed, Vectors, Waiting
from iegopt_runtime.lm.sampling import Sampling
from iegopt_runtime.lm.sequence import Sequence
from iegopt_runtime.models.registry import Registry
from tests.runtime.conftest import MB, Client

FREE = Stop(eos=False, calls="never")


def prompt(length: int, seed: int = 0) -> tuple[int, ...]:
    return tuple(random.Random(seed).choices(range(256), k=length))


def job(name: str, tokens: tuple[int, ...], n: int = 8, **options: object) -> Generate:
    return replace(Generate(name, "tiny", tokens, "fp32", max_tokens=n, stop=FREE), **options)  # type: ignore[arg-type]


def test_output_is_that_of_transformers(client: Client, registry: Registry) -> None:
    tokens = prompt(50)
    model = AutoModelForCausalLM.from_pretrained(registry.find("tiny").folder(), dtype=torch.float32)
    ids = torch.tensor([tokens])
    mask = torch.ones_like(ids)
    expected = model.generate(
        ids, attention_mask=mask, max_new_tokens=12, do_sample=False, eos_token_id=None, pad_token_id=256
    )  # fmt: skip
    assert client.run(job("a", tokens, 12)).tokens == tuple(expected[0, 50:].tolist())


def test_prefixes_are_reused_in_whole_blocks(client: Client) -> None:
    tokens = prompt(200)
    first = client.run(job("a", tokens))
    assert (first.reused, first.computed) == (0, 200)
    again = client.run(job("b", tokens))
    assert (again.reused, again.computed) == (192, 8)
    other = client.run(job("c", (*tokens[:100], *prompt(100, seed=1))))
    assert (other.reused, other.computed) == (64, 136)
    assert again.tokens == first.tokens
    # Held whole, the last pass is made again for its logits.
    assert client.run(job("d", tokens[:128])).reused == 64


def test_a_decode_goes_on_from_its_prefill(client: Client) -> None:
    tokens = prompt(130)
    whole = client.run(job("w", tokens, 10))
    prefill = client.run(job("p", tokens, 1, kv_id="r/p"))
    assert prefill.segments == (("prefill", 130),)
    assert prefill.manifest is not None
    assert prefill.manifest.tokens == 130
    decode = client.run(
        job("d", tokens + prefill.tokens, 10, segments=prefill.segments, generated=1, kv_id="r/d")
    )  # fmt: skip
    assert decode.tokens == whole.tokens
    assert (decode.reused, decode.computed) == (130, 1)
    assert decode.segments == whole.segments == (("prefill", 130), ("decode", 9))


def test_rounds_prefill_only_what_is_new(client: Client) -> None:
    tokens = prompt(100)
    first = client.run(job("1", tokens, 20, kv_id="r"))
    known = tokens + first.tokens + prompt(30, seed=2)
    second = client.run(job("2", known, 5, segments=first.segments, kv_id="r"))
    assert (second.reused, second.computed) == (119, 31)
    assert second.segments == (("prefill", 100), ("decode", 19), ("prefill", 31), ("decode", 4))
    alone = client.run(job("3", known, 5, segments=first.segments))
    assert alone.tokens == second.tokens


def test_kv_that_ends_inside_a_block_is_reused_by_a_history_that_goes_on(client: Client) -> None:
    tokens = prompt(100)
    prefill = client.run(job("p", tokens, 1, kv_id="r/p"))
    known, covered = tokens + prefill.tokens, (("prefill", 100), ("decode", 1))
    decode = client.run(job("d", known, 20, segments=covered, generated=1, kv_id="r/d"))
    assert (decode.reused, decode.computed) == (100, 1)
    longer, covered = tokens + decode.tokens + prompt(30, seed=2), (("prefill", 100), ("decode", 20))
    again = client.run(job("a", longer, 5, segments=covered, kv_id="r/a"))
    assert (again.reused, again.computed) == (119, 31)


def test_preempted_between_tokens_it_goes_on_elsewhere(make_client: Callable[..., Client]) -> None:
    here, there = make_client(), make_client()
    whole = there.run(job("w", prompt(80), 60))
    here.submit(job("a", prompt(80), 60, kv_id="r"))
    here.until(lambda e: isinstance(e, Streamed) and e.offset == 9)
    here.engine.stop("a", "preempt")
    event = here.end("a")
    assert isinstance(event, Preempted)
    part = event.result
    assert 10 <= len(part.tokens) < 60
    assert part.tokens == whole.tokens[: len(part.tokens)]
    assert part.manifest is not None
    assert part.manifest.tokens == length(part.segments) == 80 + len(part.tokens) - 1
    assert all(here.engine.store.tiers(block) == {Tier.L1} for block in part.manifest.blocks)
    resume = job("b", prompt(80) + part.tokens, 60, segments=part.segments, generated=len(part.tokens))
    back = here.run(resume)
    assert back.tokens == whole.tokens
    assert back.reused == part.manifest.tokens
    # Without the KV the same passes are made again.
    moved = there.run(resume)
    assert moved.tokens == whole.tokens


def test_preempted_in_the_middle_of_a_prefill(client: Client) -> None:
    tokens = prompt(2000)
    client.submit(job("a", tokens, 4, kv_id="r"))
    client.until(lambda e: isinstance(e, Started))
    client.engine.stop("a", "preempt")
    event = client.end("a")
    assert isinstance(event, Preempted)
    done = length(event.result.segments)
    assert done < 2000
    assert done % 64 == 0
    assert event.result.tokens == ()
    on = client.run(job("b", tokens, 4, segments=event.result.segments))
    assert (on.reused, on.computed) == (done, 2000 - done)
    assert on.tokens == client.run(job("c", tokens, 4)).tokens


def test_lost_kv_can_be_computed_in_chunks_throughout(make_client: Callable[..., Client]) -> None:
    tokens, segments = prompt(150), (("prefill", 100), ("decode", 49))
    exact = make_client().run(job("a", tokens, 51, segments=segments, generated=50))
    fast = make_client().run(job("a", tokens, 51, segments=segments, generated=50, recompute="fast"))
    assert exact.segments == (("prefill", 100), ("decode", 50))
    assert fast.segments == (("prefill", 150),)


def test_several_run_token_by_token_and_no_more_than_the_batch(make_client: Callable[..., Client]) -> None:
    client = make_client(max_batch=2)
    alone = {name: make_client().run(job(name, prompt(40, seed), 30)).tokens for seed, name in enumerate("abc")}
    for seed, name in enumerate("abc"):
        client.submit(job(name, prompt(40, seed), 30))
    results = {}
    for _ in "abc":
        event = client.end()
        results[event.job_id] = event.result.tokens  # type: ignore[union-attr]
    assert results == alone
    order = [e.job_id for e in client.events if isinstance(e, Streamed)]
    together = order[: order.index("c")]
    assert together.count("a") > 25
    assert abs(together.count("a") - together.count("b")) <= 2
    starts = [e.job_id for e in client.events if isinstance(e, Started)]
    assert starts == ["a", "b", "c"]


def test_what_is_streamed_is_what_is_made(client: Client) -> None:
    result = client.run(job("a", prompt(20), 40))
    streamed = [e for e in client.events if isinstance(e, Streamed)]
    assert [e.offset for e in streamed] == list(range(40))
    assert sum((e.tokens for e in streamed), ()) == result.tokens
    assert "".join(e.text for e in streamed) == result.text


def test_a_draw_belongs_to_its_position(make_client: Callable[..., Client]) -> None:
    sampling = Sampling(temperature=1.0, top_k=50, top_p=0.95, seed=7)
    client = make_client()
    whole = client.run(job("a", prompt(30), 20, sampling=sampling))
    part = client.run(job("b", prompt(30), 9, sampling=sampling))
    rest = make_client().run(
        job("c", prompt(30) + part.tokens, 20, sampling=sampling, segments=part.segments, generated=9)
    )  # fmt: skip
    assert rest.tokens == whole.tokens
    assert whole.tokens != client.run(job("d", prompt(30), 20, sampling=replace(sampling, seed=8))).tokens


def test_a_script_forces_tokens_and_scoring_says_what_was_likeliest(client: Client) -> None:
    free = client.run(job("a", prompt(30), 10))
    forced = client.run(job("b", prompt(30), 10, script=(*free.tokens[:4], 65, 66), score=True))
    assert forced.tokens[:6] == (*free.tokens[:4], 65, 66)
    assert forced.predicted[:5] == free.tokens[:5]
    assert len(forced.predicted) == 10


def scripted(text: str, **options: object) -> Generate:
    return job("s", prompt(10), len(text) + 5, script=tuple(text.encode()), stop=Stop(), **options)


def test_it_stops_at_a_complete_tool_call(client: Client) -> None:
    text = 'Let me see. <tool_call>\n{"name": "find", "arguments": {"q": "x"}}\n</tool_call>'
    result = client.run(scripted(text))
    assert (result.stop, result.text) == ("call", "Let me see. ")
    assert [(call.name, call.arguments) for call in result.calls] == [("find", {"q": "x"})]
    assert bytes(result.tokens).decode() == text
    assert "tool_call" not in "".join(e.text for e in client.events if isinstance(e, Streamed))


def test_it_stops_at_a_string_and_at_the_end_token(client: Client) -> None:
    result = client.run(replace(scripted("one two three"), stop=Stop(strings=("two",))))
    assert (result.stop, result.text) == ("string", "one ")
    assert bytes(result.tokens) == b"one two"
    ended = client.run(job("e", prompt(10), 9, script=(*b"yes", 259), stop=Stop()))
    assert (ended.stop, ended.text, ended.tokens) == ("eos", "yes", (*b"yes", 259))


def test_a_decode_whose_first_token_ends_it_computes_nothing(client: Client) -> None:
    result = client.run(job("a", (*prompt(10), 259), 5, generated=1, segments=(("prefill", 10),), stop=Stop()))
    assert (result.tokens, result.stop, result.computed) == ((259,), "eos", 0)


def test_no_output_is_a_prefill_alone(client: Client) -> None:
    result = client.run(job("a", prompt(70), 0, kv_id="r"))
    assert (result.tokens, result.computed, result.stop) == ((), 70, "length")
    assert client.run(job("b", prompt(70), 0)).reused == 70


def test_output_ends_with_the_context(client: Client) -> None:
    result = client.run(job("a", prompt(4090), 50))
    assert result.stop == "context"
    assert 4090 + len(result.tokens) == 4097


@pytest.mark.parametrize(("wanted", "stop"), [(1, "length"), (50, "context")])
def test_output_that_goes_on_where_the_context_has_ended_is_over(client: Client, wanted: int, stop: str) -> None:
    """A decode after a prompt that fills the context begins with the token that the prefill chose."""
    first = client.run(job("a", prompt(4096), 1))
    result = client.run(replace(job("b", (*prompt(4096), *first.tokens), wanted), generated=1))
    assert (result.tokens, result.stop, result.computed) == (first.tokens, stop, 0)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"tokens": ()}, "no tokens"),
        ({"tokens": (1, 999)}, "token 999: tiny has tokens 0 to 259"),
        ({"tokens": (1,) * 5000}, "5000 tokens: the context of tiny holds 4096"),
        ({"model": "none"}, "no artifact is known"),
        ({"variant": "fp8"}, "torch workers compute in"),
        ({"segments": (("prefill", 9),)}, "segments of 9 tokens"),
        ({"generated": 2, "max_tokens": 1}, "2 generated tokens, expected at most 1"),
    ],
)
def test_what_cannot_be_done_is_refused_alone(client: Client, change: dict[str, object], said: str) -> None:
    client.submit(job("good", prompt(20), 30))
    client.submit(replace(job("bad", (1, 2)), **change))  # type: ignore[arg-type]
    events = {event.job_id: event for event in (client.end(), client.end())}
    bad = events["bad"]
    assert isinstance(bad, Failed)
    assert bad.cause == "refused"
    assert said in bad.message
    assert len(events["good"].result.tokens) == 30  # type: ignore[union-attr]
    assert client.engine.store.use().reserved == 0


def test_memory_is_reserved_and_waited_for(make_client: Callable[..., Client]) -> None:
    one = 128 * 2 * 2 * 2 * 16 * 4
    client = make_client((one, 8 * MB, 0))
    assert client.engine.kv_bytes("tiny", None, 128) == one
    client.engine.reserve("later", one)
    client.submit(job("a", prompt(100), 20))
    assert client.until(lambda e: isinstance(e, Waiting) and e.resource == "kv").job_id == "a"
    client.engine.reserve("later", 0)
    client.end("a")
    assert client.engine.load().kv.reserved == 0
    client.engine.reserve("b", one)
    assert client.run(job("b1", prompt(100, 1), 20, reservation="b")).computed == 100
    client.submit(job("c", prompt(100), 200))
    event = client.end("c")
    assert isinstance(event, Failed)
    assert event.cause == "no_room"


def test_what_is_reserved_is_what_the_sequence_takes(client: Client) -> None:
    engine = client.engine
    for tokens, output in ((100, 400), (64, 1), (65, 64)):
        client.submit(job("a", prompt(tokens), output + 1500, kv_id="r"))
        client.until(lambda e: isinstance(e, Streamed))
        sequence, _ = engine._active["a"]
        assert isinstance(sequence, Sequence)
        use = engine.load().kv
        assert use.reserved == sequence._kv.bytes == engine.kv_bytes("tiny", "fp32", tokens + output + 1499)
        assert use.free == 8 * MB - use.reserved - use.blocks[Tier.L0]
        engine.stop("a")
        client.end("a")
        assert engine.load().kv.reserved == 0


def test_cancelled_it_leaves_nothing(client: Client) -> None:
    client.submit(job("a", prompt(50), 3000, kv_id="r"))
    client.until(lambda e: isinstance(e, Streamed))
    client.engine.stop("a")
    event = client.end("a")
    assert isinstance(event, Failed)
    assert event.cause == "cancelled"
    load = client.engine.load()
    assert (load.active, load.waiting, load.kv.reserved) == (0, 0, 0)
    assert client.engine.store.held() == ()


def test_the_least_used_model_makes_room_but_never_one_in_use(make_client: Callable[..., Client]) -> None:
    client = make_client(weights=1_000_000)  # fp32 takes some 430 kB, bf16 half of it
    client.run(job("a", prompt(10), 2))
    client.run(job("b", prompt(10), 2, variant="bf16"))
    client.run(job("c", prompt(10), 2))
    client.run(job("d", prompt(10), 2, variant="fp16"))
    resident = client.engine.load().resident
    names = {r.variant for r in resident}
    assert {"fp32", "fp16"} <= names
    assert client.engine.host.used() <= 1_000_000
    assert not any(r.in_use for r in resident)
    times = client.engine.host.load_times()
    assert set(times) == {"tiny/fp32", "tiny/bf16", "tiny/fp16"}  # one that has left, too
    assert min(times.values()) > 0
    small = make_client(weights=500_000)
    small.submit(job("x", prompt(10), 400))
    small.until(lambda e: isinstance(e, Streamed))
    small.submit(job("y", prompt(10), 2, variant="bf16"))
    assert small.until(lambda e: isinstance(e, Waiting) and e.resource == "weights").job_id == "y"
    assert len(small.end("x").result.tokens) == 400  # type: ignore[union-attr]
    small.end("y")
    assert {r.variant for r in small.engine.load().resident} == {"bf16"}


def test_copies_for_recovery_are_there_while_it_still_runs(make_client: Callable[..., Client]) -> None:
    client = make_client((8 * MB, 8 * MB, 8 * MB))
    client.submit(job("a", prompt(130), 2000, copy=Tier.L2))
    client.until(lambda e: isinstance(e, Streamed))
    plain = job("b", prompt(130), 1)
    wanted = client.engine.wanted(plain).blocks
    assert [block.end for block in wanted] == [64, 128]
    assert [client.engine.store.tiers(block) for block in wanted] == [{Tier.L2}, {Tier.L2}]
    client.engine.stop("a")
    client.end("a")


def test_a_copy_in_host_memory_spares_another_try_what_was_computed(make_client: Callable[..., Client]) -> None:
    """A decode that ends with an error keeps nothing but what was copied."""
    for copy, reused in ((None, 0), (Tier.L1, 192)):
        client = make_client((8 * MB, 8 * MB, 0))
        client.submit(job("a", prompt(130), 200, copy=copy))
        client.until(lambda e: isinstance(e, Streamed) and e.offset == 70)
        client.engine.stop("a")
        assert isinstance(client.end("a"), Failed)
        tokens = tuple(t for e in client.events if isinstance(e, Streamed) for t in e.tokens)[:70]
        again = job("b", prompt(130) + tokens, 80, segments=(("prefill", 130), ("decode", 69)), generated=70)
        assert client.run(again).reused == reused


def test_embeddings_are_means_and_scores_follow_the_query(client: Client) -> None:
    client.submit(Embed("e", "tiny", ("hello", "hello", "other text"), "fp32"))
    event = client.end("e")
    assert isinstance(event, Vectors)
    assert event.tokens == 20
    assert [len(row) for row in event.rows] == [64, 64, 64]
    assert event.rows[0] == event.rows[1] != event.rows[2]
    client.submit(Rerank("r", "tiny", "abc", ("first", "second"), "fp32"))
    scores = client.end("r")
    assert isinstance(scores, Vectors)
    assert all(len(row) == 1 and row[0] < 0 for row in scores.rows)
    client.submit(Embed("x", "tiny", ("",), "fp32"))
    failed = client.end("x")
    assert isinstance(failed, Failed)
    assert failed.cause == "refused"


def test_a_job_twice_is_refused(client: Client) -> None:
    client.submit(job("a", prompt(10), 500))
    client.submit(job("a", prompt(10), 5))
    event = client.end("a")
    assert isinstance(event, Failed)
    assert "already here" in event.message
    assert len(client.end("a").result.tokens) == 500  # type: ignore[union-attr]


def test_an_engine_that_ends_says_so_to_everyone(client: Client) -> None:
    client.submit(job("a", prompt(10), 3000))
    client.until(lambda e: isinstance(e, Streamed))
    client.engine.close()
    event = client.end("a")
    assert isinstance(event, Failed)
    assert event.cause == "cancelled"
    with pytest.raises(RuntimeFault, match="has ended"):
        client.submit(job("b", prompt(10)))


def test_memory_that_is_short_is_told_as_such(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def short(*shape: object, **options: object) -> torch.Tensor:
        raise RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes")

    with monkeypatch.context() as patched:
        patched.setattr(torch, "empty", short)
        client.submit(job("short", prompt(20)))
        event = client.end("short")
    assert isinstance(event, Failed)
    assert event.cause == "oom"
    assert len(client.run(job("again", prompt(20))).tokens) == 8


def test_an_engine_that_an_error_ends_says_so_and_its_jobs_fail(
    make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    crashed: list[bool] = []
    client = make_client(on_crash=lambda: crashed.append(True))

    def broken(*_: object) -> None:
        raise KeyError("a block")

    monkeypatch.setattr(client.engine._waiting, "admit", broken)
    client.submit(job("lost", prompt(20)))
    event = client.end("lost")
    assert isinstance(event, Failed)
    assert event.cause == "cancelled"
    assert crashed == [True]
    assert "KeyError: 'a block'" in capsys.readouterr().err
