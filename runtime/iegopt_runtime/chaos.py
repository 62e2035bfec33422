"""Runs in which processes are killed at random: does every request get its one right answer all the same?

A run has a controller and workers as processes of their own, requests in flight, and somebody who kills them: SIGKILL
to workers and to the controller, at moments drawn by seed. Whoever was killed is started again, as Kubernetes would.
What must hold at the end: every request answered once, complete, with the tokens of an undisturbed run; no process and
no file left behind.
"""

from __future__ import annotations

import asyncio
import random
import signal
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from iegopt.control.messages import Answer, Stream
from iegopt.control.policy import ControlPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.load import dump
from iegopt_runtime.client import Client
from iegopt_runtime.deployment import deployed, preloads
from iegopt_runtime.net.address import Address
from iegopt_runtime.processes import of_run
from iegopt_runtime.run_folder import RunFolder
from iegopt_runtime.supervise import LocalWorker, Supervisor

__all__ = ["POLICY", "ChaosRun", "Outcome", "Request"]

POLICY = ControlPolicy(
    heartbeat=0.3, lost_after=4, grace=0.3, restart_grace=6.0, max_retries=50, plan_patience=60.0, keep_copy="L2",
    slow_factor=1000.0,
)  # fmt: skip
"""Quick to notice who is gone, patient with requests: it is processes that fail here, not they."""

_CONTROLLER = "controller"


@dataclass(frozen=True)
class Request:
    """What is asked, and the tokens that must come."""

    id: str
    request: dict[str, Any]
    inputs: dict[str, Any]
    expected: tuple[int, ...]


@dataclass
class Outcome:
    """What a run came to; ``wrong`` says what did not hold, in words, and is empty where all did.

    ``recoveries`` are those of all requests, as answers have them; ``kills`` whom and when, in seconds from the first
    submission.
    """

    seconds: float = 0.0
    kills: list[tuple[float, str]] = field(default_factory=list)
    recoveries: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class ChaosRun:
    """One run on a cluster of local workers.

    Parameters
    ----------
    seed
        Decides who is killed when.
    kills
        How many times somebody is.
    span
        Seconds from the first submission over which the kills are spread.
    """

    def __init__(self, cluster: ClusterSpec, requests: Sequence[Request], seed: int, kills: int, span: float) -> None:
        self._cluster, self._requests = cluster, requests
        self._draw, self._kills, self._span = random.Random(seed), kills, span
        self._outcome = Outcome()
        self._answers: dict[str, list[dict[str, Any]]] = {request.id: [] for request in requests}

    async def run(self, timeout: float = 120.0) -> Outcome:
        """Carry it out; what is left of it is removed.

        Raises
        ------
        InputError
            Where the processes do not come up at all.
        """
        folder = RunFolder()
        try:
            await self._within(folder, timeout)
        finally:
            left = of_run(folder.run)
            folder.close()
        if left:
            self._outcome.wrong.append(f"{len(left)} processes are left")
        if folder.path.exists():
            self._outcome.wrong.append(f"{folder.path} is left")
        return self._outcome

    async def _within(self, folder: RunFolder, timeout: float) -> None:
        address = Address(path=str(folder.socket))
        client = Client(address, folder.secret, patience=timeout)
        registered: set[str] = set()
        supervisor = Supervisor(folder, registered.__contains__, preloads(deployed(self._cluster)))
        try:
            await supervisor.open()
            for process in self._processes(folder, address):
                supervisor.start(process)
            await self._up(client, registered)
            loop = asyncio.get_running_loop()
            begun = loop.time()
            async with asyncio.timeout(timeout):
                kills = asyncio.create_task(self._kill(supervisor, begun))
                await asyncio.gather(*(self._ask(client, request) for request in self._requests))
                kills.cancel()
            self._outcome.seconds = loop.time() - begun
        except TimeoutError:
            missing = [name for name, answers in self._answers.items() if not answers]
            self._outcome.wrong.append(f"no answer within {timeout:g} s to {', '.join(missing)}")
        finally:
            await supervisor.close()

    def _processes(self, folder: RunFolder, address: Address) -> list[LocalWorker]:
        cluster, policy = folder.path / "cluster.yaml", folder.path / "policy.yaml"
        cluster.write_text(dump("cluster", self._cluster))
        policy.write_text(dump("control_policy", POLICY))
        known = ["--secret-file", str(folder.secret_file)]
        controller = [
            "controller", str(cluster), "--listen", str(address), "--journal", str(folder.path / "journal"),
            "--policy", str(policy), *known,
        ]  # fmt: skip
        workers = [
            LocalWorker(worker.name, [
                "worker", str(cluster), "--device", worker.device, "--role", worker.role,
                "--controller", str(address), "--folder", str(folder.path),
                "--heartbeat", f"{POLICY.heartbeat * 1000:g}ms", *known,
            ])
            for worker in deployed(self._cluster)
        ]  # fmt: skip
        return [LocalWorker(_CONTROLLER, controller), *workers]

    async def _up(self, client: Client, registered: set[str]) -> None:
        """Wait for all workers."""
        wanted = {worker.name for worker in deployed(self._cluster)}
        registered.add(_CONTROLLER)
        async with asyncio.timeout(240):
            while not wanted <= registered:
                state = await client.state()
                registered |= {name for name, worker in state["workers"].items() if worker["usable"]}
                await asyncio.sleep(0.1)

    async def _kill(self, supervisor: Supervisor, begun: float) -> None:
        loop = asyncio.get_running_loop()
        for moment in sorted(self._draw.uniform(0, self._span) for _ in range(self._kills)):
            await asyncio.sleep(max(0.0, begun + moment - loop.time()))
            victim = self._draw.choice(supervisor.workers)
            if victim.process is not None and victim.process.code is None:
                victim.process.signal(signal.SIGKILL)
                self._outcome.kills.append((loop.time() - begun, victim.name))

    async def _ask(self, client: Client, request: Request) -> None:
        streamed: list[int] = []
        async for message in client.run(request.id, request.request, request.inputs):
            if isinstance(message, Stream):
                streamed += message.tokens
            else:
                self._take(request, message, streamed)

    def _take(self, request: Request, message: Answer, streamed: list[int]) -> None:
        answer, wrong = message.answer, self._outcome.wrong
        self._answers[request.id].append(answer)
        self._outcome.recoveries += answer["recoveries"]
        if len(self._answers[request.id]) > 1:
            wrong.append(f"{request.id} is answered twice")
        if answer["status"] != "complete":
            wrong.append(f"{request.id} is {answer['status']}: {answer['reason']}")
        elif tuple(answer["tokens"]) != request.expected:
            wrong.append(f"{request.id} has other tokens than an undisturbed run: {_first_difference(answer, request)}")
        elif streamed != answer["tokens"]:
            wrong.append(f"{request.id} streamed other tokens than it answers")


def _first_difference(answer: dict[str, Any], request: Request) -> str:
    got, wanted = answer["tokens"], request.expected
    most = min(len(got), len(wanted))
    at = next((n for n in range(most) if got[n] != wanted[n]), most)
    return f"from token {at} on, of {len(got)} where {len(wanted)} were expected"
