"""Processes that must not outlive those who started them.

Every process of a run has the run's id in its environment, and hands it on to what it starts: whoever ends a run can
find all of them, whoever their parents were.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import os
import signal
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, NoReturn

__all__ = ["RUN_VARIABLE", "die_with_parent", "end_run", "of_run", "run_to_the_end", "until_terminated"]

RUN_VARIABLE = "IEGOPT_RUN"

_PR_SET_PDEATHSIG = 1
_LIBC = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends, however it ends: prctl(2), so on Linux alone."""
    if _LIBC is not None:
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def of_run(run: str) -> list[int]:
    """Process ids of a run, this process left out; empty where there is no /proc."""
    mark = f"{RUN_VARIABLE}={run}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # gone, or another user's
            if int(folder.name) != os.getpid() and mark in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def end_run(run: str) -> list[int]:
    """Kill what is left of a run; returns whom it met. One that forks meanwhile is met in the next round."""
    met: list[int] = []
    for _ in range(10):
        left = of_run(run)
        if not left:
            break
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        met += left
    return met


def run_to_the_end(work: Coroutine[Any, Any, None]) -> NoReturn:
    """Run what this process is for, and end it with code 0 when that is done; raises what ``work`` raises.

    It ends at once: threads that wait for a peer and the modules of torch would take seconds, and hold nothing that is
    still to be put away.
    """
    try:
        with asyncio.Runner() as runner:
            runner.run(work)
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    finally:
        gc.freeze()  # else the interpreter looks for garbage in all of torch


async def until_terminated(task: asyncio.Task[None]) -> None:
    """Wait for a task; SIGTERM and SIGINT cancel it, which is no error. Its own exception is raised."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task
