"""One run of one engine in a process of its own, which is killed when limit and grace are over."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from iegopt.bench.engines import engine
from iegopt.bench.memory import peak_bytes
from iegopt.solvers.child import Child
from iegopt.solvers.result import Params, Result

__all__ = ["EngineProcess", "Outcome", "Point", "by_signal"]

Ints = npt.NDArray[np.int64]
_WARM_UP = 120.0
"""Seconds in which an engine must be imported and have solved a toy."""


@dataclass(frozen=True)
class Point:
    """After ``seconds``: a better plan (V,), with its start times (V,) in ticks where stages must not overlap, or a
    better bound in ticks with what proved it.
    """

    seconds: float
    choice: Ints | None
    bound: int | None
    proof: str | None
    start: Ints | None = None


@dataclass
class Outcome:
    """What a run left: its points, its result, or why there is none (``failure``: ``crashed`` or ``error``)."""

    seconds: float = 0.0
    points: list[Point] = field(default_factory=list)
    result: Result | None = None
    memory: int | None = None
    killed: bool = False
    failure: str | None = None
    reason: str | None = None


class EngineProcess:
    """A warm process for an engine and a number of threads, started again after a death."""

    def __init__(self, name: str, threads: int = 1) -> None:
        self.name = name
        self._threads = threads
        self._child: Child | None = None
        self._fresh = engine(name).fresh

    def run(self, problem: bytes, params: Params, hint: Ints | None, grace: float) -> Outcome:
        """Solve a pickled problem; the clock starts in the child, after warm-up and unpickling."""
        refused = self._warm_up()
        if refused is not None:
            return refused
        child = self._child
        assert child is not None
        outcome = Outcome()
        child.send(("run", problem, params, hint))
        until = None
        began = time.monotonic()
        while True:
            message = child.receive(until)
            kind, *content = message if message is not None else ("overrun",)
            if kind == "started":
                began = time.monotonic()
                until = None if params.time_limit is None else began + params.time_limit + grace
            elif kind == "point":
                outcome.points.append(Point(*content))
            else:
                break
        outcome.seconds = time.monotonic() - began
        if kind == "result":
            outcome.seconds, outcome.result, outcome.memory = content
        elif kind == "overrun":
            outcome.killed, outcome.reason = True, f"killed {grace:g} s after its limit"
            outcome.memory = peak_bytes(child.process.pid)
        else:
            outcome.failure, outcome.reason = _failure(kind, content[0])
        if kind != "result" or self._fresh:
            self.stop()
        return outcome

    def stop(self) -> None:
        """Kill the process; the next run starts another."""
        if self._child is not None:
            self._child.kill()
            self._child = None

    def _warm_up(self) -> Outcome | None:
        if self._child is not None:
            return None
        self._child = Child("iegopt.bench.child")
        self._child.send(("warm", self.name, self._threads))
        kind, *content = self._child.receive(time.monotonic() + _WARM_UP) or ("overrun",)
        if kind == "ready":
            return None
        self.stop()
        failure, reason = (
            ("error", f"{_WARM_UP:g} s were not enough") if kind == "overrun" else _failure(kind, *content)
        )
        return Outcome(failure=failure, reason=f"warming up: {reason}")


def _failure(kind: str, content: object) -> tuple[str, str]:
    if kind == "error":
        return "error", str(content)
    code = int(str(content))
    return "crashed", f"{_BY_SIGNAL} {-code}" if code < 0 else f"its process ended with code {code}"


_BY_SIGNAL = "its process ended with signal"


def by_signal(status: str, reason: str | None) -> bool:
    """Whether an ``Outcome`` tells of a process that a signal ended: anybody's, the system's for want of memory too."""
    return status == "crashed" and _BY_SIGNAL in (reason or "")
