"""What a worker asks others for before a stage: KV that they were heard to have, and what their files have beyond."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iegopt_runtime.kv.fetch import KvFetcher
from iegopt_runtime.kv.pieces import PieceSender
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.kv.tiers import Tier
from iegopt_runtime.lm.jobs import Generate, Stop
from iegopt_runtime.workers.lm_kv import KvTraffic
from tests.runtime.conftest import MB, Client

SECRET = b"s" * 16
PROMPT = tuple(range(100))


class Attempt:
    """Records what is said of waiting."""

    request_id, stage, number = "r", "decode", 1

    def __init__(self) -> None:
        self.stop_wanted, self.said = asyncio.Event(), list[str]()

    def progress(self, offset: int, tokens: list[int], text: str) -> None:
        raise AssertionError

    def waiting(self, resource: str) -> None:
        self.said.append(resource)

    def resumed(self) -> None:
        self.said.append("on")


def job(tokens: tuple[int, ...], output: int, **more: object) -> Generate:
    return Generate("j", "tiny", tokens, "fp32", max_tokens=output, stop=Stop(eos=False), **more)  # type: ignore[arg-type]


@pytest.fixture
def here(make_client: Callable[..., Client]) -> Iterator[KvTraffic]:
    engine = make_client().engine
    server = KvServer(engine.store, SECRET, ["tcp:127.0.0.1:0"], lambda: 0.0)
    yield KvTraffic(engine, server, KvFetcher(engine.store, SECRET, lambda: 0.0), SECRET, None)
    server.close()


def fetched(
    here: KvTraffic, known: Generate, address: str, tokens: int, **transfer: object
) -> tuple[int, int, list[str]]:
    """Bytes of KV that came in, tokens of it that the job then finds, and what was said meanwhile."""
    source = {"tokens": tokens, "addresses": {address.partition(":")[0]: address}}
    attempt = Attempt()
    work = {"kv": {"sources": [source], "transfer": transfer, "patience": 20.0}}
    job, received = asyncio.run(here.fetched(work, attempt, known))
    return received, Client(here.engine).run(job).reused, attempt.said


def test_kv_that_ends_inside_a_block_is_fetched(here: KvTraffic, make_client: Callable[..., Client]) -> None:
    there = make_client()
    first = there.run(job(PROMPT, 1, kv_id="r/p"))
    server = KvServer(there.engine.store, SECRET, ["tcp:127.0.0.1:0"], lambda: 0.0)
    known = job(PROMPT + first.tokens, 8, segments=(("prefill", 100), ("decode", 1)), generated=1)
    received, reused, said = fetched(here, known, server.addresses[0], 100)
    assert (received, reused, said) == (100 * 512, 100, ["kv", "on"])
    assert fetched(here, known, server.addresses[0], 100) == (0, 100, [])
    server.close()


@pytest.mark.parametrize(("emitted", "reach"), [(60, 128), (20, 100)])
def test_files_of_a_worker_that_is_gone_may_reach_further_than_it_said(
    here: KvTraffic, make_client: Callable[..., Client], tmp_path: Path, emitted: int, reach: int
) -> None:
    there = make_client((8 * MB, 8 * MB, 8 * MB))
    first = there.run(job(PROMPT, 1, kv_id="r/p", copy=Tier.L2))
    began = job(PROMPT + first.tokens, 90, segments=(("prefill", 100),), generated=1, copy=Tier.L2)
    written = there.run(began).tokens[:emitted]
    known = job(PROMPT + written, 90, segments=(("prefill", 100), ("decode", emitted)), generated=emitted)
    received, reused, _ = fetched(here, known, f"file:{tmp_path}/kv1", 100)
    assert (received, reused) == (reach * 512, reach)


def test_kv_is_compressed_on_its_way_where_the_transfer_says_so(
    here: KvTraffic, make_client: Callable[..., Client], monkeypatch: pytest.MonkeyPatch
) -> None:
    there, sent = make_client(), list[int]()
    close = PieceSender.end
    monkeypatch.setattr(PieceSender, "end", lambda self, manifest: (sent.append(self.sent), close(self, manifest))[1])
    first = there.run(job(PROMPT, 1, kv_id="r/p"))
    server = KvServer(there.engine.store, SECRET, ["tcp:127.0.0.1:0"], lambda: 0.0)
    known = job(PROMPT + first.tokens, 8, segments=(("prefill", 100), ("decode", 1)), generated=1)
    received, reused, _ = fetched(here, known, server.addresses[0], 100, compression="int8")
    assert (received, reused) == (100 * 512, 100)
    assert sent[0] < 0.35 * 100 * 512  # a byte for a number of four, and the scales
    assert here.engine.wanted(known, 100).blocks
    assert here.engine.store.match(here.engine.wanted(known, 100).blocks) == 0  # it stands in for nothing exact
    exact = fetched(here, known, server.addresses[0], 100)
    assert (exact[:2], sent[1:]) == ((100 * 512, 100), [100 * 512])
    server.close()
