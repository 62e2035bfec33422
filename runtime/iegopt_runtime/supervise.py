"""Local workers: started, watched, started again when they end, and ended with the run."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from iegopt.errors import InputError
from iegopt_runtime.nursery import Child, Nursery
from iegopt_runtime.run_folder import RunFolder

__all__ = ["LocalWorker", "Supervisor"]

_FIRST_PAUSE, _LONGEST_PAUSE, _STEADY = 0.05, 2.0, 2.0
"""Seconds before a worker is started again, doubled up to the second figure, and after which it counts as steady."""

_FASTEST_DEATHS = 3
"""Ends in a row, each before the worker had registered, after which it is given up; told of, where it was up before."""

_TERM_GRACE = 3.0


@dataclass
class LocalWorker:
    """A worker process to keep alive: its name and the arguments of ``iegopt`` that start it.

    ``wanted``: whether it is started again when it ends.
    """

    name: str
    arguments: Sequence[str]
    process: Child | None = field(default=None, repr=False)
    wanted: bool = True


class Supervisor:
    """Keeps processes of a run alive; each writes to a log of its own in the run's folder.

    Parameters
    ----------
    is_registered
        Whether a worker of this name has registered.
    preloaded
        Modules that are imported once for all of them.
    tell
        Is told of those that do not come up again, when all were up already.
    """

    def __init__(
        self, folder: RunFolder, is_registered: Callable[[str], bool], preloaded: Sequence[str] = (),
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:  # fmt: skip
        self._folder, self._is_registered, self._tell = folder, is_registered, tell
        self._were_up = False
        self._nursery = Nursery(folder.run, ("iegopt.cli.main", *preloaded), self._log("zygote"))
        self.workers: list[LocalWorker] = []
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._came_up: set[str] = set()

    async def open(self) -> None:
        """Be ready to start workers; raises as ``Nursery.open``."""
        await self._nursery.open()

    def start(self, worker: LocalWorker) -> None:
        self.workers.append(worker)
        self._begin(worker)

    def _begin(self, worker: LocalWorker) -> None:
        task = self._tasks[worker.name] = asyncio.create_task(self._keep(worker))
        task.add_done_callback(self._is_over)

    def _is_over(self, task: asyncio.Task[None]) -> None:
        """Nobody waits any more for a worker to come up: why one does not would be lost."""
        if self._were_up and not task.cancelled() and (error := task.exception()) is not None:
            self._tell(f"{error}; it is not started again")

    def came_up(self, name: str) -> None:
        """A worker has registered: when it ends the next time, it was up before."""
        self._came_up.add(name)

    async def ready(self, timeout: float) -> None:
        """Wait until every worker has registered.

        Raises
        ------
        InputError
            Where one gives up before, with the end of its log, or takes longer than ``timeout`` seconds.
        """
        try:
            async with asyncio.timeout(timeout):
                while not all(self._is_registered(worker.name) for worker in self.workers):
                    for task in self._tasks.values():
                        if task.done():
                            task.result()
                    await asyncio.sleep(0.02)
            self._were_up = True
        except TimeoutError as error:
            missing = [worker.name for worker in self.workers if not self._is_registered(worker.name)]
            told = "; ".join(f"{name}: {self._told(name)}" for name in missing)
            raise InputError(f"after {timeout:g} s these workers are not up: {told}") from error

    def signal(self, names: Iterable[str], number: signal.Signals, *, for_good: bool = False) -> None:
        """Send a signal to workers at once; those that end of it ``for_good`` stay away until ``revive``."""
        for worker in self._named(names):
            worker.wanted = worker.wanted and not for_good
            if worker.process is not None:
                worker.process.signal(number)

    async def revive(self, names: Iterable[str]) -> None:
        """Start workers anew that were ended for good."""
        for worker in self._named(names):
            if not worker.wanted:
                await self._tasks[worker.name]
                worker.wanted = True
                self._begin(worker)

    def _named(self, names: Iterable[str]) -> list[LocalWorker]:
        known = {worker.name: worker for worker in self.workers}
        return [known[name] for name in names]

    async def _keep(self, worker: LocalWorker) -> None:
        pause, early = _FIRST_PAUSE, 0
        loop = asyncio.get_running_loop()
        while worker.wanted:
            begun = loop.time()
            self._came_up.discard(worker.name)
            worker.process = await self._nursery.start(worker.arguments, self._log(worker.name))
            if not worker.wanted:
                worker.process.signal(signal.SIGKILL)
            code = await worker.process.wait()
            if code == 0 or not worker.wanted:  # dismissed, or ended for good
                return
            early = 0 if worker.name in self._came_up or self._is_registered(worker.name) else early + 1
            if early and (early >= _FASTEST_DEATHS or code == 1):
                why = f"worker {worker.name} does not come up (code {code}): {self._told(worker.name)}"
                if not self._were_up:
                    raise InputError(why)
                if early == _FASTEST_DEATHS:
                    self._tell(f"{why}; it is started again every {_LONGEST_PAUSE:g} s")
            pause = _FIRST_PAUSE if loop.time() - begun > _STEADY else min(2 * pause, _LONGEST_PAUSE)
            await asyncio.sleep(pause)

    def _log(self, name: str) -> Path:
        return self._folder.logs / f"{name.replace('/', '_')}.log"

    def _told(self, name: str) -> str:
        """The last words of a worker's log."""
        with contextlib.suppress(OSError):
            lines = self._log(name).read_text(errors="replace").strip().splitlines()
            if lines:
                return lines[-1][:500]
        return "it wrote nothing"

    async def close(self) -> None:
        """Have the workers end, those that do not within seconds by force."""
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)
        running = [w.process for w in self.workers if w.process is not None and w.process.code is None]
        for process in running:
            process.signal(signal.SIGTERM)
            process.signal(signal.SIGCONT)  # one that was stopped hears of it only then
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_TERM_GRACE):
                await asyncio.gather(*(process.wait() for process in running))
        await self._nursery.close()
