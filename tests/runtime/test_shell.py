"""The shell around a controller: whom it takes, what it writes down, what it keeps and what not."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from iegopt.control.answer import refusal
from iegopt.control.controller import Controller
from iegopt.control.messages import Answer, Cancelled, Event, Planned, Start, Stream
from iegopt.control.policy import ControlPolicy
from iegopt.errors import InputError
from iegopt_runtime.client import Client
from iegopt_runtime.net import frames
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import Connection, connect
from iegopt_runtime.runtime import Run
from iegopt_runtime.shell import shell as module
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.plan_service import PlanService
from iegopt_runtime.shell.shell import Shell
from tests.runtime.local import local_cluster, tiny_request

SECRET = b"s" * 32
ROLES = {"prefiller": ["lm"], "decoder": ["lm"], "host": ["cpu", "tool", "retrieval"]}


def submitted(name: str = "r") -> dict[str, Any]:
    request = tiny_request(output=4).document()
    return {"type": "Submitted", "request_id": name, "request": request, "inputs": {"text": "x"}}


def registered(device: str = "host", role: str = "cpu", **more: Any) -> dict[str, Any]:
    return {
        "type": "Registered", "worker": f"{device}/{role}", "device": device, "role": role, "location": {},
        "epoch": "1", "addresses": {}, "slots": 2, "variants": [], "kv_free": 10**8, "running": [], "finished": [],
    } | more  # fmt: skip


@dataclass
class Host:
    """A shell that runs, and connections to it."""

    shell: Shell
    address: Address
    task: asyncio.Task[None]
    opened: list[Connection] = field(default_factory=list)

    async def call(self, name: str, purpose: str) -> Connection:
        self.opened.append(await connect(self.address, SECRET, name, purpose))
        return self.opened[-1]

    async def worker(self, device: str, role: str, **more: Any) -> Connection:
        connection = await self.call(f"{device}/{role}", "worker")
        connection.send(registered(device, role, **more))
        return connection

    async def workers(self) -> dict[str, Connection]:
        return {f"{d}/{role}": await self.worker(d, role) for d, roles in ROLES.items() for role in roles}


@asynccontextmanager
async def running(folder: Path, **policy: Any) -> AsyncIterator[Host]:
    shell = Shell(
        ControlPolicy(**{"heartbeat": 100.0, "grace": 50.0} | policy), Journal(folder / "j"),
        PlanService(local_cluster()), SECRET,
    )  # fmt: skip
    address = await shell.listen(Address(path=str(folder / "s")))
    host = Host(shell, address, asyncio.create_task(shell.run()))
    try:
        yield host
    finally:
        host.task.cancel()
        await asyncio.gather(host.task, return_exceptions=True)
        await shell.close()
        for connection in host.opened:
            await connection.closed()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():
            await asyncio.sleep(0.005)


async def heard(connection: Connection, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(20):
        while True:
            frame = await connection.receive()
            assert frame is not None
            if frame["type"] == kind:
                return frame


def run(part: Callable[[], Awaitable[None]]) -> None:
    async def timed() -> None:
        async with asyncio.timeout(60):
            await part()

    asyncio.run(timed())


@pytest.mark.parametrize(("device", "role"), [("ghost", "lm"), ("prefiller", "tool")])
def test_a_worker_that_the_cluster_does_not_have_is_told_so(tmp_path: Path, device: str, role: str) -> None:
    async def part() -> None:
        async with running(tmp_path) as host:
            connection = await host.worker(device, role)
            wrong = await heard(connection, "wrong")
            assert wrong["reason"].startswith(f"cluster here: no worker {device}/{role}: its workers are prefiller/lm")
            assert host.shell.state()["workers"] == {}

    run(part)


def test_of_two_processes_for_one_worker_the_newer_serves_and_the_other_is_told(tmp_path: Path) -> None:
    async def part() -> None:
        async with running(tmp_path) as host:
            older = await host.worker("host", "cpu", epoch="1")
            await until(lambda: "host/cpu" in host.shell.state()["workers"])
            again = await host.worker("host", "cpu", epoch="1")  # the same process, whose connection broke
            assert await older.receive() is None
            newer = await host.worker("host", "cpu", epoch="2")
            assert (await heard(again, "wrong"))["reason"] == "another process serves host/cpu now"
            assert await again.receive() is None
            host.shell.say(submitted())
            for device in ("prefiller", "decoder"):
                await host.worker(device, "lm")
            assert (await heard(newer, "Start"))["stage"] == "tokenize"

    run(part)


def test_a_journal_that_began_anew_still_knows_the_workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A controller that is killed after that goes on with what its workers run, as it does at any other time."""
    monkeypatch.setattr(module, "_COMPACT_ABOVE", 10)

    async def before() -> None:
        async with running(tmp_path) as host:
            connections = await host.workers()
            beat = {"type": "Heartbeat", "worker": "host/cpu", "epoch": "1", "running": [], "kv_free": 1,
                    "variants": [], "load": 0.0}  # fmt: skip
            for _ in range(12):
                connections["host/cpu"].send(beat)
            await until(lambda: host.shell._journal.size == host.shell._journal.saved > 0)
            host.shell.say(submitted())
            start = await heard(connections["host/cpu"], "Start")
            assert (start["stage"], start["attempt"]) == ("tokenize", 1)
            connections["host/cpu"].send({
                "type": "Accepted", "worker": "host/cpu", "request_id": "r", "stage": "tokenize", "attempt": 1,
            })  # fmt: skip
            await until(lambda: host.shell.controller.core.runs["r"].stages["tokenize"].state == "RUNNING")

    async def after() -> None:
        async with running(tmp_path) as host:
            stage = host.shell.controller.core.runs["r"].stages["tokenize"]
            assert (stage.state, stage.worker, stage.attempt) == ("RUNNING", "host/cpu", 1)
            await host.worker("host", "cpu", running=[["r", "tokenize", 1]])
            await until(lambda: host.shell.controller.core.pool.workers["host/cpu"].usable)
            assert (stage.state, stage.attempt) == ("RUNNING", 1)

    run(before)
    run(after)


