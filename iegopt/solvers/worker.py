"""The child process of ``killable``: ``python -m iegopt.solvers.worker``, never started by hand.

Standard input carries jobs, the original standard output carries messages, both as length-prefixed
pickles between a process and its own child. What engines print is dropped. The child ends when its
input does, in the middle of a job too: no orphan outlives its parent.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import pickle
import queue
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Any, NoReturn

import numpy as np
import numpy.typing as npt

from iegopt.errors import BackendError, InternalError
from iegopt.problem.arrays import Problem
from iegopt.solvers.result import Params

__all__ = ["Job", "Preparation", "read_message", "resolve", "serve", "write_message"]

Ints = npt.NDArray[np.int64]
HEADER = struct.Struct("<Q")


@dataclass(frozen=True, eq=False)
class Job:
    """One call of ``function`` (``"package.module:name"``), whose limit counts from ``submitted``.

    ``submitted`` is on the system-wide monotonic clock; ``path`` is the ``sys.path`` of the parent.
    """

    function: str
    problem: Problem
    params: Params
    hint: Ints | None
    logs: bool
    submitted: float
    path: tuple[str, ...]


@dataclass(frozen=True)
class Preparation:
    """Import what ``function`` needs, with the parent's ``sys.path``, and say so: jobs come later."""

    function: str
    path: tuple[str, ...]


def write_message(stream: IO[bytes], message: object) -> None:
    """Write one length-prefixed pickle and flush."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    stream.write(HEADER.pack(len(body)))
    stream.write(body)
    stream.flush()


def read_message(stream: IO[bytes]) -> Any:
    """Read one message.

    Raises
    ------
    EOFError
        The other end is gone.
    """
    (length,) = HEADER.unpack(_exactly(stream, HEADER.size))
    return pickle.loads(_exactly(stream, length))


def _exactly(stream: IO[bytes], count: int) -> bytes:
    data = stream.read(count)
    if len(data) < count:
        raise EOFError
    return data


def resolve(function: str) -> Callable[..., Any]:
    """The object named by ``"package.module:name"``."""
    module, name = function.split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def main() -> None:
    """Take jobs until the input ends."""
    serve(_work)


def serve(work: Callable[[Any, Callable[..., None]], None]) -> NoReturn:
    """Call ``work(message, send)`` for every message of the parent; ``send(kind, *content)`` answers."""
    inbox = os.fdopen(os.dup(0), "rb")
    outbox = os.fdopen(os.dup(1), "wb")
    with open(os.devnull, "r+b") as nothing:
        os.dup2(nothing.fileno(), 0)
        os.dup2(nothing.fileno(), 1)
    jobs: queue.Queue[Any] = queue.Queue()
    threading.Thread(target=_receive, args=(inbox, jobs), daemon=True).start()
    lock = threading.Lock()

    def send(kind: str, *content: object) -> None:
        with lock:
            write_message(outbox, (kind, *content))

    while True:
        work(jobs.get(), send)


def _receive(inbox: IO[bytes], jobs: queue.Queue[Any]) -> None:
    while True:
        try:
            jobs.put(read_message(inbox))
        except EOFError:
            if hasattr(os, "killpg") and os.getpgrp() == os.getpid():
                os.killpg(os.getpid(), signal.SIGKILL)  # with an engine that is a process of its own
            os._exit(0)


def _work(job: Job | Preparation, send: Callable[..., None]) -> None:
    sys.path[:] = [*job.path]
    if isinstance(job, Preparation):
        with contextlib.suppress(Exception):  # the job meets it again, and tells
            resolve(job.function)
        send("ready")
        return
    log = (lambda line: send("log", line)) if job.logs else None
    try:
        run = resolve(job.function)
        limit = job.params.time_limit
        left = None if limit is None else max(0.001, limit - (time.monotonic() - job.submitted))
        params = Params(left, job.params.threads, job.params.seed, log, job.params.check)
        result = run(job.problem, params, job.hint, lambda *content: send("progress", *content))
    except MemoryError:
        send("exhausted")
    except Exception as error:  # noqa: BLE001 — the parent raises it again
        ours = isinstance(error, BackendError | InternalError)
        told = error if ours else BackendError(f"{job.function}: {type(error).__name__}: {error}")
        told.add_note(traceback.format_exc())
        send("error", told)
    else:
        send("result", result)


if __name__ == "__main__":
    resolve("iegopt.solvers.worker:main")()  # in the module whose classes the messages are of
