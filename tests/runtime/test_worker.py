"""A worker process as its controller sees it: what it says, what it forgets, and when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from iegopt.control.messages import AttemptKey
from iegopt_runtime.errors import Refused, RuntimeFault
from iegopt_runtime.net import frames
from iegopt_runtime.net.address import Address
from iegopt_runtime.net.connection import Connection, Listener
from iegopt_runtime.workers.attempts import EndedAttempts, RunningAttempt
from iegopt_runtime.workers.executor import Attempt, Document, WorkerState
from iegopt_runtime.workers.plain import PlainExecutor
from iegopt_runtime.workers.worker import Identity, Worker

SECRET = b"s" * 16
WHO = Identity("d/cpu", "d", "cpu", {"host": "h"}, 4)
START = {
    "type": "Start", "worker": "d/cpu", "request_id": "r", "stage": "tokenize", "attempt": 1, "kind": "tokenize",
    "work": {}, "limits": {"timeout": None},
}  # fmt: skip


class Holder(PlainExecutor):
    """Answers with ``result`` and holds KV of the request until it is told to forget it."""

    def __init__(self, result: Document) -> None:
        self.result, self.held, self.broken = result, set[str](), False

    async def run(self, kind: str, work: Document, attempt: Attempt) -> Document:
        self.held.add("pushed")
        return self.result

    def forget(self, request_id: str) -> None:
        self.held.discard(request_id)

    def holds(self) -> set[str]:
        return self.held

    def kv(self) -> set[str]:
        return {f"{request_id}/decode" for request_id in self.held}

    def state(self) -> WorkerState:
        if self.broken:
            raise RuntimeFault("the engine has ended")
        return WorkerState()


def served(
    folder: Path, executor: Holder, controller: Callable[[Connection], Awaitable[None]], *, ends: bool = False
) -> None:
    """Run a worker until its controller's part is over, or until it ends of itself."""

    async def run() -> None:
        over = asyncio.Event()

        async def serve(connection: Connection) -> None:
            try:
                await controller(connection)
            finally:
                over.set()

        async with Listener(SECRET, serve) as listener:
            address = await listener.listen(Address(path=str(folder / "s")))
            working = asyncio.create_task(Worker(WHO, executor, address, SECRET, 0.02).run())
            async with asyncio.timeout(20):
                await (working if ends else over.wait())
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)

    asyncio.run(run())


def test_seconds_that_an_attempt_ran_are_told_without_its_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([10.0, 12.0, 15.0, 16.0])
    monkeypatch.setattr("iegopt_runtime.workers.attempts.time.monotonic", lambda: next(clock))
    said: list[dict[str, Any]] = []
    attempt = RunningAttempt(AttemptKey("r", "decode", 1), "w", said.append)
    attempt.waiting("kv")
    attempt.resumed()
    assert attempt.last("Finished", result={})["seconds"] == 3.0
    assert [frame["type"] for frame in said] == ["Waiting", "Resumed"]


async def heard(connection: Connection, kind: str) -> dict[str, Any]:
    while True:
        frame = await connection.receive()
        assert frame is not None
        if frame["type"] == kind:
            return frame


async def until_it_ends(connection: Connection) -> None:
    while await connection.receive() is not None:
        pass


def test_it_says_what_it_holds_until_it_is_told_to_forget_it(tmp_path: Path) -> None:
    async def controller(connection: Connection) -> None:
        assert (await heard(connection, "Registered"))["holds"] == []
        connection.send(START)
        await heard(connection, "Finished")
        assert (await heard(connection, "Heartbeat"))["holds"] == ["pushed", "r"]
        connection.send({"type": "Introduce", "worker": "d/cpu"})
        again = await heard(connection, "Registered")
        assert (again["holds"], len(again["finished"])) == (["pushed", "r"], 1)
        assert again["kv"] == ["pushed/decode"]
        for request_id in again["holds"]:
            connection.send({"type": "Forget", "worker": "d/cpu", "request_id": request_id})
        while (await heard(connection, "Heartbeat"))["holds"]:
            pass

    served(tmp_path, Holder({"tokens": [1]}), controller)


def test_a_result_that_no_frame_holds_is_a_failure_of_its_stage_alone(tmp_path: Path) -> None:
    async def controller(connection: Connection) -> None:
        connection.send(START)
        assert "cannot be sent" in (await heard(connection, "Failed"))["message"]
        connection.send(START)  # asked again it says the same
        assert "cannot be sent" in (await heard(connection, "Failed"))["message"]

    served(tmp_path, Holder({"tokens": 2**70}), controller)


