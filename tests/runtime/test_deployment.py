"""Which workers a cluster has, and what its words make of one that serves models."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest

from iegopt.errors import InputError
from iegopt.spec.cluster import ClusterSpec
from iegopt_runtime.deployment import accelerator, deployed, find_worker
from iegopt_runtime.errors import ModelError
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.lm.model_host import LoadedModel, ModelHost
from iegopt_runtime.models.registry import Artifact, Registry
from iegopt_runtime.net.address import Address
from iegopt_runtime.workers.launch import WorkerFiles, _cpu, _Setting
from iegopt_runtime.workers.lm_setup import lm_executor
from tests.runtime.lm.test_executor import SECRET, Attempt, decode
from tests.runtime.local import local_cluster


def cluster(*blocks: int) -> ClusterSpec:
    kv = {"device": "8MB", "host": "8MB", "disk": "0B"}
    names = ("prefiller", "decoder")
    workers = [{"worker": {"roles": ["lm"], "block_tokens": size, "kv": kv}} for size in blocks]
    return local_cluster(**dict(zip(names, workers, strict=True)))


def test_a_worker_is_a_role_of_a_device() -> None:
    names = ["prefiller/lm", "decoder/lm", "host/cpu", "host/tool", "host/retrieval"]
    assert [worker.name for worker in deployed(cluster(64, 64))] == names
    where = {"datacenter": "dc0", "rack": "dc0/rack0", "host": "dc0/rack0/here"}
    assert find_worker(cluster(64, 64), "decoder", "lm").location == where


def test_workers_of_one_host_take_its_gpus_one_each() -> None:
    asked = local_cluster(("a", "b", "c", "d"), d={"location": {"host": "there"}})
    taken = [accelerator(asked, find_worker(asked, device, "lm"), 2) for device in "abcd"]
    assert taken == ["cuda:0", "cuda:1", "cuda:0", "cuda:0"]
    assert accelerator(asked, find_worker(asked, "b", "lm"), 0) == "cpu"


def test_kv_files_lie_in_their_folder_and_sockets_in_another(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "of", lambda *_, **__: registry)
    own, files, asked = tmp_path / "own", tmp_path / "files", local_cluster()
    own.mkdir()
    executor = lm_executor(asked, find_worker(asked, "decoder", "lm"), SECRET, own, files, None)
    asyncio.run(executor.close())
    assert (files / "kv" / "decoder-lm").is_dir()
    assert not (own / "kv").exists()


def test_the_cpu_role_needs_no_tokenizer_of_models_that_others_serve(tmp_path: Path) -> None:
    far = {"resident": ["Llama-2-7B/fp16"], "worker": {"roles": ["lm"], "at": "elsewhere"}}
    setting = _Setting(
        local_cluster(decoder=far), find_worker(local_cluster(), "host", "cpu"), SECRET,
        WorkerFiles(None, None, None, None), tmp_path, tmp_path, Address(path="/x"), None,
    )  # fmt: skip
    assert _cpu(setting).holds() == set()


def test_models_whose_blocks_are_unlike_are_refused() -> None:
    told = r"device decoder: worker\.block_tokens 64: expected 256, as device prefiller has"
    with pytest.raises(InputError, match=told):
        deployed(cluster(256, 64))


def serving(vram: str, *resident: str) -> ClusterSpec:
    kv = {"device": "8MB", "host": "8MB", "disk": "0B"}
    own = {"memory": {"vram": vram, "bandwidth": "8GB/s"}, "worker": {"roles": ["lm"], "kv": kv}}
    return local_cluster(("decoder",), decoder={**own, "resident": list(resident)})


def test_the_least_used_variant_leaves_where_another_needs_the_room(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "of", lambda *_, **__: registry)
    asked = serving("8.7MB", "tiny/fp32")  # fp32 takes some 430 kB, bf16 half of it

    async def ran() -> list[tuple[str, ...]]:
        executor = lm_executor(asked, find_worker(asked, "decoder", "lm"), SECRET, tmp_path, tmp_path, None)
        told = [executor.state().variants]
        try:
            for name, variant in (("a", "bf16"), ("b", "fp16"), ("c", "bf16"), ("d", "fp32")):
                await executor.run(
                    "decode", decode(f"{name}/decode", 2) | {"variant": f"tiny/{variant}"}, Attempt(name)
                )
                told.append(executor.state().variants)
            assert executor.state().weights_free == 700_000  # nothing uses what is loaded
        finally:
            await executor.close()
        return told

    assert [set(held) for held in asyncio.run(ran())] == [
        {"tiny/fp32"},
        {"tiny/fp32", "tiny/bf16"},
        {"tiny/bf16", "tiny/fp16"},
        {"tiny/bf16", "tiny/fp16"},
        {"tiny/bf16", "tiny/fp32"},
    ]


def test_a_load_that_failed_takes_no_room(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever wanted it may have left before it was known."""
    host = ModelHost(registry, DeviceMemory("cpu"), 500_000)
    load = ModelHost._load

    def fails(self: ModelHost, artifact: Artifact, size: int) -> LoadedModel:
        if artifact.precision == "bf16":
            raise ModelError("damaged")
        return load(self, artifact, size)

    monkeypatch.setattr(ModelHost, "_load", fails)
    ready = threading.Event()
    assert host.take(registry.find("tiny", "bf16"), 0.0, ready.set) is None
    assert host.available() == 500_000 - host.used() < 500_000
    assert ready.wait(20)
    ready.clear()
    assert host.take(registry.find("tiny", "fp32"), 0.0, ready.set) is None
    assert ready.wait(60)
    loaded = host.take(registry.find("tiny", "fp32"), 0.0, ready.set)
    assert loaded is not None
    assert host.available() == 500_000 - loaded.bytes
    host.close()


def test_a_resident_variant_that_finds_no_room_is_told(
    tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "of", lambda *_, **__: registry)
    asked = serving("8.1MB", "tiny/fp32")
    told = r"device decoder: resident tiny/fp32: it needs \d+ bytes: memory\.vram less worker\.kv\.device leaves 100000"
    with pytest.raises(ModelError, match=told):
        lm_executor(asked, find_worker(asked, "decoder", "lm"), SECRET, tmp_path, tmp_path, None)


@pytest.mark.parametrize("size", [64, 256])
def test_kv_is_kept_in_blocks_of_the_size_that_the_cluster_says(
    size: int, tmp_path: Path, registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Registry, "of", lambda *_, **__: registry)
    asked = cluster(size, size)

    async def ran() -> tuple[dict[str, Any], int]:
        executor = lm_executor(asked, find_worker(asked, "decoder", "lm"), SECRET, tmp_path, tmp_path, None)
        engine = executor._traffic.engine
        try:
            result = await executor.run("decode", decode("a/decode", 300), Attempt("a"))
            manifest = engine.store.manifest("a/decode")
            assert manifest is not None
            return result, len(manifest.blocks)
        finally:
            await executor.close()

    result, blocks = asyncio.run(ran())
    assert (len(result["tokens"]), result["kv"]["tokens"]) == (300, 339)
    assert blocks == -(-339 // size)
