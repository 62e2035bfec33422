"""The shell with a worker in the same loop: a journal that begins anew, answers that lie, what a worker says."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from benchmarks.runtime_overhead import DEVICE, Fixed
from iegopt.control.messages import Accepted, Answer, Command, Event, Finished, Stream
from iegopt.control.policy import ControlPolicy
from iegopt_runtime.net import frames
from iegopt_runtime.net.address import Address
from iegopt_runtime.shell import shell as shell_module
from iegopt_runtime.shell.feeds import Feeds
from iegopt_runtime.shell.journal import Journal
from iegopt_runtime.shell.shell import Shell
from iegopt_runtime.workers.executor import Attempt, Document
from iegopt_runtime.workers.plain import PlainExecutor
from iegopt_runtime.workers.worker import Identity, Worker

SECRET = b"s" * 32
ROUTERS = {"graph": {"name": "three", "stages": [{"id": name, "type": "router"} for name in "abc"],
                     "edges": [{"from": "a", "to": "b"}, {"from": "b", "to": "c"}]}}  # fmt: skip


class Held(PlainExecutor):
    """Ends every stage at once but ``b``, which waits until it may go on."""

    def __init__(self) -> None:
        self.begun, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
        if attempt.stage == "b":
            self.begun.set()
            await self.may_go_on.wait()
        return {"decision": "go"}


@asynccontextmanager
async def served(folder: Path, policy: ControlPolicy) -> AsyncIterator[Shell]:
    shell = Shell(policy, Journal(folder / "journal"), Fixed(), SECRET)  # type: ignore[arg-type]
    await shell.listen(Address(path=str(folder / "c.sock")))
    running = asyncio.create_task(shell.run())
    try:
        yield shell
    finally:
        running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running


@asynccontextmanager
async def worker(folder: Path, executor: PlainExecutor, slots: int = 4) -> AsyncIterator[None]:
    identity = Identity("host/cpu", DEVICE, "cpu", {"host": DEVICE}, slots)
    serving = asyncio.create_task(Worker(identity, executor, Address(path=str(folder / "c.sock")), SECRET).run())
    try:
        yield
    finally:
        serving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await serving


def submit(shell: Shell, name: str, request: dict[str, Any] = ROUTERS) -> None:
    shell.say({"type": "Submitted", "request_id": name, "request": request, "inputs": {}})


async def answer_of(shell: Shell, name: str) -> dict[str, Any]:
    async for message in shell.follow(name):
        last = message
    return last.answer  # type: ignore[union-attr]


def test_a_journal_that_began_anew_amid_a_request_carries_it_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shell_module, "_SAVE_ABOVE", 0)
    monkeypatch.setattr(shell_module, "_SAVE_TIMES", 0)

    async def play() -> dict[str, Any]:
        executor = Held()
        async with served(tmp_path, ControlPolicy()) as shell, worker(tmp_path, executor):
            submit(shell, "r")
            await executor.begun.wait()
            before = shell.controller.core
            assert shell._journal.size == shell._journal.saved > 0
        with Journal(tmp_path / "journal") as journal:
            assert list(journal.replay()) == []
            assert Shell(ControlPolicy(), journal, Fixed(), SECRET).controller.core == before  # type: ignore[arg-type]
        executor = Held()
        executor.may_go_on.set()
        async with served(tmp_path, ControlPolicy()) as shell, worker(tmp_path, executor):
            return await answer_of(shell, "r")

    answer = asyncio.run(asyncio.wait_for(play(), 30))
    assert answer["status"] == "complete"
    assert [answer["stages"][name]["attempts"] for name in "abc"] == [1, 2, 1]  # the worker was a new one


def test_results_of_a_long_absence_that_no_frame_holds_together_are_all_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"s{number}" for number in range(20)]
    routers = {"graph": {"name": "many", "stages": [{"id": name, "type": "router"} for name in names], "edges": []}}

    class Long(Held):
        begun_all = 0

        async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
            self.begun_all += 1
            await self.may_go_on.wait()
            return {"decision": "x" * 1000}

    async def play() -> dict[str, Any]:
        executor = Long()
        async with contextlib.AsyncExitStack() as stack:
            async with served(tmp_path, ControlPolicy()) as shell:
                await stack.enter_async_context(worker(tmp_path, executor, len(names)))
                submit(shell, "r", routers)
                while executor.begun_all < len(names):
                    await asyncio.sleep(0.001)
            monkeypatch.setattr(frames, "LONGEST", 10_000)
            executor.may_go_on.set()
            async with served(tmp_path, ControlPolicy()) as shell:
                return await answer_of(shell, "r")

    answer = asyncio.run(asyncio.wait_for(play(), 30))
    assert answer["status"] == "complete"
    assert {answer["stages"][name]["attempts"] for name in names} == {1}


def test_who_heard_some_tokens_before_a_journal_began_anew_hears_the_next_ones_after_it() -> None:
    async def heard(feeds: Feeds) -> list[Stream | Answer]:
        return [message async for message in feeds.follow("r")]

    pieces = [Stream("r", "decode", 0, (1, 2), "ab"), Stream("r", "decode", 2, (3,), "c")]
    feeds, again = Feeds(), Feeds()
    for piece in pieces:
        feeds.stream(piece)
    feeds.answer(Answer("refused", {"status": "refused"}))
    again.restore(json.loads(json.dumps(feeds.snapshot())))
    again.stream(Stream("r", "decode", 0, (1, 2, 3), "abc"))  # what a restarted controller says
    again.stream(Stream("r", "decode", 3, (4,), "d"))
    again.answer(Answer("r", {"tokens": [1, 2, 3, 4]}))
    assert asyncio.run(heard(again)) == [
        *pieces, Stream("r", "decode", 3, (4,), "d"), Answer("r", {"tokens": [1, 2, 3, 4]})
    ]  # fmt: skip
    assert again.snapshot()["refused"] == feeds.snapshot()["refused"]


def test_answers_that_nobody_acknowledges_are_dropped_in_the_end(tmp_path: Path) -> None:
    async def play() -> None:
        executor = Held()
        executor.may_go_on.set()
        async with served(tmp_path, ControlPolicy(answer_kept=0.05)) as shell, worker(tmp_path, executor):
            submit(shell, "r")
            submit(shell, "wrong", {"graph": {"name": "none", "stages": []}})
            assert (await answer_of(shell, "r"))["status"] == "complete"
            assert (await answer_of(shell, "wrong"))["status"] == "refused"
            assert set(shell.feeds._feeds) == {"r", "wrong"}
            while shell.state()["requests"] or shell.feeds._feeds:
                await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(play(), 30))


def test_who_follows_an_unknown_request_leaves_nothing_behind(tmp_path: Path) -> None:
    async def play() -> None:
        async with served(tmp_path, ControlPolicy()) as shell:
            following = asyncio.create_task(answer_of(shell, "unknown"))
            await asyncio.sleep(0)
            assert set(shell.feeds._feeds) == {"unknown"}
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following
            assert shell.feeds._feeds == {}

    asyncio.run(asyncio.wait_for(play(), 30))


def test_a_stage_that_ends_at_once_is_only_reported_as_finished(tmp_path: Path) -> None:
    said: list[tuple[str, str]] = []

    def watch(event: Event, commands: tuple[Command, ...]) -> None:
        if isinstance(event, Accepted | Finished):
            said.append((type(event).__name__, event.stage))

    async def play() -> None:
        executor = Held()
        async with served(tmp_path, ControlPolicy()) as shell, worker(tmp_path, executor):
            shell.watch(watch)
            submit(shell, "r")
            await executor.begun.wait()
            while ("Accepted", "b") not in said:
                await asyncio.sleep(0.001)
            executor.may_go_on.set()
            answer = await answer_of(shell, "r")
            assert answer["status"] == "complete"
            assert "b: RUNNING (device_ready_to_execute)" in shell.controller.story("r", "b")[2]

    asyncio.run(asyncio.wait_for(play(), 30))
    assert said == [("Finished", "a"), ("Accepted", "b"), ("Finished", "b"), ("Finished", "c")]