def test_an_event_that_ends_the_controller_does_not_end_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = Controller.handle

    def breaks(controller: Controller, event: Event) -> Any:
        if isinstance(event, Cancelled):
            raise RuntimeError("a bug")
        return handle(controller, event)

    monkeypatch.setattr(Controller, "handle", breaks)

    async def before() -> None:
        async with running(tmp_path) as host:
            host.shell.say(submitted())
            host.shell.say({"type": "Cancelled", "request_id": "r", "reason": "x"})
            host.shell.say(submitted("later"))
            with pytest.raises(RuntimeError, match="a bug"):
                await host.task

    async def after() -> None:
        async with running(tmp_path) as host:
            assert set(host.shell.controller.core.runs) == {"r"}

    run(before)
    run(after)


def test_a_refused_request_that_is_taken_later_is_answered_anew(tmp_path: Path) -> None:
    async def part() -> None:
        async with running(tmp_path, max_in_flight=1, max_queued=0) as host:
            host.shell.say(submitted("first"))
            host.shell.say(submitted("r"))
            answers = [message async for message in host.shell.follow("r")]
            assert isinstance(answers[0], Answer)
            assert answers[0].answer["status"] == "refused"
            host.shell.say({"type": "Cancelled", "request_id": "first", "reason": ""})
            host.shell.say(submitted("r"))
            host.shell.say({"type": "Cancelled", "request_id": "r", "reason": "enough"})
            await until(lambda: "r" in host.shell.controller.core.runs)
            (answer,) = [message async for message in host.shell.follow("r")]
            assert isinstance(answer, Answer)
            assert (answer.answer["status"], answer.answer["reason"]) == ("cancelled", "enough")

    run(part)


def test_nothing_is_kept_for_who_follows_a_request_that_there_never_was(tmp_path: Path) -> None:
    async def part() -> None:
        async with running(tmp_path) as host:
            for name in ("x", "y", "y"):
                (await host.call("c", "client")).send({"type": "Follow", "request_id": name})
            await until(lambda: set(host.shell.feeds._feeds) == {"x", "y"})
            host.opened[0].close()
            host.opened[1].close()
            await until(lambda: set(host.shell.feeds._feeds) == {"y"})
            host.shell.say(submitted("y"))
            host.shell.say({"type": "Cancelled", "request_id": "y", "reason": "x"})
            assert (await heard(host.opened[2], "Answer"))["request_id"] == "y"

    run(part)


