"""The embedded runtime: a controller in this process, its workers beside it, nothing else to install or start.

::

    async with Runtime(cluster) as rt:
        async for piece in rt.run(request):
            print(piece.text, end="")
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

from iegopt.control.messages import Answer, Command, Event, Registered, Stream
from iegopt.control.policy import ControlPolicy
from iegopt.errors import InputError
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.load import dump
from iegopt.spec.request import RequestSpec
from iegopt.spec.worker import Role
from iegopt_runtime.deployment import Deployed, deployed, preloads, roles
from iegopt_runtime.net.address import Address
from iegopt_runtime.run_folder import RunFolder
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.plan_service import PlanService
from iegopt_runtime.shell.shell import Shell
from iegopt_runtime.shell.submissions import Verdict
from iegopt_runtime.supervise import LocalWorker, Supervisor

__all__ = ["Run", "Runtime"]

_START = 180.0
"""Seconds in which local workers must be up: torch is imported and models are loaded."""


LOCAL_POLICY = ControlPolicy(slow_factor=20.0, slow_floor=10.0, answer_kept=3.6e7)
"""Figures of one's own machine are rough, and others use it too: a stage is slow there only when it is very slow. Who
submits is in this process, and may ask for the answer when it likes."""


class Run:
    """A submitted request: iterate over it for its tokens as they come; ``answer`` is how it ended."""

    def __init__(self, shell: Shell, request_id: str, asked: dict[str, Any]) -> None:
        self._shell, self.request_id, self.asked = shell, request_id, asked
        self._verdict = shell.submit({"type": "Submitted", "request_id": request_id, **asked})
        self._answer: dict[str, Any] | None = None

    async def __aiter__(self) -> AsyncIterator[Stream]:
        if self._answer is not None:
            return
        async for message in self._followed():
            if isinstance(message, Answer):
                self._take(message)
            else:
                yield message

    async def answer(self) -> dict[str, Any]:
        """The answer (``iegopt.control.answer``), waited for."""
        if self._answer is None:
            async for message in self._followed():
                if isinstance(message, Answer):
                    self._take(message)
        assert self._answer is not None
        return self._answer

    async def _followed(self) -> AsyncIterator[Stream | Answer]:
        """All that is said of it (raises ``InputError`` where another request bears its id)."""
        if (reason := await asyncio.shield(self._verdict)) is not None:
            raise InputError(reason)
        async for message in self._shell.follow(self.request_id):
            yield message

    def cancel(self, reason: str = "") -> None:
        """End it; where it was not taken, the request that bears its id is another's and goes on."""

        def say(verdict: Verdict) -> None:
            if not verdict.cancelled() and verdict.result() is None:
                self._shell.say({"type": "Cancelled", "request_id": self.request_id, "reason": reason})

        if self._verdict.done():
            say(self._verdict)
        else:
            self._verdict.add_done_callback(say)

    def story(self, stage: str | None = None) -> list[str]:
        """What befell the request so far, or one of its stages, in sentences; empty once it is acknowledged."""
        known = self.request_id in self._shell.controller.core.runs
        return self._shell.controller.story(self.request_id, stage) if known else []

    def _take(self, message: Answer) -> None:
        if self._answer is None:
            self._answer = message.answer
            self._shell.say({"type": "Acknowledged", "request_id": self.request_id})


