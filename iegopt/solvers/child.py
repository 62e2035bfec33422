"""A child process that takes jobs and streams messages, and that can be killed with all it started.

Children are started as ``python -m iegopt.solvers.worker``, not through ``multiprocessing``, so that a user's script
needs no ``__main__`` guard.
"""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import iegopt
from iegopt.solvers.worker import Preparation, read_message, write_message

__all__ = ["Child"]


class Child:
    """A process that runs ``module`` (whose ``main`` is ``worker.serve``), and a thread that queues its output."""

    def __init__(self, module: str = "iegopt.solvers.worker") -> None:
        root = str(Path(iegopt.__file__).resolve().parent.parent)
        inherited = os.environ.get("PYTHONPATH")
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([root, inherited] if inherited else [root])}
        self.process = subprocess.Popen(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # a group of its own, for engines that are processes themselves (CBC)
        )
        self._ending = threading.Lock()
        self._prepared: set[str] = set()
        self._preparing = 0
        self._messages: queue.Queue[tuple[Any, ...]] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        while True:
            try:
                self._messages.put(read_message(self.process.stdout))
            except EOFError:
                self._messages.put(("died", self._end()))
                return

    def send(self, job: object) -> None:
        assert self.process.stdin is not None
        try:
            write_message(self.process.stdin, job)
        except BrokenPipeError:
            return  # the reader reports the death

    def prepare(self, function: str) -> None:
        """Have it import what ``function`` needs, where it was not told to before."""
        if function not in self._prepared:
            self._prepared.add(function)
            self._preparing += 1
            self.send(Preparation(function, tuple(sys.path)))

    def ready(self, until: float | None) -> bool:
        """Whether all it was told to prepare is imported by ``until`` on the monotonic clock, or it died over it."""
        while self._preparing:
            message = self.receive(until)
            if message is None:
                return False
            if message[0] == "died":
                self._messages.put(message)
                return True
            self._preparing -= 1
        return True

    def receive(self, until: float | None) -> tuple[Any, ...] | None:
        """The next message, or ``None`` once the monotonic clock is past ``until``."""
        left = None if until is None else min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
        try:
            return self._messages.get(timeout=left)
        except queue.Empty:
            return None

    def alive(self) -> bool:
        return self._reader.is_alive()

    def kill(self) -> None:
        """Kill and reap the child and what it started; returns when nothing of them is left."""
        self._end()
        self._reader.join()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            try:
                stream.close()
            except BrokenPipeError:
                continue  # unsent bytes of a job; the child is gone

    def _end(self) -> int:
        """Kill the process group while its leader is not reaped yet, and so its number not taken by another."""
        with self._ending:
            if self.process.returncode is None:
                if hasattr(os, "killpg"):
                    with contextlib.suppress(ProcessLookupError, PermissionError):  # it ended just now
                        os.killpg(self.process.pid, signal.SIGKILL)
                else:
                    self.process.kill()
            return self.process.wait()
