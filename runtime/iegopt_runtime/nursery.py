"""The zygote as its parent sees it: starts children, hears of their ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from iegopt.errors import InputError
from iegopt_runtime.net.frames import encode, read_frame
from iegopt_runtime.processes import RUN_VARIABLE

__all__ = ["Child", "Nursery"]

_IMPORTING = 120.0
_ZYGOTES = 2
"""That may end under one start of a child, before that is given up."""
_DEAD = -signal.SIGKILL


class Child:
    """A forked process; ``code`` is its exit code once it has ended, negative for a signal."""

    def __init__(self, pid: int) -> None:
        self.pid, self.code = pid, None
        self._ended = asyncio.Event()

    code: int | None

    def end(self, code: int) -> None:
        """It has ended."""
        self.code = code
        self._ended.set()

    async def wait(self) -> int:
        await self._ended.wait()
        assert self.code is not None
        return self.code

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to it; nothing happens where it has ended."""
        if self.code is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class Nursery:
    """Starts command lines of iegopt in forked children.

    Parameters
    ----------
    run
        Id of the run, which all processes bear.
    preloaded
        Modules to import before the first fork.
    log
        Where the zygote itself writes.
    """

    def __init__(self, run: str, preloaded: Sequence[str], log: Path) -> None:
        self._run, self._preloaded, self._log = run, tuple(preloaded), log
        self._process: asyncio.subprocess.Process | None = None
        self._children: dict[int, Child] = {}
        self._started: asyncio.Queue[Child] = asyncio.Queue()
        self._listening: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def open(self) -> None:
        """Start it and wait until all is imported.

        Raises
        ------
        InputError
            Where it ends before, with the last line of its log.
        """
        paths = os.pathsep.join(path for path in sys.path if path)
        with self._log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "iegopt_runtime.zygote", *self._preloaded,
                stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=log, start_new_session=True,
                env=os.environ | {RUN_VARIABLE: self._run, "PYTHONPATH": paths},
            )  # fmt: skip
        assert self._process.stdout is not None
        try:
            ready = await asyncio.wait_for(read_frame(self._process.stdout), _IMPORTING)
        except TimeoutError as error:
            raise InputError(f"importing {', '.join(self._preloaded)} took longer than {_IMPORTING:g} s") from error
        if ready is None:
            lines = self._log.read_text(errors="replace").strip().splitlines()
            raise InputError(f"workers cannot be started: {lines[-1] if lines else 'no reason is told'}")
        self._listening = asyncio.create_task(self._listen(self._process.stdout))

    async def start(self, arguments: Sequence[str], log: Path) -> Child:
        """Fork a child that runs ``iegopt`` with these arguments, by a new zygote where the last one has ended.

        Raises
        ------
        InputError
            Where there can be none, or the new one ends as well.
        """
        asked = encode({"type": "start", "arguments": list(arguments), "log": str(log)})
        async with self._one_at_a_time:
            for _ in range(_ZYGOTES):
                await self._open_again()
                child = await self._asked(asked)
                if child is not None:
                    return child
        raise InputError(f"no worker can be started: the process that forks them has ended {_ZYGOTES} times")

    async def _open_again(self) -> None:
        """See to it that there is a zygote."""
        if self._listening is not None and not self._listening.done():
            return
        await self._ended()
        self._started = asyncio.Queue()
        await self.open()

    async def _asked(self, request: bytes) -> Child | None:
        """What the zygote has forked; ``None`` where it ended before."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._listening is not None
        self._process.stdin.write(request)
        started = asyncio.ensure_future(self._started.get())
        try:
            await asyncio.wait([started, self._listening], return_when=asyncio.FIRST_COMPLETED)
            return started.result() if started.done() else None
        finally:
            started.cancel()

    async def _listen(self, answers: asyncio.StreamReader) -> None:
        try:
            while (frame := await read_frame(answers)) is not None:
                pid = frame["pid"]
                if frame["type"] == "started":
                    self._children[pid] = Child(pid)
                    self._started.put_nowait(self._children[pid])
                else:
                    self._children.pop(pid).end(frame["code"])
        finally:
            for child in self._children.values():
                child.end(_DEAD)
            self._children.clear()

    async def close(self) -> None:
        """End it, and with it every child."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._process.wait(), 5.0)
        await self._ended()

    async def _ended(self) -> None:
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError):
                self._process.kill()
            await self._process.wait()
        if self._listening is not None:
            await asyncio.gather(self._listening, return_exceptions=True)