def test_one_that_drains_says_so_to_a_controller_that_comes_back(tmp_path: Path) -> None:
    async def run() -> list[str]:
        said: list[str] = []
        dismissed = asyncio.Event()

        async def serve(connection: Connection) -> None:
            if not said:
                said.append("cut")
                return
            await heard(connection, "Registered")
            await heard(connection, "Draining")
            connection.send({"type": "Dismiss", "worker": "d/cpu"})
            said.append("dismissed")
            await dismissed.wait()

        async with Listener(SECRET, serve) as listener:
            address = await listener.listen(Address(path=str(tmp_path / "s")))
            worker = Worker(WHO, Holder({}), address, SECRET, 0.02)
            worker.drain()  # nobody hears it yet
            async with asyncio.timeout(20):
                await worker.run()
            dismissed.set()
        return said

    assert asyncio.run(run()) == ["cut", "dismissed"]


def test_it_ends_where_the_controller_finds_it_wrong(tmp_path: Path) -> None:
    async def controller(connection: Connection) -> None:
        connection.send({"type": "wrong", "reason": "device d is not in the cluster"})
        await until_it_ends(connection)

    with pytest.raises(Refused, match="device d is not in the cluster"):
        served(tmp_path, Holder({}), controller, ends=True)


def test_it_ends_where_its_executor_has_broken_down(tmp_path: Path) -> None:
    """It would else give signs of life no more, or live on and fail whatever it gets."""
    executor = Holder({})

    async def controller(connection: Connection) -> None:
        await heard(connection, "Heartbeat")
        executor.broken = True
        await until_it_ends(connection)

    with pytest.raises(RuntimeFault, match="the engine has ended"):
        served(tmp_path, executor, controller, ends=True)


def ended(number: int, size: int) -> tuple[RunningAttempt, dict[str, Any]]:
    attempt = RunningAttempt(AttemptKey("r", f"s{number}", 1), "w", lambda frame: None)
    return attempt, attempt.frame("Finished", result={"text": "x" * size})


def test_results_are_told_newest_first_as_far_as_a_frame_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames, "LONGEST", 8000)  # a list may take 1000 of them
    kept = EndedAttempts()
    for number in range(5):
        kept.keep(*ended(number, 200))
    assert [frame["stage"] for frame in kept.newest()] == ["s2", "s3", "s4"]
    assert kept.get(AttemptKey("r", "s0", 1)) == ended(0, 200)[1]
    kept.keep(*ended(5, 2000))
    assert kept.newest() == []
    kept.forget("r")
    assert kept.requests() == set()


@pytest.mark.parametrize(
    ("result", "reason"),
    [
        ({"vectors": [[float("nan")]]}, "stage s: end.result.vectors.0.0: nan: expected a finite number"),
        ({"text": "x" * 9000}, "a frame of type 'Finished' has 9087 bytes: expected at most 8000"),
    ],
)
def test_what_a_controller_would_refuse_is_kept_as_a_failure(
    result: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether there is a connection at the moment or not: the worker itself would be refused for it later."""
    monkeypatch.setattr(frames, "LONGEST", 8000)
    attempt = RunningAttempt(AttemptKey("r", "s", 1), "w", lambda frame: None)
    said = EndedAttempts().keep(attempt, attempt.last("Finished", result=result))
    assert (said["type"], said["cause"], said["message"]) == ("Failed", "error", reason)


def test_results_beyond_a_frame_are_asked_for_again_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One frame with all of them was refused, and the worker lost for good."""
    monkeypatch.setattr(frames, "LONGEST", 8000)
    stages = [f"s{number}" for number in range(12)]

    async def controller(connection: Connection) -> None:
        await heard(connection, "Registered")
        for stage in stages:
            connection.send(START | {"stage": stage})
        for _ in stages:
            await heard(connection, "Finished")
        connection.send({"type": "Introduce", "worker": "d/cpu"})
        again = await heard(connection, "Registered")
        assert (len(again["finished"]), again["holds"]) == (1, ["pushed", "r"])
        connection.send(START | {"stage": "s3"})
        assert (await heard(connection, "Finished"))["result"] == {"text": "x" * 700}

    served(tmp_path, Holder({"text": "x" * 700}), controller)


def test_a_controller_that_is_not_understood_is_called_again_after_a_growing_pause(tmp_path: Path) -> None:
    told: list[str] = []

    async def run() -> list[float]:
        met: list[float] = []

        async def serve(connection: Connection) -> None:
            met.append(asyncio.get_running_loop().time())
            connection.send({"type": "Stopp"})
            await until_it_ends(connection)

        async with Listener(SECRET, serve) as listener:
            address = await listener.listen(Address(path=str(tmp_path / "s")))
            working = asyncio.create_task(Worker(WHO, Holder({}), address, SECRET, 10.0, told.append).run())
            while len(met) < 4:
                await asyncio.sleep(0.005)
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        return met

    first, *_, before, last = asyncio.run(run())
    assert last - before >= 0.08  # 20 ms, 40, 80
    assert last - first >= 0.14
    assert told[0] == "d/cpu calls its controller anew: a command: type: Stopp: no such message. Maybe Stop?"
