"""The process in which the CP-SAT model is solved: ``python -m iegopt.batch.cpsat_child``, never started by hand."""

from __future__ import annotations

import time
from collections.abc import Callable
from math import ceil, floor
from typing import Any

import numpy as np
from ortools.sat.python import cp_model

from iegopt.batch.cpsat import CpsatJob
from iegopt.batch.cpsat_limits import add_limits
from iegopt.batch.cpsat_model import UTILITY, Variables, losses, make_variables, unsupported
from iegopt.batch.placement import KEEP, MIGRATE, PREEMPT, Placement
from iegopt.solvers.cpsat.solver import careful_solver
from iegopt.solvers.worker import serve

__all__ = ["solve_levels"]

Send = Callable[..., None]


def main() -> None:
    """Serve until the input ends."""
    serve(_work)


def _work(job: CpsatJob, send: Send) -> None:
    try:
        reason = unsupported(job.model)
        if reason is not None:
            send("error", reason)
            return
        solve_levels(job, send)
    except Exception as error:  # noqa: BLE001 - the parent raises it again
        send("error", f"{type(error).__name__}: {error}")
    else:
        send("end")


def solve_levels(job: CpsatJob, send: Send) -> None:
    """One level after the other, each without losing any of those before; sends ``found`` and ``proven``."""
    v = make_variables(job.model)
    add_limits(v)
    if job.hint is not None:
        _hint(v, job.hint)
    levels = np.unique(np.concatenate([job.model.queue.priority, job.model.running.priority])).tolist()
    for n, level in enumerate(levels):
        worth = _worth(v, level)
        v.cp.maximize(worth)
        solver = careful_solver()
        left = job.until - time.monotonic()
        if left <= 0.0:
            return
        solver.parameters.max_time_in_seconds = left / (len(levels) - n)
        solver.parameters.num_workers = job.threads
        solver.parameters.random_seed = job.seed
        status = solver.solve(v.cp, _Sender(v, send))
        if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
            return
        placement = _placement(v, solver.value)
        send("found", placement)
        if status == cp_model.OPTIMAL:
            send("proven", n + 1)
        v.cp.add(worth >= round(solver.objective_value))
        v.cp.clear_hints()  # type: ignore[no-untyped-call]
        _hint(v, placement)


class _Sender(cp_model.CpSolverSolutionCallback):
    """Sends every better placement."""

    def __init__(self, v: Variables, send: Send) -> None:
        super().__init__()
        self._v, self._send = v, send

    def on_solution_callback(self) -> None:
        self._send("found", _placement(self._v, self.value))


def _worth(v: Variables, level: int) -> Any:
    """Utility less losses of a level, rounded to its loss."""
    model, queue = v.model, v.model.queue
    total: list[Any] = []
    for i in np.flatnonzero(queue.priority == level).tolist():
        weight = float(queue.weight[i])
        if queue.throughput[i] and (i, 0) in v.slow:
            for t, tau in enumerate(model.paces.tolist()):
                total.append(floor(weight * min(1.0, model.policy.reference_pace / tau) * UTILITY) * v.slow[i, t])
        else:
            total.append(floor(weight * UTILITY) * v.placed[i])
    aside, moved = losses(model)
    for r in np.flatnonzero(model.running.priority == level).tolist():
        total.append(-ceil(float(aside[r]) * UTILITY) * v.aside[r])
        missed = ceil(float(model.running.weight[r]) * UTILITY)
        total += [-ceil(float(moved[r, j]) * UTILITY) * v.move[r, j] - missed * v.late[r, j] for j in v.moves[r]]
    return sum(total) if total else v.phi[0] * 0


def _placement(v: Variables, value: Callable[[Any], int]) -> Placement:
    """The decisions of a solution."""
    found = Placement.empty(v.model)
    for (i, j), x in v.prefill.items():
        if value(x):
            found.prefill[i], found.fetch[i] = j, v.fetch[i, j]
    for (i, j), x in v.decode.items():
        if value(x):
            found.decode[i] = j
    found.pace[:] = -1
    for (j, t), x in v.pace.items():
        if value(x):
            found.pace[j] = t
    for r, x in enumerate(v.aside):
        if not isinstance(x, int) and value(x):
            found.action[r] = PREEMPT
    for (r, j), x in v.move.items():
        if value(x):
            found.action[r], found.to[r] = MIGRATE, j
    return found


def _hint(v: Variables, placement: Placement) -> None:
    """Start from a placement."""
    for (i, j), x in v.prefill.items():
        v.cp.add_hint(x, int(placement.prefill[i] == j))
    for (i, j), x in v.decode.items():
        v.cp.add_hint(x, int(placement.decode[i] == j))
    for (i, j), x in v.both.items():
        v.cp.add_hint(x, int(placement.prefill[i] == j == placement.decode[i]))
    for (j, t), x in v.pace.items():
        v.cp.add_hint(x, int(placement.pace[j] == t))
    for i, x in enumerate(v.placed):
        v.cp.add_hint(x, int(placement.prefill[i] >= 0))
    for (i, t), x in v.slow.items():
        q = int(placement.decode[i])
        v.cp.add_hint(x, int(q >= 0 and placement.pace[q] == t))
    for r, x in enumerate(v.keep):
        v.cp.add_hint(x, int(placement.action[r] == KEEP))
    for (r, j), x in v.move.items():
        v.cp.add_hint(x, int(placement.action[r] == MIGRATE and placement.to[r] == j))


if __name__ == "__main__":
    main()
