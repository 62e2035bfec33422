"""The check for GPUs, KV: on its way to the host, to files, to another engine, as int8; and the tokens after it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import torch

from benchmarks.gpu_engines import SECRET, Setup, model_in, prefilled, prompt, run, synchronise
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.explain_error import validate
from iegopt.spec.policy import KvTransferConfig
from iegopt_runtime.deployment import find_worker
from iegopt_runtime.kv.codec import decode, encode, encoded_bytes, measure
from iegopt_runtime.kv.fetch import KvFetcher
from iegopt_runtime.kv.files import BlockFiles
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.push import KvSender
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier, TierPolicy
from iegopt_runtime.lm.engine import LmEngine
from iegopt_runtime.workers.lm_setup import lm_executor


def kv_rates(setup: Setup, memory: DeviceMemory, scratch: Path) -> dict[str, float]:
    """GB/s of KV from the device to the host, to files, and back."""
    kv = torch.randn(setup.kv_bytes // 2, device=memory.device, dtype=torch.float32).to(torch.bfloat16)
    files, key = BlockFiles(scratch / "blocks"), "0" * 32
    host = memory.to_host(kv)

    def rate(act: Callable[[], object]) -> float:
        synchronise(memory)
        began = time.perf_counter()
        act()
        synchronise(memory)
        return kv.nbytes / (time.perf_counter() - began) / 1e9

    return {
        "to_host_gb_per_s": median(rate(lambda: memory.to_host(kv)) for _ in range(setup.repeats)),
        "to_device_gb_per_s": median(rate(lambda: memory.to_device(host)) for _ in range(setup.repeats)),
        "to_files_gb_per_s": rate(lambda: files.write(key, host)),
        "from_files_gb_per_s": rate(lambda: files.read(key)),
    }


def int8(setup: Setup, engine: LmEngine) -> dict[str, float]:
    """Relative error and bytes ratio of int8 on KV that the model made; GB/s of KV from the device into bytes, and from
    bytes to the host."""
    tokens = prompt(setup, setup.block_tokens, 7)
    run(setup, engine, tokens, 1)
    wanted = engine.wanted(prefilled(setup, tokens))
    block = engine.store.read(wanted.blocks[0], time.monotonic())
    error = measure(block, wanted.layout, "int8")
    shape = (block.shape[0], block.shape[3])
    data = memoryview(bytearray(encoded_bytes(wanted.layout, *shape, "int8")))
    back = torch.empty(block.shape, dtype=block.dtype)

    def rate(act: Callable[[], object]) -> float:
        synchronise(engine.store.memory)
        began = time.perf_counter()
        act()  # ends in copies that are waited for
        return float(block.nbytes / (time.perf_counter() - began) / 1e9)

    return {
        "int8_relative_error": error.relative,
        "int8_bytes": error.ratio,
        "int8_encode_gb_per_s": median(rate(lambda: encode(block, "int8", data)) for _ in range(setup.repeats)),
        "int8_decode_gb_per_s": median(
            rate(lambda: decode(data, wanted.layout, *shape, "int8", back)) for _ in range(setup.repeats)
        ),
    }


@contextmanager
def serving(engine: LmEngine) -> Iterator[list[str]]:
    """Its KV, through shared memory and through TCP."""
    addresses = [f"unix:@iegopt-gpu-{time.monotonic_ns()}", "tcp:127.0.0.1:0"]
    server = KvServer(engine.store, SECRET, addresses, time.monotonic)
    try:
        yield server.addresses
    finally:
        server.close()


def transfers(setup: Setup, one: LmEngine, other: LmEngine) -> dict[str, float]:
    """GB/s of KV from engine to engine, by transport, exact and as int8; the KV of the longest prompt."""
    tokens = prompt(setup, max(setup.prompts), 8)
    run(setup, one, tokens, 1, kv_id="transfers")
    wanted, figures = one.wanted(prefilled(setup, tokens)), {}
    with serving(one) as addresses:
        for address in addresses:
            for compression in ("none", "int8"):
                config = KvTransferConfig(chunk_size=8 * 10**6, pipeline_depth=4, compression=compression)
                store = KvStore(other.store.memory, TierPolicy({Tier.L0: 4 * setup.kv_bytes}))
                fetcher = KvFetcher(store, SECRET, time.monotonic)
                began = time.perf_counter()
                got = fetcher.fetch(wanted, [address], config)
                seconds = time.perf_counter() - began
                assert (got.failures, got.manifest.tokens) == ((), len(tokens)), got
                figures[f"{address.partition(':')[0]}_{compression}_gb_per_s"] = wanted.bytes / seconds / 1e9
    one.store.forget("transfers")
    return figures


def identity(setup: Setup, one: LmEngine, other: LmEngine) -> dict[str, Any]:
    """How many prompts decode to the same tokens after their KV has moved, and at which token the others part."""
    config = KvTransferConfig(chunk_size=8 * 10**6, pipeline_depth=4, overlap_compute=True)
    parted: dict[int, int] = {}
    with serving(other) as addresses:
        for number, n in enumerate(setup.prompts):
            tokens = prompt(setup, n, 1000 + number)
            whole = run(setup, one, tokens, setup.steps).tokens
            sender = KvSender(addresses[number % len(addresses)], SECRET, config, one.store.memory)
            first = run(setup, one, tokens, 1, sink=sender)
            assert sender.pushed.result(60).tokens == n
            moved = run(
                setup, other, [*tokens, *first.tokens], setup.steps, segments=first.segments, generated=1
            )  # fmt: skip
            assert moved.reused == n, f"{moved.reused} tokens of KV were used: expected {n}"
            if moved.tokens != whole:
                parted[n] = next(i for i, pair in enumerate(zip(moved.tokens, whole, strict=True)) if len({*pair}) > 1)
    compared = len(setup.prompts)
    return {"identical": compared - len(parted), "compared": compared, "parted": parted}


class Unheard:
    """An attempt that nobody follows (``iegopt_runtime.workers.executor.Attempt``)."""

    request_id, number = "r", 1

    def __init__(self, stage: str) -> None:
        self.stage, self.stop_wanted = stage, asyncio.Event()

    def progress(self, offset: int, tokens: list[int], text: str) -> None:
        return

    def waiting(self, resource: str) -> None:
        return

    def resumed(self) -> None:
        return


def worker(setup: Setup, engine: LmEngine, scratch: Path) -> dict[str, Any]:
    """Whether a worker of a cluster prefills and decodes as one uninterrupted run does, and on what."""
    name = f"checked/{setup.precision}"
    kv = {"device": setup.kv_bytes, "host": setup.kv_bytes, "disk": setup.kv_bytes}
    device = {
        "id": "checked", "model": setup.card.name, "resident": [name],
        "worker": {"roles": ["lm"], "block_tokens": setup.block_tokens, "kv": {k: f"{v}B" for k, v in kv.items()}},
    }  # fmt: skip
    cluster = validate(ClusterSpec, {"name": "check", "devices": [device]}, "cluster")
    cluster = cluster.model_copy(update={"execution_path_registry": (model_in(setup, scratch),)})
    tokens = prompt(setup, max(setup.prompts), 9)
    whole = run(setup, engine, tokens, setup.steps).tokens
    (folder := scratch / "worker" / "own").mkdir(parents=True)

    def work(stage: str, source: str | None, **more: Any) -> dict[str, Any]:
        held = {"id": f"r/{stage}", "from": source, "tokens": 0, "sources": [], "transfer": {}}
        return {"model": "checked", "variant": name, "kv": held, "keep_copy": "L2", **more}

    async def both() -> tuple[dict[str, Any], dict[str, Any], str]:
        executor = lm_executor(cluster, find_worker(cluster, "checked", "lm"), SECRET, folder, folder, None)
        try:
            prefill = work("prefill", None, tokens=tokens, segments=[["prefill", len(tokens)]], append=[])
            first = await executor.run("prefill", prefill, Unheard("prefill"))
            known, history = [*tokens, first["first"]], [["prefill", len(tokens)], ["decode", 1]]
            decode = work(
                "decode", "r/prefill", tokens=known, segments=history, generated=1, max_tokens=setup.steps
            )  # fmt: skip
            rest = await executor.run("decode", decode, Unheard("decode"))
            return first, rest, executor.device
        finally:
            await executor.close()

    first, rest, where = asyncio.run(both())
    assert tuple(rest["tokens"]) == whole[: len(rest["tokens"])], "a worker's tokens differ"
    assert (rest["computed"], rest["reused"]) == (1, len(tokens)), rest
    return {"worker_device": where, "worker_prefill": first["seconds"], "worker_decode": rest["seconds"]}
