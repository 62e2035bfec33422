"""Wherever a request runs, in one piece or in several, its tokens are those of one uninterrupted run."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from iegopt.errors import InputError
from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.kv.fetch import KvFetcher
from iegopt_runtime.kv.history import Segment
from iegopt_runtime.kv.push import KvSender
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.lm.jobs import Generate, Generated, Stop
from iegopt_runtime.models.cache import cache_dir
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.models.smollm2 import held, smollm2_folder
from tests.runtime.conftest import MB, Client
from tests.runtime.peer import SECRET, Peer, peer

pytestmark = pytest.mark.slow

FREE = Stop(eos=False, calls="never")
CHUNKED = KvTransferConfig(chunk_size=40_000, pipeline_depth=4, overlap_compute=True)


@pytest.fixture(scope="module")
def other(model_cache: Path) -> Iterator[Peer]:
    with peer(model_cache) as started:
        yield started


class Two:
    """A worker here, with a server of its own, one in another process, one that runs everything undisturbed, and a
    third that has never heard of any of it."""

    def __init__(self, make: Callable[..., Client], other: Peer, model: str, room: int) -> None:
        self.model = model
        self.whole = make((room, 0, 0))
        self.here = make((room, room, 0))
        self.third = make((room, 0, 0))
        self.other = other
        self.server = KvServer(self.here.engine.store, SECRET, ["tcp:127.0.0.1:0"], time.monotonic)
        self._count = 0

    def job(self, tokens: Sequence[int], n: int, segments: Sequence[Segment] = (), generated: int = 0) -> Generate:
        self._count += 1
        return Generate(
            f"j{self._count}", self.model, tuple(tokens), "fp32", tuple(segments), generated, n, stop=FREE,
            kv_id=f"kv{self._count}",
        )  # fmt: skip

    def prefilled(self, tokens: Sequence[int], address: str, config: KvTransferConfig = CHUNKED) -> Generated:
        """Prefill here while the KV streams to the other process."""
        sender = KvSender(address, SECRET, config, self.here.engine.store.memory)
        job = self.job(tokens, 1)
        result = self.here.run(Generate(**{**vars(job), "sink": sender}))
        pushed = sender.pushed.result(60)
        assert pushed.tokens == len(tokens)
        return result

    def elsewhere(
        self, tokens: Sequence[int], n: int, segments: Any, generated: int, sources: Sequence[str] = (),
        preempt_at: int | None = None, grade: str = "exact",
    ) -> dict[str, Any]:  # fmt: skip
        """Decode in the other process."""
        job = vars(self.job(tokens, n, segments, generated))
        wanted = ("job_id", "model", "tokens", "variant", "segments", "generated", "max_tokens", "kv_id")
        return self.other.ask(
            job={name: job[name] for name in wanted} | {"grade": grade},
            sources=list(sources),
            config=CHUNKED.model_dump(mode="json"),
            preempt_at=preempt_at,
        )


@pytest.fixture
def two(make_client: Callable[..., Client], other: Peer) -> Iterator[Two]:
    made = Two(make_client, other, "tiny", 100 * MB)
    yield made
    made.server.close()


def prompts(count: int, vocabulary: int, longest: int = 200) -> list[tuple[int, ...]]:
    """Random prompts, a third of which begin with half of the longest or more in common."""
    draw = random.Random(5)
    common = draw.choices(range(vocabulary), k=longest)
    made = []
    for number in range(count):
        tokens = draw.choices(range(vocabulary), k=draw.randint(1, longest))
        made.append(
            tuple([*common[: draw.randint(longest // 2, longest)], *tokens][:longest] if number % 3 == 0 else tokens)
        )
    return made


def test_prefilled_here_and_decoded_in_another_process(two: Two) -> None:
    reused = 0
    for number, tokens in enumerate(prompts(60, 256)):
        expected = two.whole.run(two.job(tokens, 12)).tokens
        first = two.prefilled(tokens, two.other.addresses[number % 2])
        reused += first.reused
        decoded = two.elsewhere([*tokens, *first.tokens], 12, first.segments, 1)
        assert tuple(decoded["tokens"]) == expected
        assert decoded["reused"] == len(tokens)
    assert reused > 600


def test_preempted_moved_back_and_computed_again(two: Two) -> None:
    for number, tokens in enumerate(prompts(21, 256)):
        n = 60
        expected = two.whole.run(two.job(tokens, n)).tokens
        first = two.prefilled(tokens, two.other.addresses[0])
        known = [*tokens, *first.tokens]
        part = two.elsewhere(known, n, first.segments, 1, preempt_at=3 + 2 * number)
        generated = len(part["tokens"])
        assert (part["preempted"], generated) == (True, 4 + 2 * number)
        known = [*tokens, *part["tokens"]]
        assert tuple(part["tokens"]) == expected[:generated]
        segments = tuple((kind, count) for kind, count in part["segments"])
        if number % 3 == 0:  # it goes on where it was preempted
            rest = two.elsewhere(known, n, segments, generated)
            assert (tuple(rest["tokens"]), rest["reused"]) == (expected, len(known) - 1)
        elif number % 3 == 1:  # it moves to the worker here, which asks the other for the KV
            moved = two.here.run(fetching(two, two.job(known, n, segments, generated), two.other.addresses))
            assert (moved.tokens, moved.reused) == (expected, len(known) - 1)
        else:  # all KV is lost, and a third worker makes the same passes again
            again = two.third.run(two.job(known, n, segments, generated))
            assert again.tokens == expected
            assert again.reused <= len(tokens) // 64 * 64


def fetching(two: Two, job: Generate, sources: Sequence[str]) -> Generate:
    """What a worker does before it submits a job whose KV is elsewhere."""
    fetcher = KvFetcher(two.here.engine.store, SECRET, time.monotonic)
    got = fetcher.fetch(two.here.engine.wanted(job), sources, CHUNKED)
    assert got.failures == ()
    return job


def test_rounds_of_an_agent_on_two_workers(two: Two) -> None:
    """Prefill here, decode there, the result of a tool appended, and the increment prefilled here again."""
    for number, tokens in enumerate(prompts(6, 256)):
        result = prompts(6, 256, 50)[number]
        one = two.whole.run(two.job(tokens, 10))
        expected = two.whole.run(two.job([*tokens, *one.tokens, *result], 10, one.segments)).tokens
        first = two.prefilled(tokens, two.other.addresses[0])
        decoded = two.elsewhere([*tokens, *first.tokens], 10, first.segments, 1)
        assert tuple(decoded["tokens"]) == one.tokens
        segments = tuple((kind, count) for kind, count in decoded["segments"])
        known = [*tokens, *decoded["tokens"], *result]
        second = two.here.run(fetching(two, two.job(known, 10, segments), two.other.addresses))
        assert second.tokens == expected
        assert second.computed == len(result) + 1


def test_lossy_kv_is_used_and_kept_apart(two: Two) -> None:
    tokens = tuple(range(150))
    first = two.prefilled(tokens, two.other.addresses[1], CHUNKED.model_copy(update={"compression": "int8"}))
    exact = two.elsewhere([*tokens, *first.tokens], 4, first.segments, 1)
    assert exact["reused"] < len(tokens)
    assert tuple(exact["tokens"]) == two.whole.run(two.job(tokens, 4)).tokens
    lossy = two.elsewhere([*tokens, *first.tokens], 4, first.segments, 1, grade="int8")
    assert lossy["reused"] == len(tokens)


def test_smollm2_prefilled_here_and_decoded_in_another_process(make_client: Callable[..., Client]) -> None:
    if not held():
        try:
            smollm2_folder()
        except InputError as error:
            pytest.skip(str(error))
    with peer(cache_dir()) as other:
        two = Two(lambda room: make_client(room, registry=Registry.of()), other, "SmolLM2-135M", 60 * MB)
        for number, tokens in enumerate(prompts(3, 49152, 70)):
            expected = two.whole.run(two.job(tokens, 6)).tokens
            first = two.prefilled(tokens, other.addresses[number % 2])
            decoded = two.elsewhere([*tokens, *first.tokens], 6, first.segments, 1)
            assert tuple(decoded["tokens"]) == expected
            assert decoded["reused"] == len(tokens)
        two.server.close()
