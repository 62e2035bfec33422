"""A worker as a process of its own: the executor of its role, and what that needs."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from iegopt.errors import InputError
from iegopt.spec.cluster import ClusterSpec
from iegopt_runtime.deployment import Deployed, find_worker
from iegopt_runtime.net.address import Address
from iegopt_runtime.own_folder import OwnFolder
from iegopt_runtime.processes import until_terminated
from iegopt_runtime.run_folder import kv_files
from iegopt_runtime.workers.executor import Executor
from iegopt_runtime.workers.worker import Identity, Worker

__all__ = ["WorkerFiles", "serve"]


@dataclass(frozen=True)
class WorkerFiles:
    """``folder`` for sockets (the temporary one by default), ``kv`` for KV files (the cache by default, and then gone
    with the process), registered tools, documents to retrieve from."""

    folder: Path | None
    kv: Path | None
    tools: Path | None
    documents: Path | None


@dataclass(frozen=True)
class _Setting:
    cluster: ClusterSpec
    deployed: Deployed
    secret: bytes
    files: WorkerFiles
    folder: Path
    kv: Path
    controller: Address
    listen: str | None


async def serve(
    cluster: ClusterSpec,
    device: str,
    role: str,
    controller: Address,
    secret: bytes,
    files: WorkerFiles,
    listen: str | None,
    heartbeat: float,
) -> None:
    """Run a worker until it is dismissed or terminated; SIGUSR1 has it drain.

    Raises
    ------
    InputError
        The cluster has no such worker, or one of its files is wrong.
    Refused
        The controller does not take it.
    """
    deployed = find_worker(cluster, device, role)

    async def work() -> None:
        with contextlib.ExitStack() as own:
            folder = own.enter_context(OwnFolder(files.folder or Path(tempfile.gettempdir()), "iegopt-worker-"))
            kv = files.kv or (own.enter_context(kv_files()).path if role == "lm" else folder.path)
            setting = _Setting(cluster, deployed, secret, files, folder.path, kv, controller, listen)
            executor = await asyncio.to_thread(_ROLES[deployed.role], setting)
            slots = deployed.spec.max_batch * 2 if deployed.role == "lm" else deployed.spec.slots
            identity = Identity(deployed.name, device, role, deployed.location, slots)
            worker = Worker(identity, executor, controller, secret, heartbeat, _tell)
            asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, worker.drain)
            await worker.run()

    serving = asyncio.create_task(work())
    # One that is still starting has nothing to finish: it is not waited for until its models are loaded.
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, serving.cancel)
    await until_terminated(serving)


def _tell(line: str) -> None:
    sys.stderr.write(f"{line}\n")
    sys.stderr.flush()


def _lm(setting: _Setting) -> Executor:
    from iegopt_runtime.workers.lm_setup import lm_executor

    return lm_executor(
        setting.cluster, setting.deployed, setting.secret, setting.folder, setting.kv, setting.listen,
        towards=setting.controller.host,
    )  # fmt: skip


def _tool(setting: _Setting) -> Executor:
    from iegopt_runtime.workers.tool import ToolExecutor
    from iegopt_runtime.workers.tool_check import check_tools
    from iegopt_runtime.workers.tool_registry import read_tools

    file = setting.files.tools
    tools = read_tools(file) if file is not None else {}
    check_tools(tools, str(file))
    return ToolExecutor(tools)


def _retrieval(setting: _Setting) -> Executor:
    from iegopt_runtime.workers.retrieval import RetrievalExecutor
    from iegopt_runtime.workers.retrieval_index import load_documents

    file = setting.files.documents
    return RetrievalExecutor(load_documents(file) if file is not None else None)


def _cpu(setting: _Setting) -> Executor:
    from iegopt_runtime.models.registry import Registry
    from iegopt_runtime.workers.cpu import CpuExecutor
    from iegopt_runtime.workers.texts import Texts

    texts = Texts(Registry.of(setting.cluster.execution_path_registry or ()))
    for model in sorted(
        {name.partition("/")[0] for device in setting.cluster.devices for name in device.resident or ()}
    ):
        # Loading a tokenizer for the first time takes seconds, which no request should wait for. One that is not to be
        # had here, of a model that other hosts serve, is told to who asks for it.
        with contextlib.suppress(InputError):
            texts.of(model)
    return CpuExecutor(texts)


_ROLES: dict[str, Callable[[_Setting], Executor]] = {"lm": _lm, "tool": _tool, "retrieval": _retrieval, "cpu": _cpu}
