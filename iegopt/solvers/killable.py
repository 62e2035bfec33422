"""Back ends that really stop: a run in a child process, killed when its limit and a grace are over.

Engines overrun their limits (HiGHS by factors, CP-SAT in presolve) and cannot be interrupted from inside
the process. The child streams every better plan and bound, so that what it had found is not lost with it.
Plans are checked again and priced on this side of the pipe.

One idle child is kept warm per process (starting one costs the import of an engine, about half a second and more on a
busy machine); calls from several threads at once get children of their own. A time limit includes that start. A limit
that is shorter than the start of a process alone is refused at once, and the start comes after it. A child that is
still importing when the limit comes is not killed but kept for the next call, and one that is killed leaves a
successor, which imports at once: calls with short limits get their answers as soon as an engine is ready.
"""

from __future__ import annotations

import atexit
import dataclasses
import os
import sys
import threading
import time

import numpy as np
import numpy.typing as npt

from iegopt.errors import BackendError
from iegopt.problem.arrays import Problem
from iegopt.solvers.child import Child
from iegopt.solvers.clock import pressure
from iegopt.solvers.incumbent import Incumbent
from iegopt.solvers.result import Params, Result, unheard
from iegopt.solvers.worker import Job

__all__ = ["GRACE", "Child", "grace_for", "load", "run_killable", "stop_children"]

Ints = npt.NDArray[np.int64]

GRACE = 0.5
"""Seconds after the limit until the child is killed, at most."""

_SPAWN = 0.02
"""Seconds that the start of a process may keep this one from its work: it is copied for it, page tables and all."""
_STARTING = "the time limit came while the engine was still being loaded, which goes on for the next call"


def grace_for(limit: float | None) -> float:
    """Seconds of grace after a limit: short limits are meant, so they get half of themselves and 50 ms."""
    return GRACE if limit is None else min(GRACE, 0.05 + limit / 2)


def run_killable(
    function: str,
    problem: Problem,
    params: Params,
    hint: Ints | None,
    *,
    solver: str,
    grace: float | None = None,
) -> Result:
    """Run ``function`` (``"package.module:name"``, called with problem, params, hint, report) in a child.

    Parameters
    ----------
    params
        ``time_limit`` seconds, which include the start of the child; ``None`` waits for ever. Where the start takes
        longer, nothing is solved, the note says so, and the child goes on starting for the next call.
    solver
        Name of the solver in the result.
    grace
        Seconds after the limit until the child is killed; ``grace_for`` the limit, where not given.

    Raises
    ------
    BackendError
        The engine raised, or its process died before anything was found.
    InternalError
        A bug that showed in the child.
    """
    began = time.monotonic()
    best = Incumbent(problem, solver, hint, params.report)
    grace = grace_for(params.time_limit) if grace is None else grace
    until = None if params.time_limit is None else began + params.time_limit + grace
    if params.time_limit is not None and params.time_limit < _SPAWN * pressure() and not _idle:
        _start_later(function, params.time_limit + _SPAWN)
        return best.result(time.monotonic() - began, note=_STARTING)
    child = _take()
    bare = dataclasses.replace(params, log=None, report=unheard)
    job = Job(
        function, dataclasses.replace(problem, meta={}), bare, hint, params.log is not None, began, tuple(sys.path)
    )
    healthy = False
    try:
        child.prepare(function)
        if not child.ready(None if params.time_limit is None else began + params.time_limit):
            healthy = True
            return best.result(time.monotonic() - began, note=_STARTING)
        child.send(job)
        while True:
            message = child.receive(until)
            if message is None:
                note = f"killed {grace:g} s after its time limit"
                return best.result(time.monotonic() - began, note=note)
            kind, *content = message
            if kind == "progress":
                best.take(*content)
            elif kind == "log" and params.log is not None:
                params.log(content[0])
            elif kind == "result":
                healthy = True
                result: Result = content[0]
                return dataclasses.replace(result, seconds=time.monotonic() - began)
            elif kind == "error":
                healthy = True
                raise content[0]
            elif kind == "died":
                code = content[0]
                how = f"signal {-code}" if code < 0 else f"code {code}"
                return _kept(best, solver, f"its process ended with {how}", time.monotonic() - began)
            elif kind == "exhausted":
                return _kept(best, solver, "out of memory", time.monotonic() - began)
    finally:
        if healthy:
            _give_back(child)
        else:
            _drop(child)
            _start_successor(function)


def _kept(best: Incumbent, solver: str, how: str, seconds: float) -> Result:
    """What an engine had found before it failed."""
    if best.choice is None:
        raise BackendError(f"{solver}: {how}")
    return best.result(seconds, note=how)


_idle: list[Child] = []
_busy: set[Child] = set()
_lock = threading.Lock()
_later: threading.Timer | None = None


def _take() -> Child:
    with _lock:
        while _idle:
            child = _idle.pop()
            if child.alive():
                break
            child.kill()
        else:
            child = Child()
        _busy.add(child)
        return child


def _give_back(child: Child) -> None:
    with _lock:
        _busy.discard(child)
        if not _idle:
            _idle.append(child)
            return
    child.kill()


def _drop(child: Child) -> None:
    with _lock:
        _busy.discard(child)
    child.kill()


def load(function: str) -> None:
    """Have an idle child that has imported what ``function`` needs, so that the next call's limit is for solving alone.

    Raises
    ------
    BackendError
        The child died over it.
    """
    child = _take()
    child.prepare(function)
    child.ready(None)
    if not child.alive():
        _drop(child)
        raise BackendError(f"{function}: its process ended while it was being loaded")
    _give_back(child)


def _start_successor(function: str) -> None:
    """Have an idle child ready for the next call of ``function``."""
    with _lock:
        if not _idle:
            child = Child()
            child.prepare(function)
            _idle.append(child)


def _start_later(function: str, seconds: float) -> None:
    """``_start_successor`` in so many seconds, where that is not to come yet."""
    global _later
    with _lock:
        if _later is None or not _later.is_alive():
            _later = threading.Timer(seconds, _start_successor, (function,))
            _later.daemon = True
            _later.start()


def stop_children() -> None:
    """Kill every child of this process, idle or busy; the next run starts a new one."""
    with _lock:
        later = _later
    if later is not None:
        later.cancel()
        later.join()
    with _lock:
        children = [*_idle, *_busy]
        _idle.clear()
        _busy.clear()
    for child in children:
        child.kill()


def _forget_children() -> None:
    """After a fork the children belong to the other process."""
    global _lock, _later
    _lock, _later = threading.Lock(), None
    _idle.clear()
    _busy.clear()


atexit.register(stop_children)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_children)
