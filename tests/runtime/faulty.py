"""Faults for the tests of the runtime: workers of two data centres, ways to strike them, requests that are struck."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from resource import RLIMIT_DATA, prlimit
from typing import Any

from iegopt.control.messages import Accepted, Answer, Command, Event, Failed, Submitted
from iegopt.spec.cluster import ClusterSpec
from iegopt_runtime.runtime import Runtime
from tests.runtime.local import local_cluster, tiny_request

__all__ = [
    "CENTRE", "DOCUMENTS", "HEARD", "LONG", "OUTPUT", "RACK", "TOOLS", "Fault", "Struck", "Watch", "hanging", "killed",
    "short_of_memory", "slowed", "struck", "two_centres",
]  # fmt: skip

TOOLS = {"count": {"python": "tests.runtime.tools_of_tests:counted"}}
DOCUMENTS = [{"text": "Paris is the capital of France."}, {"text": "Lead aprons hang in room 12."}]
"""What the tool and the retrieval of ``graph`` need."""

LM = {"prefiller": ("east", "e1"), "remote": ("west", "w1"), "across": ("east", "e2"), "decoder": ("east", "e1")}
"""Device -> data centre and rack. The first is the best place to prefill, the last the best to decode."""

RACK = ("prefiller/lm", "decoder/lm")
CENTRE = (*RACK, "across/lm")
OUTPUT = 500
SLACK = 10**6
"""Bytes that a process which is short of memory may still take, less than the KV cache of ``LONG`` tokens."""
LONG = 3900
HEARD = 20
"""Tokens after which a fault strikes a stream."""


def two_centres() -> ClusterSpec:
    """The cluster whose racks and data centres are killed."""
    places = {name: {"datacenter": centre, "rack": rack, "host": name} for name, (centre, rack) in LM.items()}
    places["host"] = {"datacenter": "west", "rack": "w1", "host": "host"}
    return local_cluster(tuple(LM), **{name: {"location": place} for name, place in places.items()})


def graph(output: int = OUTPUT) -> dict[str, Any]:
    """What a tool and a retrieval find is prefilled after the prompt, and decoded on another device."""
    work = {"model": "tiny"}
    stages = [
        {"id": "count", "type": "tool"}, {"id": "find", "type": "retrieval"},
        {"id": "prefill", "type": "prefill", **work, "tokens": {"new": 100}, "affinity": {"device": "prefiller"}},
        {"id": "decode", "type": "decode", **work, "tokens": {"context": 150, "output": output}},
        {"id": "output", "type": "output"},
    ]  # fmt: skip
    edges = [
        {"from": "count", "to": "prefill"}, {"from": "find", "to": "prefill"},
        {"from": "prefill", "to": "decode", "kv": True, "bytes": "80kB"}, {"from": "decode", "to": "output"},
    ]  # fmt: skip
    return {"stages": stages, "edges": edges}


class Watch:
    """What the controller of a runtime heard and said, by request; ``hooks`` are told of every event."""

    def __init__(self, runtime: Runtime) -> None:
        self.submitted: dict[str, float] = {}
        self.answers: Counter[str] = Counter()
        self.hooks: list[Callable[[Event], None]] = []
        runtime.shell.watch(self._told)

    def _told(self, event: Event, commands: tuple[Command, ...]) -> None:
        if isinstance(event, Submitted):
            self.submitted[event.request_id] = event.at
        self.answers.update(command.request_id for command in commands if isinstance(command, Answer))
        for hook in list(self.hooks):
            hook(event)


Fault = Callable[[Runtime, str], AbstractAsyncContextManager[None]]
"""Strikes a runtime, or the worker that decodes, on entering; on leaving all is as it was before."""


@asynccontextmanager
async def killed(runtime: Runtime, *workers: str) -> AsyncIterator[None]:
    """Processes that end at once and stay away."""
    runtime.supervisor.signal(workers, signal.SIGKILL, for_good=True)
    try:
        yield
    finally:
        await runtime.supervisor.revive(workers)
        await runtime.supervisor.ready(60.0)


@asynccontextmanager
async def hanging(runtime: Runtime, worker: str) -> AsyncIterator[None]:
    """A process that is stopped, and wakes afterwards."""
    runtime.supervisor.signal([worker], signal.SIGSTOP)
    try:
        yield
    finally:
        runtime.supervisor.signal([worker], signal.SIGCONT)


@asynccontextmanager
async def slowed(runtime: Runtime, worker: str, share: float = 0.1, period: float = 0.05) -> AsyncIterator[None]:
    """A process that runs for a share of each period."""

    async def stop_and_go() -> None:
        while True:
            runtime.supervisor.signal([worker], signal.SIGSTOP)
            await asyncio.sleep(period * (1 - share))
            runtime.supervisor.signal([worker], signal.SIGCONT)
            await asyncio.sleep(period * share)

    task = asyncio.create_task(stop_and_go())
    try:
        yield
    finally:
        task.cancel()
        runtime.supervisor.signal([worker], signal.SIGCONT)


@contextmanager
def short_of_memory(runtime: Runtime, watch: Watch, worker: str) -> Iterator[None]:
    """A process that gets hardly any more memory from when a prefill begins until a stage has failed of that."""
    (process,) = (found.process for found in runtime.supervisor.workers if found.name == worker)
    assert process is not None
    status = Path(f"/proc/{process.pid}/status")

    def turn(event: Event) -> None:
        if isinstance(event, Accepted) and event.stage == "prefill":
            data = next(line for line in status.read_text().splitlines() if line.startswith("VmData:"))
            prlimit(process.pid, RLIMIT_DATA, (int(data.split()[1]) * 1024 + SLACK, before[1]))
        if isinstance(event, Failed):
            prlimit(process.pid, RLIMIT_DATA, before)

    before = prlimit(process.pid, RLIMIT_DATA)
    watch.hooks.append(turn)
    try:
        yield
    finally:
        watch.hooks.remove(turn)
        prlimit(process.pid, RLIMIT_DATA, before)


@dataclass(frozen=True)
class Struck:
    """A request that a fault struck.

    Attributes
    ----------
    prompt
        Tokens before the first of the output: the request's, and what the tool and the retrieval added.
    streamed, answers
        Tokens that its client heard, and how often the controller answered it.
    at, heard
        Seconds after the submission: when the fault struck, and when each of the streamed tokens was heard.
    """

    answer: dict[str, Any]
    prompt: list[int]
    streamed: list[int]
    answers: int
    at: float
    heard: list[float]

    @property
    def resumed(self) -> float | None:
        """When the first token was heard that came after the first recovery; ``None`` where there was none."""
        ended = next((found["ended"] for found in self.answer["recoveries"]), None)
        return next((at for at in self.heard if ended is not None and at > ended), None)


async def struck(
    runtime: Runtime, watch: Watch, name: str, inputs: dict[str, Any], fault: Fault | None, output: int = OUTPUT,
    after: int = HEARD,
) -> Struck:  # fmt: skip
    """Run a request; its decode is struck when it has streamed some tokens."""
    run = runtime.run(tiny_request(name, graph=graph(output)), inputs, request_id=name)
    streamed: list[int] = []
    heard: list[float] = []
    at, prompt = 0.0, list[int]()
    async with AsyncExitStack() as faults:
        async for piece in run:
            streamed += piece.tokens
            heard += [runtime.shell.clock() - watch.submitted[name]] * len(piece.tokens)
            if not prompt and len(streamed) >= after:
                stages = runtime.shell.controller.core.runs[name].stages
                before, worker = stages["prefill"].sequence, stages["decode"].worker
                assert before is not None
                prompt, at = list(before.tokens), runtime.shell.clock() - watch.submitted[name]
                if fault is not None and worker is not None:
                    await faults.enter_async_context(fault(runtime, worker))
        answer = await run.answer()
    return Struck(answer, prompt, streamed, watch.answers[name], at, heard)