def test_a_plan_bears_the_time_when_it_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a trace shows plans that took no time."""
    planned = PlanService.planned

    async def slowly(*arguments: Any) -> Planned:
        await asyncio.sleep(0.05)
        return await planned(*arguments)

    monkeypatch.setattr(PlanService, "planned", slowly)

    async def part() -> None:
        async with running(tmp_path) as host:
            times: dict[str, float] = {}
            host.shell.watch(lambda event, _: times.setdefault(type(event).__name__, event.at) and None)
            host.shell.say(submitted())
            await until(lambda: "Planned" in times)
            assert times["Planned"] - times["Submitted"] >= 0.05

    run(part)


def test_sockets_are_read_no_faster_than_events_are_handled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MOST_WAITING", 20)
    most = 0

    async def part() -> None:
        nonlocal most
        async with running(tmp_path) as host:
            put = host.shell.put

            def counted(event: Event, body: bytes | None = None) -> None:
                nonlocal most
                put(event, body)
                most = max(most, len(host.shell._queue))

            host.shell.put = counted  # type: ignore[method-assign]
            client = await host.call("c", "client")
            for n in range(300):
                client.send({"type": "Cancelled", "request_id": f"r{n}", "reason": "x"})
            client.send(submitted("last"))
            await until(lambda: "last" in host.shell.controller.core.runs)

    run(part)
    assert 0 < most <= 21


def test_work_that_no_frame_holds_fails_its_request_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def part() -> None:
        async with running(tmp_path) as host:
            workers = await host.workers()
            await until(lambda: len(host.shell.state()["workers"]) == len(workers))
            monkeypatch.setattr(frames, "LONGEST", 3000)
            host.shell.say(submitted("large") | {"inputs": {"text": "x" * 4000}})
            async for message in host.shell.follow("large"):
                if isinstance(message, Answer):
                    reason = message.answer["reason"]
                    assert (message.answer["status"], message.answer["stages"]["tokenize"]["attempts"]) == ("failed", 1)
                    assert re.search(r"a frame of type 'Start' has 4\d{3} bytes: expected at most 3000", reason)
            host.shell.say(submitted("small"))
            assert (await heard(workers["host/cpu"], "Start"))["request_id"] == "small"

    run(part)


def test_an_answer_that_no_frame_holds_is_told_as_such_to_who_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def part() -> None:
        async with running(tmp_path) as host:
            client = await host.call("first", "client")
            monkeypatch.setattr(frames, "LONGEST", 3000)
            whole = refusal("large", "") | {"status": "complete", "text": "x" * 4000, "seconds": 2.5}
            host.shell.feeds.answer(Answer("large", whole))
            host.shell.feeds.answer(Answer("small", refusal("small", "no")))
            host.shell.feeds.stream(Stream("stream", "decode", 0, (1,), "x" * 4000))
            client.send({"type": "Follow", "request_id": "large"})
            told = (await heard(client, "Answer"))["answer"]
            assert (told["request_id"], told["status"], told["text"], told["seconds"]) == ("large", "failed", "", 2.5)
            assert re.fullmatch(
                r"it ended as complete, but its answer cannot be sent: "
                r"a frame of type 'Answer' has 4\d{3} bytes: expected at most 3000",
                told["reason"],
            )
            client.send({"type": "Follow", "request_id": "small"})
            assert (await heard(client, "Answer"))["answer"]["reason"] == "no"
            client.send({"type": "Follow", "request_id": "stream"})
            wrong = await heard(client, "wrong")
            assert (wrong["request_id"], "'Stream' has 4" in wrong["reason"]) == ("stream", True)

    run(part)


def test_a_state_beyond_a_frame_is_told_as_far_as_one_holds_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def part() -> None:
        async with running(tmp_path, max_queued=64) as host:
            for number in range(60):
                host.shell.say(submitted(f"request-{number:03}"))
            await until(lambda: len(host.shell.controller.core.runs) == 60)
            monkeypatch.setattr(frames, "LONGEST", 4000)
            state = await Client(host.address, SECRET).state()
            assert list(state["requests"])[-1] == "request-059"
            assert len(state["requests"]) + state["left_out"] == 60
            assert 20 < state["left_out"] < 60

    run(part)


def test_starts_go_to_workers_alone(tmp_path: Path) -> None:
    """A command for a worker that is away is not lost: it is made again when it is back."""

    async def part() -> None:
        async with running(tmp_path) as host:
            sent: list[Start] = []
            runs = host.shell.controller.core.runs
            host.shell.watch(lambda _, commands: sent.extend(c for c in commands if isinstance(c, Start)))
            connections = await host.workers()
            await until(lambda: len(host.shell.state()["workers"]) == 5)
            connections["host/cpu"].close()
            await until(lambda: not host.shell.state()["workers"]["host/cpu"]["usable"])
            host.shell.say(submitted())
            await until(lambda: "r" in runs and runs["r"].planned == 1)
            assert sent == []
            again = await host.worker("host", "cpu")
            assert (await heard(again, "Start"))["stage"] == "tokenize"

    run(part)


def test_another_request_under_a_known_id_hears_nothing_of_it(tmp_path: Path) -> None:
    async def part() -> None:
        async with running(tmp_path) as host:
            first, second = [await host.call(name, "client") for name in ("first", "second")]
            other = submitted() | {"inputs": {"text": "y"}}
            for client, frame in ((first, submitted()), (second, other), (second, submitted("mine"))):
                client.send(frame)
                client.send({"type": "Follow", "request_id": frame["request_id"]})
                await until(lambda name=frame["request_id"]: name in host.shell.controller.core.runs)
            refused = await heard(second, "wrong")
            assert refused["request_id"] == "r"
            assert "another request bears this id, with other inputs" in refused["reason"]
            for name in ("r", "mine"):
                first.send({"type": "Cancelled", "request_id": name, "reason": "enough"})
            assert (await heard(first, "Answer"))["request_id"] == "r"
            assert (await heard(second, "Answer"))["request_id"] == "mine"
            with pytest.raises(InputError, match="another request bears this id, with other inputs"):
                [m async for m in Client(host.address, SECRET).run("r", other["request"], other["inputs"])]
            late = Run(host.shell, "r", {name: other[name] for name in ("request", "inputs")} | {"priority": None})
            late.cancel()
            with pytest.raises(InputError, match="another request bears this id, with other inputs"):
                await late.answer()

    run(part)


def test_an_id_may_bear_another_request_once_its_answer_is_acknowledged(tmp_path: Path) -> None:
    async def part() -> None:
        async with running(tmp_path) as host:
            for text in ("x", "y"):
                asked = {"request": submitted()["request"], "inputs": {"text": text}, "priority": None}
                mine = Run(host.shell, "r", asked)
                mine.cancel(text)
                assert (await mine.answer())["reason"] == text

    run(part)
