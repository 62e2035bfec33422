"""What controller and shell cost per stage: the part of a stage's time in which no worker has it.

``python benchmarks/runtime_overhead.py [--requests N]`` runs chains of stages, 64 requests in flight, on a worker in a
process of its own: from the moment a stage ends there until the next of its request begins there. Two ways take turns,
with the same hand-offs over the same kind of authenticated socket:

- runtime: the shell with its journal on disk and the controller;
- bare: an asyncio queue between the two directions of the socket, and nothing else.

The worker takes 50 to 150 ms for a stage, drawn by seed (it waits, as for a device), or answers at once. In the latter
case all requests always want their next stage, so that the overhead is the time of 64 hand-offs one after another: it
tells how many a controller can do. ``cpu_ms`` is the processor time per stage of the process with the controller.
Places are given beforehand: planning, once per request in a thread of its own, is measured by other benchmarks.

Exit 1 where the median with stages of 50 to 150 ms is not below 1 ms.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "runtime"))
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.record import record
from iegopt.control.messages import Acknowledged, Answer, Command, Event, Finished, MakePlan, Planned, Submitted
from iegopt.control.policy import ControlPolicy
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import Connection, Listener, connect
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.shell import Shell
from iegopt_runtime.workers.executor import Attempt, Document
from iegopt_runtime.workers.plain import PlainExecutor
from iegopt_runtime.workers.worker import Identity, Worker

SECRET = b"benchmark"
DRAW = random.Random(0)
WORKER, DEVICE = "host/cpu", "host"
FLIGHT, STAGES, REQUESTS = 64, 10, 256
TAKES = {"50 to 150 ms": 0.1, "at once": 0.0}
"""Mean seconds of a stage."""
TARGET_MS = 1.0

Spans = dict[tuple[str, str], tuple[float, float]]
"""(request, stage) -> when it began and ended in the worker, by the monotonic clock that all processes share."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--requests", type=int, default=REQUESTS)
    parser.add_argument("--worker", nargs=3, metavar=("WAY", "SOCKET", "SECONDS"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.worker:
        way, socket, seconds = arguments.worker
        asyncio.run({"runtime": serve_runtime, "bare": serve_bare}[way](Address(path=socket), float(seconds)))
        return 0
    figures = measured(arguments.requests)
    record("runtime_overhead", {"in_flight": FLIGHT, "stages": STAGES, "requests": arguments.requests, **figures})
    for takes, ways in figures.items():
        for way, row in ways.items():
            print(f"stages of {takes}, {way}: {row}")
    return 0 if figures["50 to 150 ms"]["runtime"]["p50_ms"] < TARGET_MS else 1


def measured(requests: int) -> dict[str, Any]:
    """What stages take -> way -> figures, with ``ratio`` of the runtime's to the bare queue's."""
    found: dict[str, Any] = {}
    for takes, seconds in TAKES.items():
        ways = {"bare": asyncio.run(bare(requests, seconds)), "runtime": asyncio.run(runtime(requests, seconds))}
        ratio = {name: round(ways["runtime"][name] / ways["bare"][name], 2) for name in ways["bare"]}
        found[takes] = {**ways, "ratio": ratio}
    return found


def figures_of(spans: Spans, cpu: float) -> dict[str, float]:
    """Milliseconds between one stage's end and the next one's beginning; ``cpu`` in seconds over all stages."""
    gaps = sorted(
        1e3 * (spans[request, f"s{number + 1}"][0] - ended)
        for (request, stage), (_, ended) in spans.items()
        if (number := int(stage[1:])) + 1 < STAGES
    )
    return {
        "p50_ms": round(gaps[len(gaps) // 2], 3), "p99_ms": round(gaps[len(gaps) * 99 // 100], 3),
        "cpu_ms": round(1e3 * cpu / len(spans), 3),
    }  # fmt: skip


async def runtime(requests: int, seconds: float) -> dict[str, float]:
    """Through shell, journal and controller."""
    spans: Spans = {}

    def watch(event: Event, commands: tuple[Command, ...]) -> None:
        if isinstance(event, Finished):
            spans[event.request_id, event.stage] = event.result["began"], event.result["ended"]

    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "controller.sock"
        policy = ControlPolicy(max_in_flight=FLIGHT)
        shell = Shell(policy, Journal(Path(folder) / "journal"), Fixed(), SECRET)
        shell.watch(watch)
        await shell.listen(Address(path=str(socket)))
        running = asyncio.create_task(shell.run())
        async with worker("runtime", socket, seconds):
            while not shell.controller.core.pool.workers:
                await asyncio.sleep(0.01)
            begun = time.process_time()
            names = iter([f"r{number}" for number in range(requests)])
            await asyncio.gather(*(_submits(shell, names) for _ in range(FLIGHT)))
            cpu = time.process_time() - begun
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return figures_of(spans, cpu)


async def _submits(shell: Shell, names: Any) -> None:
    """A client with one request at a time."""
    for name in names:
        shell.put(Submitted(shell.clock(), name, chain(), {"text": "?"}))
        async for message in shell.follow(name):
            if isinstance(message, Answer) and message.answer["status"] != "complete":
                raise RuntimeError(f"{name} is {message.answer['status']}: {message.answer['reason']}")
        shell.put(Acknowledged(shell.clock(), name))


def chain() -> dict[str, Any]:
    """A request whose stages follow one another."""
    names = [f"s{number}" for number in range(STAGES)]
    edges = [{"from": a, "to": b} for a, b in pairwise(names)]
    return {"id": "chain", "graph": {"name": "chain", "stages": [{"id": n, "type": "router"} for n in names],
                                     "edges": edges}}  # fmt: skip


class Fixed:
    """In place of the planner: every stage on the one device."""

    async def planned(self, command: MakePlan, free: Mapping[str, int], at: float) -> Planned:
        place = {"device": DEVICE, "variant": "-", "time": 0.1, "memory": 0, "start": 0.0}
        stages = {stage["id"]: place for stage in command.graph["stages"]}
        return Planned(at, command.request_id, command.generation, {"stages": stages, "transfers": []}, "")

    def check(self, device: str, role: str) -> None:
        return

    def close(self) -> None:
        return


async def bare(requests: int, seconds: float) -> dict[str, float]:
    """Through a queue."""
    spans: Spans = {}
    done: asyncio.Queue[tuple[str, int]] = asyncio.Queue()
    there: asyncio.Future[Connection] = asyncio.get_running_loop().create_future()

    async def serve(connection: Connection) -> None:
        there.set_result(connection)
        while (frame := await connection.receive()) is not None:
            spans[frame["request"], f"s{frame['stage']}"] = frame["began"], frame["ended"]
            done.put_nowait((frame["request"], frame["stage"]))

    with tempfile.TemporaryDirectory() as folder:
        socket = Path(folder) / "controller.sock"
        async with Listener(SECRET, serve) as listener:
            await listener.listen(Address(path=str(socket)))
            async with worker("bare", socket, seconds):
                connection = await there
                begun = time.process_time()
                waiting = [f"r{number}" for number in range(requests)]
                for name in waiting[:FLIGHT]:
                    connection.send({"request": name, "stage": 0})
                del waiting[:FLIGHT]
                while len(spans) < requests * STAGES:
                    name, stage = await done.get()
                    if stage + 1 < STAGES:
                        connection.send({"request": name, "stage": stage + 1})
                    elif waiting:
                        connection.send({"request": waiting.pop(0), "stage": 0})
                cpu = time.process_time() - begun
    return figures_of(spans, cpu)


@asynccontextmanager
async def worker(way: str, socket: Path, seconds: float) -> AsyncIterator[None]:
    """A process that works for this one."""
    process = subprocess.Popen([sys.executable, __file__, "--worker", way, str(socket), str(seconds)])
    try:
        yield
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


async def worked(seconds: float) -> dict[str, float]:
    """A stage's work, of so many seconds in the mean: when it began and when it ended."""
    began = time.monotonic()
    if seconds:
        await asyncio.sleep(seconds * DRAW.uniform(0.5, 1.5))
    return {"began": began, "ended": time.monotonic()}


class Timed(PlainExecutor):
    """Does nothing for so many seconds in the mean."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
        return {"decision": "go", **await worked(self._seconds)}


async def serve_runtime(controller: Address, seconds: float) -> None:
    identity = Identity(WORKER, DEVICE, "cpu", {"host": DEVICE}, slots=2 * FLIGHT)
    await Worker(identity, Timed(seconds), controller, SECRET).run()


async def serve_bare(controller: Address, seconds: float) -> None:
    connection = await connect(controller, SECRET, WORKER, "worker")
    running: set[asyncio.Task[None]] = set()

    async def work(frame: dict[str, Any]) -> None:
        connection.send({**frame, **await worked(seconds)})

    while (frame := await connection.receive()) is not None:
        task = asyncio.create_task(work(frame))
        running.add(task)
        task.add_done_callback(running.discard)


if __name__ == "__main__":
    raise SystemExit(main())
