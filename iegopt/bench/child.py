"""The process in which one engine runs: ``python -m iegopt.bench.child``, never started by hand.

``("warm", engine, threads)`` imports what it needs, loads compiled kernels for a solver of ours and, unless it wants a
fresh process a run, lets it solve a toy, so that no run pays for the first; HiGHS keeps the threads of its first run
for good. ``("run", pickled problem, params, hint)`` solves; every plan and bound goes back with its time.
"""

from __future__ import annotations

import importlib
import os
import pickle
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from iegopt.bench.engine import Engine
from iegopt.bench.engines import engine
from iegopt.bench.memory import forget_peak, peak_bytes
from iegopt.bench.ours import Ours
from iegopt.bench.public.stg import task_graph
from iegopt.problem.arrays import TICKS_PER_SECOND, Problem
from iegopt.problem.families import generate
from iegopt.solvers.exact.compiled import warmup
from iegopt.solvers.result import Params
from iegopt.solvers.worker import serve

__all__: list[str] = []

Ints = npt.NDArray[np.int64]
Send = Callable[..., None]
_TOY_SECONDS = 0.5
"""A local search uses all of it."""
_chosen: list[Engine] = []


def main() -> None:
    """Serve until the input ends."""
    with open(os.devnull, "wb") as nothing:
        os.dup2(nothing.fileno(), 2)  # what engines print is not ours; a death is told by its code
    serve(_work)


def _work(message: tuple[Any, ...], send: Send) -> None:
    kind, *content = message
    try:
        if kind == "warm":
            _warm(*content)
            send("ready")
        else:
            _run(send, *content)
    except MemoryError:
        send("error", "out of memory")
    except Exception as error:  # noqa: BLE001 - it becomes a row of the results
        send("error", " ".join(f"{type(error).__name__}: {error}".split()))


def _warm(name: str, threads: int) -> None:
    chosen = engine(name)
    for package in chosen.packages:
        importlib.import_module(package)
    _chosen[:] = [chosen]
    if isinstance(chosen, Ours):
        warmup(compile=False)
    if chosen.fresh:
        return
    second = TICKS_PER_SECOND
    for toy in (generate("agent", 3, 8, "tight", 0), task_graph("toy", (second, second), ((), (0,)), 2)):
        if chosen.supports(toy) is None:
            chosen.solve(toy, Params(time_limit=_TOY_SECONDS, threads=threads), None, lambda *_: None)
            return


def _run(send: Send, problem: bytes, params: Params, hint: Ints | None) -> None:
    loaded: Problem = pickle.loads(problem)
    forget_peak()
    send("started")
    began = time.perf_counter()

    def report(choice: Ints | None, bound: int | None, proof: str | None, start: Ints | None = None) -> None:
        send("point", time.perf_counter() - began, choice, bound, proof, start)

    result = _chosen[0].solve(loaded, params, hint, report)
    seconds = time.perf_counter() - began
    send("result", seconds, result, peak_bytes())


if __name__ == "__main__":
    main()
