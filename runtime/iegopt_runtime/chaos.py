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
from typing import Any, Self

from iegopt.control.messages import Stream
from iegopt.control.policy import ControlPolicy
from iegopt.spec.cluster import ClusterSpec
from iegopt.spec.load import dump
from iegopt_runtime.client import Client
from iegopt_runtime.deployment import deployed, preloads
from iegopt_runtime.net.address import Address
from iegopt_runtime.processes import of_run
from iegopt_runtime.run_folder import RunFolder
from iegopt_runtime.supervise import LocalWorker, Supervisor

__all__ = ["POLICY", "Chaos", "Outcome", "Request"]

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
    """What a round came to; ``wrong`` says what did not hold, in words, and is empty where all did.

    ``recoveries`` are those of all requests, as answers have them; ``kills`` whom and when, in seconds from the first
    submission, as is ``seconds``, until the last answer.
    """

    seconds: float = 0.0
    kills: list[tuple[float, str]] = field(default_factory=list)
    recoveries: list[dict[str, Any]] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Chaos:
    """A controller and workers to kill, up for as many rounds as wanted; an asynchronous context manager.

    Attributes
    ----------
    left
        After the end: what of it was left behind, in words; nothing, one hopes.
    """

    def __init__(self, cluster: ClusterSpec) -> None:
        self._cluster = cluster
        self._names = {worker.name for worker in deployed(cluster)}
        self.left: list[str] = []

    async def __aenter__(self) -> Self:
        self._folder = RunFolder()
        self._address = Address(path=str(self._folder.socket))
        self._supervisor = Supervisor(self._folder, lambda name: True, preloads(deployed(self._cluster)))
        try:
            await self._supervisor.open()
            for process in self._processes():
                self._supervisor.start(process)
            await self._up(240.0)
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._supervisor.close()
        processes = of_run(self._folder.run)
        self._folder.close()
        if processes:
            self.left.append(f"{len(processes)} processes")
        self.left += [str(path) for path in (self._folder.path, self._folder.files) if path.exists()]

    async def round(
        self, requests: Sequence[Request], seed: int, kills: int, span: float, timeout: float = 120.0
    ) -> Outcome:
        """Submit requests at once, and kill processes while they run.

        Parameters
        ----------
        seed
            Decides who is killed when.
        kills
            How many times somebody is.
        span
            Seconds from the submission over which these are spread.
        timeout
            Seconds until all answers must be there.
        """
        await self._up(timeout)
        outcome, loop = Outcome(), asyncio.get_running_loop()
        answered: dict[str, int] = dict.fromkeys((request.id for request in requests), 0)
        begun = loop.time()
        killing = asyncio.create_task(self._kill(random.Random(seed), kills, span, begun, outcome))
        try:
            async with asyncio.timeout(timeout):
                await asyncio.gather(*(self._ask(request, outcome, answered) for request in requests))
        except TimeoutError:
            missing = [name for name, count in answered.items() if not count]
            outcome.wrong.append(f"no answer within {timeout:g} s to {', '.join(missing)}")
        finally:
            killing.cancel()
        outcome.seconds = loop.time() - begun
        return outcome

    def _client(self, patience: float = 120.0) -> Client:
        return Client(self._address, self._folder.secret, patience)

    def _processes(self) -> list[LocalWorker]:
        folder, address = self._folder, self._address
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
                "--controller", str(address), "--folder", str(folder.path), "--files", str(folder.files),
                "--heartbeat", f"{POLICY.heartbeat * 1000:g}ms", *known,
            ])
            for worker in deployed(self._cluster)
        ]  # fmt: skip
        return [LocalWorker(_CONTROLLER, controller), *workers]

    async def _up(self, timeout: float) -> None:
        """Wait for all workers."""
        async with asyncio.timeout(timeout):
            while True:
                workers = (await self._client().state())["workers"]
                if self._names <= {name for name, worker in workers.items() if worker["usable"]}:
                    return
                await asyncio.sleep(0.05)

    async def _kill(self, draw: random.Random, kills: int, span: float, begun: float, outcome: Outcome) -> None:
        loop = asyncio.get_running_loop()
        for moment in sorted(draw.uniform(0, span) for _ in range(kills)):
            await asyncio.sleep(max(0.0, begun + moment - loop.time()))
            victim = draw.choice(self._supervisor.workers)
            if victim.process is not None and victim.process.code is None:
                victim.process.signal(signal.SIGKILL)
                outcome.kills.append((loop.time() - begun, victim.name))

    async def _ask(self, request: Request, outcome: Outcome, answered: dict[str, int]) -> None:
        streamed: list[int] = []
        async for message in self._client().run(request.id, request.request, request.inputs):
            if isinstance(message, Stream):
                streamed += message.tokens
                continue
            answered[request.id] += 1
            outcome.recoveries += message.answer["recoveries"]
            outcome.wrong += _faults(request, message.answer, streamed, answered[request.id])


def _faults(request: Request, answer: dict[str, Any], streamed: list[int], times: int) -> list[str]:
    """What is wrong with an answer."""
    wrong = [f"{request.id} is answered twice"] if times > 1 else []
    if answer["status"] != "complete":
        wrong.append(f"{request.id} is {answer['status']}: {answer['reason']}")
    elif tuple(answer["tokens"]) != request.expected:
        other = _difference(answer["tokens"], request.expected)
        wrong.append(f"{request.id} has other tokens than an undisturbed run: {other}")
    elif streamed != answer["tokens"]:
        wrong.append(f"{request.id} streamed other tokens than it answers: {_difference(streamed, answer['tokens'])}")
    return wrong


def _difference(got: Sequence[int], wanted: Sequence[int]) -> str:
    most = min(len(got), len(wanted))
    at = next((n for n in range(most) if got[n] != wanted[n]), most)
    return f"from token {at} on, of {len(got)} where {len(wanted)} were expected"
