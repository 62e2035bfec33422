"""Jobs stopped and refused at random, with too little memory: right results, and nothing kept at the end."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import pytest

from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.errors import NoRoom
from iegopt_runtime.kv.fetch import KvFetcher
from iegopt_runtime.kv.push import KvSender
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.kv.tiers import Tier
from iegopt_runtime.lm.jobs import Done, Failed, Generate, Preempted, Stop
from tests.runtime.conftest import Client

pytestmark = pytest.mark.slow

FREE = Stop(eos=False, calls="never")
SECRET = b"stress"
CONFIG = KvTransferConfig(chunk_size=5000, pipeline_depth=2, overlap_compute=True)


@pytest.mark.parametrize("seed", range(3))
def test_random_use_of_two_engines(make_client: Callable[..., Client], seed: int) -> None:
    draw = random.Random(seed)
    room = 600_000
    here, there, calm = make_client((room, room // 2, room)), make_client((room, room // 2, 0)), make_client()
    server = KvServer(there.engine.store, SECRET, [f"unix:@stress-{time.monotonic_ns()}"], time.monotonic)
    fetcher = KvFetcher(here.engine.store, SECRET, time.monotonic)
    prompts = [tuple(draw.choices(range(256), k=draw.randint(1, 150))) for _ in range(8)]
    expected = {p: calm.run(Generate(f"e{i}", "tiny", p, "fp32", max_tokens=20, stop=FREE)).tokens
                for i, p in enumerate(prompts)}  # fmt: skip
    senders: list[KvSender] = []
    jobs: dict[str, Generate] = {}
    for number in range(40):
        prompt = draw.choice(prompts)
        sink = None
        if draw.random() < 0.5:
            sink = KvSender(server.addresses[0], SECRET, CONFIG, here.engine.store.memory, timeout=20.0)
            senders.append(sink)
        job = Generate(
            f"j{number}", "tiny", prompt, "fp32", max_tokens=20, stop=FREE, sink=sink,
            kv_id=draw.choice((None, f"kv{number % 5}")), copy=draw.choice((None, Tier.L1, Tier.L2)),
        )  # fmt: skip
        jobs[job.job_id] = job
        here.submit(job)
        if draw.random() < 0.3:
            here.engine.stop(f"j{draw.randint(0, number)}", draw.choice(("cancel", "preempt")))
        if draw.random() < 0.3:
            fetcher.fetch(here.engine.wanted(job), server.addresses, CONFIG)
            here.engine.store.forget(job.job_id)
        if draw.random() < 0.2:
            try:
                here.engine.reserve("later", draw.choice((0, 100_000)))
            except NoRoom:
                here.engine.reserve("later", 0)
        if draw.random() < 0.2:
            here.engine.store.forget(f"kv{draw.randint(0, 4)}")
        time.sleep(draw.choice((0, 0, 0.01)))
    here.engine.reserve("later", 0)
    ended = set()
    while len(ended) < len(jobs):
        event = here.end()
        ended.add(event.job_id)
        want = expected[jobs[event.job_id].tokens]
        if isinstance(event, Done):
            assert event.result.tokens == want
        elif isinstance(event, Preempted):
            assert event.result.tokens == want[: len(event.result.tokens)]
        else:
            assert isinstance(event, Failed)
            assert event.cause == "cancelled"
    for sender in senders:
        assert isinstance(sender.pushed.exception(30), Exception | None)
    for kv_id in here.engine.store.held():
        here.engine.store.forget(kv_id)
    end = time.monotonic() + 20
    while here.engine.load().kv.reserved:
        assert time.monotonic() < end
        time.sleep(0.01)
    load = here.engine.load()
    assert (load.active, load.waiting) == (0, 0)
    assert not any(resident.in_use for resident in load.resident)
    index = here.engine.store._index
    assert [index.references(key) for key in index] == [0] * len(index)
    server.close()


def test_many_transfers_at_once_into_little_room(make_client: Callable[..., Client]) -> None:
    source, target = make_client(), make_client((300_000, 200_000, 0))
    prompts = [tuple(random.Random(i).choices(range(256), k=200)) for i in range(6)]
    for i, prompt in enumerate(prompts):
        source.run(Generate(f"p{i}", "tiny", prompt, "fp32", max_tokens=1, stop=FREE, kv_id=f"kv{i}"))
    server = KvServer(source.engine.store, SECRET, ["tcp:127.0.0.1:0"], time.monotonic)
    fetcher = KvFetcher(target.engine.store, SECRET, time.monotonic)
    failures: list[str] = []

    def fetch(i: int) -> None:
        for _ in range(5):
            got = fetcher.fetch_held(f"kv{i}", server.addresses[0], CONFIG).manifest
            if got.tokens and target.engine.store.match(got.blocks) < len(got.blocks):
                failures.append(f"kv{i}: a block that is held is gone")
            target.engine.store.forget(f"kv{i}")

    threads = [threading.Thread(target=fetch, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    server.close()
    assert failures == []
    assert not any(thread.is_alive() for thread in threads)
    index = target.engine.store._index
    assert [index.references(key) for key in index] == [0] * len(index)
