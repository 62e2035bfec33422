"""The lm role of a worker: what the controller is told while a stage waits, and what is held of whom."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from iegopt_runtime.kv.fetch import KvFetcher
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.models.registry import Registry
from iegopt_runtime.workers.executor import StagePreempted
from iegopt_runtime.workers.lm import LmExecutor
from iegopt_runtime.workers.lm_kv import KvTraffic
from iegopt_runtime.workers.texts import Texts
from tests.runtime.conftest import MB, Client

SECRET = b"s" * 16


class Attempt:
    """Records what is said of it."""

    def __init__(self, request_id: str, stage: str = "decode") -> None:
        self.request_id, self.stage, self.number = request_id, stage, 1
        self.stop_wanted, self.said = asyncio.Event(), list[str]()
        self.streams = asyncio.Event()

    def progress(self, offset: int, tokens: list[int], text: str) -> None:
        self.streams.set()

    def waiting(self, resource: str) -> None:
        self.said.append(resource)

    def resumed(self) -> None:
        self.said.append("resumed")


@contextmanager
def executor_of(client: Client, registry: Registry, folder: Path, files: Path | None = None) -> Iterator[LmExecutor]:
    store = client.engine.store
    server = KvServer(store, SECRET, [f"unix:{folder}/kv"], time.monotonic)
    traffic = KvTraffic(client.engine, server, KvFetcher(store, SECRET, time.monotonic), SECRET, files)
    try:
        yield LmExecutor(traffic, Texts(registry))
    finally:
        server.close()


def decode(name: str, output: int) -> dict[str, Any]:
    tokens = list(range(40))
    return {
        "model": "tiny", "variant": "tiny/fp32", "tokens": tokens, "segments": [["prefill", len(tokens)]],
        "generated": 0, "max_tokens": output, "script": list(range(100, 140)) * 100,
        "kv": {"id": name, "from": None, "tokens": 0, "sources": [], "transfer": {}, "patience": 5.0},
    }  # fmt: skip


def test_a_stage_without_memory_says_so_and_runs_when_another_gives_way(
    make_client: Callable[..., Client], registry: Registry, tmp_path: Path
) -> None:
    client = make_client(budgets=(MB, 8 * MB, 0))

    async def both(executor: LmExecutor) -> tuple[list[str], dict[str, Any]]:
        first, second = Attempt("a"), Attempt("b")
        long = asyncio.create_task(executor.run("decode", decode("a/decode", 1850), first))
        await first.streams.wait()
        short = asyncio.create_task(executor.run("decode", decode("b/decode", 4), second))
        while not second.said:
            await asyncio.sleep(0.01)
        first.stop_wanted.set()
        with pytest.raises(StagePreempted):
            await long
        return second.said, await short

    with executor_of(client, registry, tmp_path) as executor:
        said, result = asyncio.run(both(executor))
    assert said == ["memory", "resumed"]
    assert len(result["tokens"]) == 4


def test_requests_whose_names_begin_alike_are_forgotten_one_by_one(
    client: Client, registry: Registry, tmp_path: Path
) -> None:
    async def run(executor: LmExecutor) -> None:
        for request, stage in (("a", "decode"), ("a/1", "decode")):
            await executor.run("decode", decode(f"{request}/{stage}", 2), Attempt(request, stage))
        executor.reserve("a/1", "de/code", 1000)

    with executor_of(client, registry, tmp_path) as executor:
        asyncio.run(run(executor))
        assert executor.holds() == {"a", "a/1"}
        assert executor.kv() == {"a/decode", "a/1/decode", "a/1/de%2Fcode"}
        executor.forget("a")
        assert executor.holds() == {"a/1"}
        assert client.engine.store.held() == ("a/1/decode",)
        executor.forget("a/1")
        assert executor.holds() == set()
        assert client.engine.store.use().reserved == 0


def test_it_closes_while_every_thread_of_the_loop_waits(
    make_client: Callable[..., Client], registry: Registry, tmp_path: Path
) -> None:
    over = threading.Event()

    async def closed(executor: LmExecutor) -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        waiting = loop.run_in_executor(None, over.wait)
        try:
            async with asyncio.timeout(10):
                await executor.close()
        finally:
            over.set()
            await waiting

    with executor_of(make_client(), registry, tmp_path) as executor:
        asyncio.run(closed(executor))


def kept(kind: str, source: str, addresses: list[dict[str, str]], keep_copy: str | None) -> dict[str, Any]:
    """Work of a stage that holds the KV of another, which wrote it in a prefill of 40 tokens."""
    sources = [{"tokens": 40, "addresses": found} for found in addresses]
    kv = {"id": f"r/{kind}", "from": source, "tokens": 40, "sources": sources, "transfer": {}, "patience": 5.0}
    return {
        "model": "tiny", "variant": "tiny/fp32", "tokens": list(range(40)), "segments": [["prefill", 40]], "kv": kv,
        "tier": {"kv_store": "L1"}.get(kind, "L0"), "keep_copy": keep_copy,
    }  # fmt: skip


def test_kv_that_was_put_aside_outlives_its_worker_in_files(
    make_client: Callable[..., Client], registry: Registry, tmp_path: Path
) -> None:
    """What lies in memory goes with the process; the file is no server that could be asked for it by name."""
    gone, here = make_client((8 * MB, 8 * MB, 8 * MB)), make_client((8 * MB, 8 * MB, 0))
    folder = tmp_path / "kv0"
    with executor_of(gone, registry, tmp_path, folder) as executor:
        asyncio.run(executor.run("decode", decode("r/prefill", 1), Attempt("r", "prefill")))
        stored = asyncio.run(
            executor.run("kv_store", kept("kv_store", "r/prefill", [], "L2"), Attempt("r", "kv_store"))
        )
        assert stored["kv"]["copies"] == [{"tier": "L2", "addresses": {"file": f"file:{folder}"}}]
        executor.release("r/prefill")
    (tmp_path / "other").mkdir()
    with executor_of(here, registry, tmp_path / "other") as executor:
        work = kept("kv_load", "r/kv_store", [copy["addresses"] for copy in stored["kv"]["copies"]], None)
        loaded = asyncio.run(executor.run("kv_load", work, Attempt("r", "kv_load")))
        assert (loaded["kv"]["tokens"], loaded["kv"]["moved"]) == (40, 40 * 512)
        assert executor.kv() == {"r/kv_load"}
