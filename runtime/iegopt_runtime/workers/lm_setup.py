"""An lm worker put together: device, models, KV store, engine, data plane."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import torch

from iegopt.spec.cluster import ClusterSpec
from iegopt_runtime.deployment import Deployed, accelerator
from iegopt_runtime.errors import ModelError, NoRoom
from iegopt_runtime.kv.fetch import KvFetcher
from iegopt_runtime.kv.memory import DeviceMemory
from iegopt_runtime.kv.server import KvServer
from iegopt_runtime.kv.store import KvStore
from iegopt_runtime.kv.tiers import Tier, TierPolicy
from iegopt_runtime.lm.engine import LmEngine
from iegopt_runtime.lm.model_host import ModelHost
from iegopt_runtime.models.registry import Artifact, Registry
from iegopt_runtime.workers.lm import LmExecutor
from iegopt_runtime.workers.lm_kv import KvTraffic
from iegopt_runtime.workers.texts import Texts

__all__ = ["lm_executor"]


def lm_executor(
    cluster: ClusterSpec, deployed: Deployed, secret: bytes, folder: Path, files: Path, listen: str | None,
    towards: str | None = None,
) -> LmExecutor:  # fmt: skip
    """The executor of an lm worker, its resident models loaded.

    Parameters
    ----------
    folder
        Of this process: its socket.
    files
        Where KV files lie; another process of this worker that gets the same finds them again.
    listen
        A further address for the data plane, such as ``tcp:0.0.0.0:0``, for workers on other hosts.
    towards
        A host from which these are reached.

    Raises
    ------
    ModelError
        A resident variant that cannot be served here, or weights for which KV leaves no room.
    """
    budgets = deployed.spec.kv
    weights = deployed.memory - budgets.device
    own = files / "kv" / deployed.name.replace("/", "-") if budgets.disk else None
    policy = TierPolicy({Tier.L0: budgets.device, Tier.L1: budgets.host, Tier.L2: budgets.disk if own else 0})
    if own is not None:
        own.mkdir(parents=True, exist_ok=True)
    memory = DeviceMemory(accelerator(cluster, deployed, torch.cuda.device_count()))
    registry = Registry.of(cluster.execution_path_registry or ())
    store = KvStore(memory, policy, own, time.monotonic())
    host = ModelHost(registry, memory, weights)
    for name in deployed.resident or ():
        model, _, variant = name.partition("/")
        try:
            _load(host, registry.find(model, variant or None))
        except NoRoom as error:
            raise ModelError(
                f"device {deployed.device}: resident {name}: it needs {error.needed} bytes: memory.vram less "
                f"worker.kv.device leaves {max(error.free, 0)}"
            ) from None
    addresses = [f"unix:{folder / 'kv.sock'}", *([listen] if listen is not None else [])]
    spec = deployed.spec
    engine = LmEngine(
        host, store, max_batch=spec.max_batch, block_tokens=spec.block_tokens, threads=spec.threads,
        on_crash=_end_process,
    ).start()  # fmt: skip
    server = KvServer(store, secret, addresses, time.monotonic, towards=towards)
    fetcher = KvFetcher(store, secret, time.monotonic)
    return LmExecutor(KvTraffic(engine, server, fetcher, secret, own), Texts(registry))


def _load(host: ModelHost, artifact: Artifact) -> None:
    """Have a model in memory before the first stage wants it."""
    ready = threading.Event()
    while (loaded := host.take(artifact, time.monotonic(), ready.set)) is None:
        ready.wait()
        ready.clear()
    host.release(loaded)


def _end_process() -> None:
    """A worker whose engine has ended serves nobody, though it gives signs of life: another one has to be started."""
    os._exit(70)
