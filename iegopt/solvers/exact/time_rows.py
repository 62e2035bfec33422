"""Limits in time as priced rows: the compute budget, and paths through the graph that end at a limit.

A stage with a limit L on its finish keeps it where every path into it does: Σ times of the path's stages + Σ transfers
over its edges ≤ L. There are too many paths to state, so one becomes a row when a relaxed plan is late on it. Row r
with price λ_r ≥ 0 adds λ_r per tick to the options and couplings on it, and −λ_r·L_r to the bound (section 6.4 of the
placement model). Prices are kept in ticks per unit of a row, a tenth of its limit, so that steps suit rows and devices.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from iegopt.problem.arrays import NO_LIMIT, TICKS_PER_SECOND, Problem
from iegopt.solvers.exact.couplings import Coupling

__all__ = ["Row", "TimeRows"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

MOST_ROWS = 256
_MOST_DUE = 2.0**56
"""Ticks that a plan may pay for time in all, however late: far below ``UNREACHABLE``."""
_UNIT = 0.1
_SAFE = 2.0**-44
"""Relative margin that keeps rates below, and rents above, what exact arithmetic gives."""


@dataclass(frozen=True)
class Row:
    """Stages and couplings whose times sum to ``limit`` ticks at most; ``end`` has the limit, ``None``: the budget."""

    stages: tuple[int, ...]
    couplings: tuple[int, ...]
    limit: int
    end: int | None


class TimeRows:
    """Rows of a problem; mutable: paths are added, none is taken away."""

    def __init__(self, problem: Problem, coupled: Sequence[Coupling]) -> None:
        self.problem = problem
        self.rows: list[Row] = []
        self._known: dict[Row, int] = {}
        self.ends = tuple((each.source, each.target) for each in coupled)
        self._stages = np.zeros((0, problem.V))
        self._couplings = np.zeros((0, len(coupled)))
        self.limit = np.zeros(0)
        self.finish_by = np.minimum(problem.finish_by, problem.deadline)
        into: list[list[tuple[int, int]]] = [[] for _ in range(problem.V)]
        for i, each in enumerate(coupled):
            if each.edge is not None:
                into[each.target].append((each.source, i))
        self.into = tuple(map(tuple, into))
        if problem.budget < NO_LIMIT:
            self.add(Row(tuple(problem.budget_stages), (), problem.budget, None))

    @property
    def timed(self) -> bool:
        """Whether there is any limit to keep."""
        return self.problem.has_path_limits or self.problem.budget < NO_LIMIT

    def __len__(self) -> int:
        return len(self.rows)

    def add(self, row: Row) -> int | None:
        """The number of a row, which is added unless it is known; ``None`` where there are too many."""
        if row in self._known or len(self.rows) >= MOST_ROWS:
            return self._known.get(row)
        self._known[row] = len(self.rows)
        self.rows.append(row)
        stages, couplings = np.zeros((1, self.problem.V)), np.zeros((1, len(self.ends)))
        np.add.at(stages[0], list(row.stages), 1.0)
        couplings[0, list(row.couplings)] = 1.0
        self._stages = np.concatenate([self._stages, stages])
        self._couplings = np.concatenate([self._couplings, couplings])
        self.limit = np.append(self.limit, float(row.limit))
        return len(self.rows) - 1

    @property
    def unit(self) -> Floats:
        """(R,) ticks of time that a price is for."""
        return np.maximum(_UNIT * self.limit, 1.0)

    @property
    def most(self) -> Floats:
        """(R, 1) ticks per unit that a price may reach."""
        if not self.rows:
            return np.zeros((0, 1))
        terms = MOST_ROWS * max(1, self.problem.V + len(self.ends))
        return np.floor(_MOST_DUE / terms / np.maximum(self._longest / self.unit, 1 / _UNIT))[:, None]

    @cached_property
    def _longest(self) -> float:
        return _longest(self.problem)

    def padded(self, toll: Floats) -> Floats:
        """(R, B) prices, 0 for the rows that came after ``toll`` (R', B) was set."""
        if len(toll) == len(self):
            return toll
        return np.concatenate([toll, np.zeros((len(self) - len(toll), toll.shape[1]))])

    def prices(self, toll: Floats) -> Floats:
        """(R, B) ticks of objective per tick of limit."""
        return np.asarray(toll / self.unit[:, None])

    def rates(self, toll: Floats) -> tuple[Floats, Floats]:
        """(V, B) and (couplings, B) ticks of cost per tick of time."""
        rate = self.prices(toll) * (1.0 - _SAFE)
        return self._stages.T @ rate, self._couplings.T @ rate

    def rent(self, toll: Floats) -> Ints:
        """(B,) ⌈Σ λ·L⌉, no less than what the rates stand for."""
        if not len(toll):
            return np.zeros(toll.shape[1], dtype=np.int64)
        due: Floats = (toll * (self.limit / self.unit)[:, None]).sum(axis=0)
        return np.ceil(due * (1.0 + _SAFE)).astype(np.int64)

    def excess(self, time: Ints, moved: Ints) -> Floats:
        """(R, B) by how many units plans exceed the rows, from the times of stages (V, B) and couplings (C, B)."""
        spent = self._stages @ time + self._couplings @ moved
        return np.asarray((spent - self.limit[:, None]) / self.unit[:, None])

    def add_late(self, time: Ints, moved: Ints) -> None:
        """Add the latest path of every plan (column) that is late."""
        if not self.problem.has_path_limits or len(self) >= MOST_ROWS:
            return
        finish = self.finish(time, moved)
        limited = np.flatnonzero(self.finish_by < NO_LIMIT)
        limit = self.finish_by[limited, None]
        late = (finish[limited] - limit) / np.maximum(limit, 1)
        for b in np.flatnonzero(late.max(axis=0) > 0).tolist():
            self.add(self._path(int(limited[late[:, b].argmax()]), finish[:, b], moved[:, b]))

    def finish(self, time: Ints, moved: Ints) -> Ints:
        """(V, B) ticks at which the stages of plans end."""
        finish = np.zeros_like(time)
        for v in self.problem.order.tolist():
            for u, e in self.into[v]:
                np.maximum(finish[v], finish[u] + moved[e], out=finish[v])
            finish[v] += time[v]
        return finish

    def in_time(self, time: Ints, moved: Ints) -> npt.NDArray[np.bool_]:
        """(P,) whether plans (columns) keep every limit in time, the paths without a row too."""
        kept = np.ones(time.shape[1], dtype=np.bool_)
        if self.problem.budget < NO_LIMIT:
            kept &= time[list(self.problem.budget_stages)].sum(axis=0) <= self.problem.budget
        if self.problem.has_path_limits:
            kept &= (self.finish(time, moved) <= self.finish_by[:, None]).all(axis=0)
        return kept

    def _path(self, end: int, finish: Ints, moved: Ints) -> Row:
        stages, couplings = [end], []
        v = end
        while self.into[v]:
            u, e = max(self.into[v], key=lambda each: (int(finish[each[0]] + moved[each[1]]), -each[1]))
            stages.append(u)
            couplings.append(e)
            v = u
        return Row(tuple(sorted(stages)), tuple(sorted(couplings)), int(self.finish_by[end]), end)


def _longest(problem: Problem) -> float:
    """Ticks that no stage and no transfer takes longer than."""
    topology, edges = problem.topology, problem.edges
    latency = topology.latency if topology.pair_latency is None else (topology.pair_latency,)
    rates = topology.seconds_per_byte if topology.pair_seconds_per_byte is None else (topology.pair_seconds_per_byte,)
    moved = max(float(each.max(initial=0.0)) for each in latency) + float(edges.bytes.max(initial=0.0)) * max(
        float(each.max(initial=0.0)) for each in rates
    )
    return max(float(problem.options.time[problem.allowed].max(initial=0)), moved * TICKS_PER_SECOND)