class Runtime:
    """Runs requests on a cluster whose devices have workers.

    Parameters
    ----------
    cluster
        Devices with ``worker``; the local ones are started here.
    tools, documents
        Files of registered tools and of documents to retrieve from, for the workers of these roles.
    journal
        Where events are kept; in the run's own folder by default, and then gone with it.
    tell
        Is told of workers that come and go.

    Attributes
    ----------
    folder, shell, supervisor
        Once entered: the run's folder, its controller, its local workers.

    Raises
    ------
    InputError
        On entering: no device with a worker, a file that is wrong or that no local worker reads, a tool that cannot be
        imported, or a worker that does not come up.
    """

    def __init__(
        self,
        cluster: ClusterSpec,
        *,
        policy: ControlPolicy | None = None,
        tools: Path | None = None,
        documents: Path | None = None,
        journal: Path | None = None,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        self._cluster, self._policy = cluster, policy or LOCAL_POLICY
        self._workers = deployed(cluster)
        if not self._workers:
            raise InputError(f"cluster {cluster.name}: no device has a worker: expected worker.roles on some")
        self._files = {"tools": tools, "documents": documents}
        self._journal, self._tell = journal, tell
        self._runs: WeakValueDictionary[str, Run] = WeakValueDictionary()

    async def __aenter__(self) -> Self:
        self.folder = RunFolder()
        try:
            await self._start()
        except BaseException:
            await self._stop()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stop()

    async def _start(self) -> None:
        local = [worker for worker in self._workers if worker.spec.at == "local"]
        await asyncio.to_thread(self._check_files, {worker.role for worker in local})
        folder = self.folder
        (folder.path / "cluster.yaml").write_text(dump("cluster", self._cluster))
        journal = Journal(self._journal or folder.path / "journal")
        plans, workers = PlanService(self._cluster), roles(self._workers)
        self.shell = Shell(self._policy, journal, plans, folder.secret, self._tell, workers=workers)
        self._address = await self.shell.listen(Address(path=str(folder.socket)))
        self._running = asyncio.create_task(self.shell.run())
        self.supervisor = Supervisor(folder, self._is_registered, preloads(local), self._tell)
        self.shell.watch(self._told)
        await self.supervisor.open()
        for worker in local:
            self.supervisor.start(LocalWorker(worker.name, self._arguments(worker)))
        await self.supervisor.ready(_START)

    def _told(self, event: Event, commands: tuple[Command, ...]) -> None:
        if isinstance(event, Registered):
            self.supervisor.came_up(event.worker)

    def _check_files(self, roles: set[Role]) -> None:
        """What workers will read: told here, in a moment, and not by one that does not come up."""
        readers: dict[Role, Path | None] = {"tool": self._files["tools"], "retrieval": self._files["documents"]}
        for role, file in readers.items():
            if file is not None and role not in roles:
                expected = f"expected one in worker.roles of cluster {self._cluster.name}"
                raise InputError(f"{file}: it is read by local workers of role {role}, there is none: {expected}")
        if (tools := self._files["tools"]) is not None:
            from iegopt_runtime.workers.tool_check import check_tools
            from iegopt_runtime.workers.tool_registry import read_tools

            check_tools(read_tools(tools), str(tools))
        if (documents := self._files["documents"]) is not None:
            from iegopt_runtime.workers.retrieval_index import check_documents

            check_documents(documents)

    def _is_registered(self, name: str) -> bool:
        worker = self.shell.controller.core.pool.workers.get(name)
        return worker is not None and worker.usable

    def _arguments(self, worker: Deployed) -> list[str]:
        folder = self.folder
        arguments = [
            "worker", str(folder.path / "cluster.yaml"), "--device", worker.device, "--role", worker.role,
            "--controller", str(self._address),
            "--secret-file", str(folder.secret_file), "--folder", str(folder.path), "--files", str(folder.files),
            "--die-with-parent",
            "--heartbeat", f"{self.shell.controller.core.policy.heartbeat:g}s",
        ]  # fmt: skip
        for name, file in self._files.items():
            if file is not None:
                arguments += [f"--{name}", str(file)]
        return arguments

    async def _stop(self) -> None:
        if hasattr(self, "supervisor"):
            await self.supervisor.close()
        if hasattr(self, "_running"):
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
        if hasattr(self, "shell"):
            await self.shell.close()
        self.folder.close()

    def run(
        self, request: RequestSpec, inputs: dict[str, Any] | None = None, *, request_id: str | None = None,
        priority: int | None = None,
    ) -> Run:  # fmt: skip
        """Submit a request. The same one again, as long as its ``Run`` is held, is that run.

        Parameters
        ----------
        inputs
            As ``iegopt.control.messages.Submitted`` describes them; by default the request's own prompt.
        request_id
            The request's own id and a random mark by default, so that the same request can be run again.
        priority
            0 goes first; by default that of the request's SLA class.

        Raises
        ------
        InputError
            An input that is no plain data, a priority out of range, or an id that another request has; where that is
            only known to the controller, whoever waits for tokens or the answer is told.
        """
        name = request_id or f"{request.id}-{secrets.token_hex(4)}"
        asked = {"request": request.document(), "inputs": inputs or {}, "priority": priority}
        known = self._runs.get(name)
        if known is not None:
            if known.asked != asked:
                raise InputError(f"request {name}: another request of this id is known: expected an id of its own")
            return known
        run = self._runs[name] = Run(self.shell, name, asked)
        return run
