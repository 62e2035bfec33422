"""Processes that are kept alive, ended for good, and revived."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

import pytest

from iegopt.errors import InputError
from iegopt_runtime import supervise
from iegopt_runtime.errors import is_out_of_memory
from iegopt_runtime.run_folder import RunFolder
from iegopt_runtime.supervise import LocalWorker, Supervisor


class _Child:
    """A process that ends when it is told to."""

    def __init__(self) -> None:
        self.code: int | None = None
        self._ended = asyncio.Event()

    def end(self, code: int) -> None:
        self.code = code
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.code is not None
        return self.code

    def signal(self, number: signal.Signals) -> None:
        if number in (signal.SIGKILL, signal.SIGTERM):
            self.end(-number)


class _Nursery:
    def __init__(self) -> None:
        self.children: list[_Child] = []

    async def start(self, arguments: Sequence[str], log: Path) -> _Child:
        self.children.append(_Child())
        return self.children[-1]

    async def close(self) -> None: ...

    async def born(self, count: int) -> _Child:
        """The child of this number, once it is there."""
        async with asyncio.timeout(10):
            while len(self.children) < count:
                await asyncio.sleep(0.001)
        return self.children[count - 1]


class Kept:
    """A supervisor with one worker, ``w``, that has never registered by the time it ends."""

    def __init__(self, folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(supervise, "_FIRST_PAUSE", 0.0)
        self.nursery = _Nursery()
        self.told: list[str] = []
        self.up = False
        self.supervisor = Supervisor(folder, lambda name: self.up, tell=self.told.append)
        self.supervisor._nursery = self.nursery  # type: ignore[assignment]

    def run(self, play: Coroutine[Any, Any, None]) -> None:
        async def played() -> None:
            self.supervisor.start(LocalWorker("w", []))
            try:
                await play
            finally:
                await self.supervisor.close()

        asyncio.run(played())


@pytest.fixture
def kept(monkeypatch: pytest.MonkeyPatch) -> Any:
    folder = RunFolder()
    yield Kept(folder, monkeypatch)
    folder.close()


def test_a_worker_that_was_up_is_started_again_however_often_it_is_killed(kept: Kept) -> None:
    async def killed() -> None:
        for number in range(1, 8):
            child = await kept.nursery.born(number)
            kept.supervisor.came_up("w")
            child.end(-signal.SIGKILL if number % 2 else 1)
        await kept.nursery.born(8)

    kept.run(killed())


def test_a_worker_that_never_comes_up_is_given_up(kept: Kept) -> None:
    async def killed() -> None:
        for number in range(1, 4):
            (await kept.nursery.born(number)).end(-signal.SIGSEGV)
        with pytest.raises(InputError, match="worker w does not come up"):
            await kept.supervisor.ready(10)

    kept.run(killed())
    assert len(kept.nursery.children) == 3


def test_one_that_was_up_and_does_not_come_up_again_is_told_of_and_not_given_up(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(supervise, "_LONGEST_PAUSE", 0.01)

    async def killed() -> None:
        kept.up = True
        await kept.supervisor.ready(10)
        kept.up = False
        for number in range(1, 6):
            child = await kept.nursery.born(number)
            assert len(kept.told) == (number > 3)
            child.end(1)

    kept.run(killed())
    assert kept.told == ["worker w does not come up (code 1): it wrote nothing; it is started again every 0.01 s"]


def test_a_worker_that_can_be_started_no_more_is_told_of(kept: Kept) -> None:
    async def none(arguments: Sequence[str], log: Path) -> _Child:
        raise InputError("no worker can be started: the process that forks them has ended 2 times")

    async def killed() -> None:
        kept.up = True
        await kept.supervisor.ready(10)
        first = await kept.nursery.born(1)
        kept.nursery.start = none  # type: ignore[method-assign]
        first.end(-signal.SIGKILL)
        async with asyncio.timeout(10):
            while not kept.told:
                await asyncio.sleep(0.001)

    kept.run(killed())
    assert kept.told[0].endswith("has ended 2 times; it is not started again")


def test_a_worker_that_is_ended_for_good_stays_away_until_it_is_revived(kept: Kept) -> None:
    async def ended() -> None:
        first = await kept.nursery.born(1)
        kept.supervisor.came_up("w")
        kept.supervisor.signal(["w"], signal.SIGKILL, for_good=True)
        assert await first.wait() == -signal.SIGKILL
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(kept.nursery.children) == 1
        await kept.supervisor.revive(["w"])
        await kept.nursery.born(2)
        await kept.supervisor.revive(["w"])  # it is there
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(kept.nursery.children) == 2

    kept.run(ended())


@pytest.mark.parametrize(
    ("error", "short"),
    [
        (MemoryError(), True),
        (OSError(12, "Cannot allocate memory"), True),
        (OSError(2, "No such file"), False),
        (RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"), True),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 4 bytes"), True),
        (RuntimeError("can't start new thread"), True),
        (RuntimeError("shapes do not match"), False),
        (ValueError("out of memory"), False),
    ],
)
def test_memory_that_is_short_is_known_by_what_libraries_say(error: Exception, short: bool) -> None:
    assert is_out_of_memory(error) is short
